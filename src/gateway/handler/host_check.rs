//! Rejects requests that can be read in two ways, and those that a browser was tricked into.
//!
//! In `trusted` mode every client that reaches the gateway acts as the gateway. A web page can reach it from a browser
//! on the same machine: under the page's own name, resolved to a loopback address, which shows in the browser's `Host`;
//! or at the gateway's own address, which shows in `Origin` and `Sec-Fetch-Site` ([`super::cors`]). `kubectl proxy`
//! has the first rule, but not the second.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use http::{Request, header, uri::Authority};

use super::{
    cors::{self, AllowedOrigin},
    refusal::Refusal,
};
use crate::listener::{self, Connection};
use base::apimachinery::{Origin, RequestInfo, normal_host};

/// The names that clients on TCP may use for the gateway, and the web pages that may send requests. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HostCheck(Option<Arc<Accepted>>);

#[derive(Debug)]
struct Accepted {
    hosts: HashSet<String>,
    origins: HashSet<Origin>,
}

impl HostCheck {
    /// Accepts any host and page: each client has to authenticate, which a web page cannot.
    pub fn any() -> Self {
        Self(None)
    }

    /// Accepts `localhost` and its addresses, the addresses that the gateway listens on, and `further` hosts. Accepts
    /// pages of `origins` and of the gateway's own origin.
    pub fn local(addresses: impl IntoIterator<Item = IpAddr>, further: &[String], origins: &[Origin]) -> Self {
        let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let addresses = addresses.into_iter().chain(loopback).map(|address| address.to_string());
        let names = further.iter().map(String::as_str).chain(["localhost"]).map(normal_host);
        let hosts = addresses.chain(names).collect();
        Self(Some(Arc::new(Accepted { hosts, origins: origins.iter().cloned().collect() })))
    }

    /// Returns the page of a named origin that sent the request, if one did. Pure. A Unix socket has no peer: no
    /// browser reaches it.
    pub(super) fn check<B>(
        &self,
        request: &Request<B>,
        info: &RequestInfo,
        connection: &Connection,
    ) -> Result<Option<AllowedOrigin>, Refusal> {
        let (Some(accepted), Some(_)) = (&self.0, connection.peer) else { return Ok(None) };
        let mut hosts = listener::hosts(request).peekable();
        let named = hosts.peek().is_some();
        let known = hosts.all(|host| accepted.hosts.contains(&normal_host(&host)));
        if !named || !known {
            return Err(Refusal::ForeignHost);
        }
        let own = authority(request).and_then(|authority| Origin::of_server(connection.tls, &authority));
        cors::check(request.headers(), info, own.as_ref(), &accepted.origins)
    }
}

/// The host and port by which the request names the gateway. Target and `Host` agree where both are given
/// ([`listener::check_well_formed`]).
fn authority<B>(request: &Request<B>) -> Option<Authority> {
    let host = || Authority::try_from(request.headers().get(header::HOST)?.as_bytes()).ok();
    request.uri().authority().cloned().or_else(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_util::sync::CancellationToken;

    fn connection(peer: Option<&str>) -> Connection {
        let peer = peer.map(|peer| peer.parse().unwrap());
        Connection { number: 0, peer, tls: false, client_certificate: None, draining: CancellationToken::new() }
    }

    fn checked(
        host_check: &HostCheck,
        request: &Request<()>,
        peer: Option<&str>,
    ) -> Result<Option<AllowedOrigin>, Refusal> {
        let info = RequestInfo::parse(request.method(), request.uri().path(), request.uri().query());
        host_check.check(request, &info, &connection(peer))
    }

    fn check(host_check: &HostCheck, uri: &str, host: Option<&str>) -> bool {
        let mut request = Request::builder().uri(uri);
        if let Some(host) = host {
            request = request.header(header::HOST, host);
        }
        checked(host_check, &request.body(()).unwrap(), Some("127.0.0.1:1")).is_ok()
    }

    #[test]
    fn requests_with_a_foreign_host_are_refused() {
        let hosts = HostCheck::local(["127.0.0.2".parse().unwrap()], &["Gateway.example".to_owned()], &[]);
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
        // As in HTTP/2, or an absolute target.
        assert!(check(&hosts, "http://localhost/api", None));
        assert!(!check(&hosts, "http://evil.example/api", None));
        assert!(!check(&hosts, "http://localhost/api", Some("evil.example")));
        assert!(!check(&hosts, "http://evil.example/api", Some("localhost")));
    }

    #[test]
    fn unix_sockets_and_delegated_clients_may_send_any_host_and_origin() {
        let request = Request::builder().uri("/api").header(header::HOST, "evil.example");
        let request = request.header(header::ORIGIN, "http://evil.example").body(()).unwrap();
        assert_eq!(checked(&HostCheck::local([], &[], &[]), &request, None), Ok(None));
        assert_eq!(checked(&HostCheck::any(), &request, Some("127.0.0.1:1")), Ok(None));
        assert!(check(&HostCheck::any(), "/api", None));
    }

    #[test]
    fn an_origin_equal_to_the_host_is_the_gateways_own() {
        let host_check = HostCheck::local([], &[], &[]);
        for (host, origin, expected) in [
            ("localhost:8001", "http://localhost:8001", Ok(None)),
            ("localhost:80", "http://localhost", Ok(None)),
            ("[::1]:8001", "http://[::1]:8001", Ok(None)),
            ("localhost:8001", "http://localhost:8002", Err(Refusal::ForeignOrigin)),
            ("localhost:8001", "http://127.0.0.1:8001", Err(Refusal::ForeignOrigin)),
            ("localhost:8001", "https://localhost:8001", Err(Refusal::ForeignOrigin)),
            // Another name is already refused as a host.
            ("evil.example", "http://evil.example", Err(Refusal::ForeignHost)),
        ] {
            let request = Request::builder().uri("/api").header(header::HOST, host).header(header::ORIGIN, origin);
            let found = checked(&host_check, &request.body(()).unwrap(), Some("127.0.0.1:1"));
            assert_eq!(found, expected, "{host} {origin}");
        }
        let http2 = Request::builder().uri("http://localhost:8001/api").header(header::ORIGIN, "http://localhost:8001");
        assert_eq!(checked(&host_check, &http2.body(()).unwrap(), Some("127.0.0.1:1")), Ok(None));
    }
}
