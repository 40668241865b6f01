//! Recognises a gateway that is configured to be its own API server.

use std::net::IpAddr;

use crate::config::{Address, Config, Problem, Redacted};

impl Config {
    /// The problems that addresses of upstream are the gateway's own. Addresses that a name or another machine leads
    /// back from are not recognised here, but by the first request.
    pub(super) async fn is_own_upstream(&self) -> Vec<Problem> {
        // What cannot be resolved is a problem of its own.
        let access = self.upstream.resolve().await.ok().filter(|access| access.proxy_url.is_none());
        let Some(url) = access.map(|access| access.cluster_url) else { return Vec::new() };
        let of_kubeconfig = self.led_back("upstream.kubeconfig", "its server ", &url);
        let fallback = self.fallback.as_ref().map_or(&[][..], |fallback| &fallback.servers);
        let listed = [("upstream.servers", &self.servers[..]), ("upstream.fallback.servers", fallback)];
        let servers = listed.into_iter().flat_map(|(field, servers)| {
            servers.iter().enumerate().map(move |(index, server)| (format!("{field}[{index}]"), server))
        });
        let servers = servers.filter_map(|(field, server)| {
            let url = format!("{}://{}", url.scheme_str().unwrap_or("https"), server.authority()).parse().ok()?;
            self.led_back(&field, "", &url)
        });
        of_kubeconfig.filter(|_| self.servers.is_empty()).into_iter().chain(servers).collect()
    }

    /// The problem that the URL of a field leads to the gateway.
    fn led_back(&self, field_of_upstream: &str, what: &str, url: &http::Uri) -> Option<Problem> {
        let listeners = self.listeners.iter().enumerate();
        let addresses = listeners.map(|(index, listener)| (format!("listeners[{index}].address"), &listener.address));
        let mut addresses = addresses.chain([("admin.address".to_owned(), &self.admin.address)]);
        let (field, _) = addresses.find(|(_, address)| leads_to(url, address))?;
        let url = Redacted::url(url);
        let found = format!("{what}{url} is {field}: the gateway would send its requests to itself");
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
    fn own_addresses_are_recognized_by_port_and_interface() {
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
    async fn an_upstream_at_an_own_address_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let [kubeconfig, file] = ["kubeconfig", "config.yaml"].map(|name| folder.path().join(name));
        let cluster = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
            clusters: [{name: c, cluster: {server: 'http://localhost:8001'}}]\n\
            contexts: [{name: c, context: {cluster: c, user: ''}}]\n";
        std::fs::write(&kubeconfig, cluster).unwrap();
        for (listen, expected) in [("127.0.0.1:8001", true), ("127.0.0.1:8002", false)] {
            let text = format!(
                "apiVersion: {API_VERSION}\nkind: {KIND}\nlisteners: [{{address: '{listen}'}}]\n\
                 upstream: {{kubeconfig: '{}'}}\n",
                kubeconfig.display()
            );
            std::fs::write(&file, text).unwrap();
            let config = Config::parse(&std::fs::read_to_string(&file).unwrap(), &Overrides::default()).unwrap();
            let problem = config.is_own_upstream().await.first().map(ToString::to_string);
            let told = "upstream.kubeconfig: its server http://localhost:8001/ is listeners[0].address: ";
            assert_eq!(problem.is_some_and(|problem| problem.starts_with(told)), expected, "{listen}");
            assert_eq!(!Config::check(&file).await.unwrap().problems().is_empty(), expected, "{listen}");
        }
        let text = format!(
            "apiVersion: {API_VERSION}\nkind: {KIND}\nlisteners: [{{address: '127.0.0.1:8002'}}]\n\
             upstream: {{kubeconfig: '{}', servers: ['10.0.0.1:6443', 'localhost:8002']}}\n",
            kubeconfig.display()
        );
        std::fs::write(&file, text).unwrap();
        let told = "upstream.servers[1]: http://localhost:8002/ is listeners[0].address: the gateway would send its";
        let problems = Config::check(&file).await.unwrap().problems();
        assert!(problems.len() == 1 && problems[0].to_string().contains(told), "{problems:?}");
    }
}
