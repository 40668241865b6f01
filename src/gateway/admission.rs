//! What is not answered at all: requests with two readings, and those that a browser was tricked into.
//!
//! In `trusted` mode whoever reaches the gateway is the gateway. A web page reaches it from a browser on the same machine, once the
//! page's own name leads to a loopback address; the `Host` that the browser then sends gives it away. It is the rule of
//! `kubectl proxy`.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use http::Request;

use super::refusal::Refusal;
use crate::listener;

/// The names that clients on TCP may call the gateway by. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AcceptedHosts(Option<Arc<HashSet<String>>>);

impl AcceptedHosts {
    /// Whatever clients like: each has to show who it is, and a web page cannot.
    pub fn any() -> Self {
        Self(None)
    }

    /// `localhost` and its addresses, the addresses that the gateway listens on, and `further` ones.
    pub fn local(addresses: impl IntoIterator<Item = IpAddr>, further: &[String]) -> Self {
        let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let addresses = addresses.into_iter().chain(loopback).map(|address| address.to_string());
        let names = further.iter().map(String::as_str).chain(["localhost"]).map(normal);
        Self(Some(Arc::new(addresses.chain(names).collect())))
    }

    /// Pure. `peer` is None for a Unix socket, which no browser reaches.
    pub(super) fn check<B>(&self, request: &Request<B>, peer: Option<SocketAddr>) -> Result<(), Refusal> {
        let (Some(accepted), Some(_)) = (&self.0, peer) else { return Ok(()) };
        let mut hosts = listener::hosts(request).peekable();
        let named = hosts.peek().is_some();
        let known = hosts.all(|host| accepted.contains(&normal(&host)));
        if named && known { Ok(()) } else { Err(Refusal::ForeignHost) }
    }
}

/// Names without case, addresses in their usual form.
fn normal(host: &str) -> String {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().map_or_else(|_| host.to_ascii_lowercase(), |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header;

    fn check(hosts: &AcceptedHosts, uri: &str, host: Option<&str>) -> bool {
        let mut request = Request::builder().uri(uri);
        if let Some(host) = host {
            request = request.header(header::HOST, host);
        }
        let peer = Some("127.0.0.1:1".parse().unwrap());
        hosts.check(&request.body(()).unwrap(), peer).is_ok()
    }

    #[test]
    fn a_page_under_another_name_gets_nothing() {
        let hosts = AcceptedHosts::local(["127.0.0.2".parse().unwrap()], &["Gateway.example".to_owned()]);
        for (host, accepted) in [
            ("localhost", true),
            ("LOCALHOST:8001", true),
            ("127.0.0.1:8001", true),
            ("[::1]:8001", true),
            ("[0:0:0:0:0:0:0:1]", true),
            ("127.0.0.2:1", true),
            ("gateway.example:8001", true),
            ("127.0.0.3", false),
            ("evil.example:8001", false),
            ("localhost.evil.example", false),
            ("localhost.", false),
            ("gateway.example.", false),
            ("", false),
        ] {
            assert_eq!(check(&hosts, "/api", Some(host)), accepted, "{host}");
        }
        assert!(!check(&hosts, "/api", None));
        // Of HTTP/2, or of an absolute target.
        assert!(check(&hosts, "http://localhost/api", None));
        assert!(!check(&hosts, "http://evil.example/api", None));
        assert!(!check(&hosts, "http://localhost/api", Some("evil.example")));
        assert!(!check(&hosts, "http://evil.example/api", Some("localhost")));
    }

    #[test]
    fn unix_sockets_and_delegated_clients_may_say_what_they_like() {
        let request = Request::builder().uri("/api").header(header::HOST, "evil.example").body(()).unwrap();
        assert_eq!(AcceptedHosts::local([], &[]).check(&request, None), Ok(()));
        assert!(check(&AcceptedHosts::any(), "/api", Some("evil.example")));
        assert!(check(&AcceptedHosts::any(), "/api", None));
    }
}
