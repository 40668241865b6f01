//! Recognises a gateway that is configured to be its own API server.

use std::net::IpAddr;

use crate::config::{Address, Config, Problem};

impl Config {
    /// The problem that upstream's address is one of the gateway's own. Addresses that a name or another machine leads
    /// back from are not recognised here, but by the first request.
    pub(super) async fn is_own_upstream(&self) -> Option<Problem> {
        // What cannot be resolved is a problem of its own.
        let access = self.upstream.resolve().await.ok().filter(|access| access.proxy_url.is_none())?;
        let url = access.cluster_url;
        let listeners = self.listeners.iter().enumerate();
        let addresses = listeners.map(|(index, listener)| (format!("listeners[{index}].address"), &listener.address));
        let mut addresses = addresses.chain([("admin.address".to_owned(), &self.admin.address)]);
        let (field, _) = addresses.find(|(_, address)| leads_to(&url, address))?;
        let field_of_upstream = "upstream.kubeconfig";
        let found = format!("its server {url} is {field}: the gateway would send its requests to itself");
        Some(Problem::new(field_of_upstream, &found, "the address of the API server"))
    }
}

/// Whether a connection to a URL would be accepted at an address of this machine.
fn leads_to(url: &http::Uri, address: &Address) -> bool {
    let Address::Tcp(address) = address else { return false };
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_reached = |at: IpAddr| at == address.ip() || address.ip().is_unspecified() && at.is_loopback();
    let is_here = match host.parse() {
        Ok(at) => is_reached(at),
        Err(_) => host == "localhost" && (address.ip().is_loopback() || address.ip().is_unspecified()),
    };
    is_here && port == address.port()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{API_VERSION, KIND, Overrides};

    #[test]
    fn an_address_is_its_own_by_port_and_by_what_it_accepts() {
        for (url, address, expected) in [
            ("http://127.0.0.1:8001", "127.0.0.1:8001", true),
            ("http://localhost:8001", "127.0.0.1:8001", true),
            ("http://localhost:8001", "[::1]:8001", true),
            ("https://127.0.0.1:8443/", "0.0.0.0:8443", true),
            ("https://[::1]:8443", "[::]:8443", true),
            ("https://10.0.0.1", "10.0.0.1:443", true),
            ("http://10.0.0.1", "10.0.0.1:80", true),
            ("http://127.0.0.1:8001", "127.0.0.1:8002", false),
            ("http://127.0.0.2:8001", "127.0.0.1:8001", false),
            ("https://10.0.0.1:8443", "0.0.0.0:8443", false),
            ("https://api.example:8443", "0.0.0.0:8443", false),
            ("http://127.0.0.1:8001", "unix:/run/s", false),
        ] {
            assert_eq!(leads_to(&url.parse().unwrap(), &address.parse().unwrap()), expected, "{url} {address}");
        }
    }

    #[tokio::test]
    async fn a_gateway_in_front_of_itself_is_a_problem_before_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let [kubeconfig, file] = ["kubeconfig", "config.yaml"].map(|name| folder.path().join(name));
        let cluster = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'http://localhost:8001'}}]\n\
            contexts: [{name: c, context: {cluster: c, user: ''}}]\n";
        std::fs::write(&kubeconfig, cluster).unwrap();
        for (listen, expected) in [("127.0.0.1:8001", true), ("127.0.0.1:8002", false)] {
            let text = format!(
                "apiVersion: {API_VERSION}\nkind: {KIND}\nlisteners: [{{address: '{listen}'}}]\nupstream: {{kubeconfig: '{}'}}\n",
                kubeconfig.display()
            );
            std::fs::write(&file, text).unwrap();
            let config = Config::parse(&std::fs::read_to_string(&file).unwrap(), &Overrides::default()).unwrap();
            let problem = config.is_own_upstream().await.map(|problem| problem.to_string());
            let told = "upstream.kubeconfig: its server http://localhost:8001/ is listeners[0].address: ";
            assert_eq!(problem.is_some_and(|problem| problem.starts_with(told)), expected, "{listen}");
            assert_eq!(Config::check(&file).await.is_err(), expected, "{listen}");
        }
    }
}
