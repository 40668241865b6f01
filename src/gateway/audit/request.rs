//! What events record of a request's head.
//!
//! Captured from every request while its head is available. It shares the head's bytes, so that it is cheap until there
//! is an event.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header, uri::PathAndQuery};
use jiff::Timestamp;

/// The parts of a request's head that events record. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Request {
    target: Option<PathAndQuery>,
    user_agent: Option<HeaderValue>,
    forwarded_for: Option<HeaderValue>,
    real_ip: Option<HeaderValue>,
    client: Option<IpAddr>,
    received: Timestamp,
}

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Maximum bytes of path and query in an event. A head may have 256 KiB, and 10,000 events may be queued.
const URI_MAX: usize = 8 << 10;
/// Maximum bytes of a user agent, as in the API server.
const USER_AGENT_MAX: usize = 1024;
/// Bytes of path, query and user agent that nearly all requests stay within.
const USUAL_BYTES: usize = 1024;
/// Suffix that the API server adds to a user agent it has cut.
const TRUNCATED: &str = "...TRUNCATED";
/// Maximum addresses in an event. The last ones are kept, which are those of the nearest proxies.
const SOURCE_IPS_MAX: usize = 32;

impl Request {
    /// Captures a request that has just arrived from `client`; `None` for a Unix socket.
    pub fn of<B>(request: &http::Request<B>, client: Option<IpAddr>) -> Self {
        let headers: &HeaderMap = request.headers();
        Self {
            target: request.uri().path_and_query().cloned(),
            user_agent: headers.get(header::USER_AGENT).cloned(),
            forwarded_for: headers.get(FORWARDED_FOR).cloned(),
            real_ip: headers.get(REAL_IP).cloned(),
            client,
            received: Timestamp::now(),
        }
    }

    pub(super) fn uri(&self) -> String {
        let uri = self.target.as_ref().map(PathAndQuery::as_str).unwrap_or_default();
        cut(uri, URI_MAX)
    }

    pub(super) fn user_agent(&self) -> String {
        let agent = self.user_agent.as_ref().map(HeaderValue::as_bytes).unwrap_or_default();
        cut(&String::from_utf8_lossy(agent), USER_AGENT_MAX)
    }

    /// Bytes that an event of the request holds, beyond what usual requests have.
    pub fn unusual_bytes(&self) -> usize {
        let target = self.target.as_ref().map_or(0, |target| target.as_str().len().min(URI_MAX));
        let agent = self.user_agent.as_ref().map_or(0, |agent| agent.len().min(USER_AGENT_MAX));
        (target + agent).saturating_sub(USUAL_BYTES)
    }

    pub(super) fn received(&self) -> Timestamp {
        self.received
    }

    /// The source addresses as the API server determines them: those in the first `X-Forwarded-For`, then `X-Real-Ip`
    /// if it is not among them, then the connection's address if it is not already the last. Only the connection's
    /// address is certain; clients can make up the others.
    pub(super) fn source_ips(&self) -> Vec<IpAddr> {
        let text =
            |value: &Option<HeaderValue>| value.as_ref().and_then(|value| value.to_str().ok().map(str::to_owned));
        let mut addresses: Vec<IpAddr> = text(&self.forwarded_for)
            .map(|list| list.split(',').filter_map(|address| address.trim().parse().ok()).collect())
            .unwrap_or_default();
        if let Some(real) = text(&self.real_ip).and_then(|address| address.parse().ok())
            && !addresses.contains(&real)
        {
            addresses.push(real);
        }
        if let Some(client) = self.client.map(|client| client.to_canonical())
            && addresses.last() != Some(&client)
        {
            addresses.push(client);
        }
        addresses.split_off(addresses.len().saturating_sub(SOURCE_IPS_MAX))
    }

    #[cfg(test)]
    pub(super) fn received_at(self, received: Timestamp) -> Self {
        Self { received, ..self }
    }
}

/// At most `most` bytes of the text, followed by `TRUNCATED` if it was cut.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    format!("{}{TRUNCATED}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)], client: Option<&str>) -> Request {
        let mut request = http::Request::get("/api/v1/nodes");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Request::of(&request.body(()).unwrap(), client.map(|client| client.parse().unwrap()))
    }

    #[test]
    fn sources_are_those_that_the_api_server_names() {
        let (forwarded, real) = ("x-forwarded-for", "x-real-ip");
        for (headers, client, expected) in [
            (&[][..], Some("10.0.0.9"), &["10.0.0.9"][..]),
            (&[], None, &[]),
            (
                &[(forwarded, "10.0.0.1, 2001:db8::1,10.0.0.2")],
                Some("10.0.0.9"),
                &["10.0.0.1", "2001:db8::1", "10.0.0.2", "10.0.0.9"],
            ),
            (&[(forwarded, "unknown, ,10.0.0.1:80,10.0.0.2")], Some("10.0.0.9"), &["10.0.0.2", "10.0.0.9"]),
            (&[(forwarded, "10.0.0.1"), (forwarded, "10.0.0.2")], Some("10.0.0.9"), &["10.0.0.1", "10.0.0.9"]),
            (&[(forwarded, "10.0.0.1,10.0.0.9")], Some("10.0.0.9"), &["10.0.0.1", "10.0.0.9"]),
            (&[(forwarded, "10.0.0.9,10.0.0.1")], Some("10.0.0.9"), &["10.0.0.9", "10.0.0.1", "10.0.0.9"]),
            (&[(forwarded, "10.0.0.1"), (real, "10.0.0.1")], Some("10.0.0.9"), &["10.0.0.1", "10.0.0.9"]),
            (&[(forwarded, "10.0.0.1"), (real, "10.0.0.2")], None, &["10.0.0.1", "10.0.0.2"]),
            (&[(real, "not one")], Some("::ffff:10.0.0.9"), &["10.0.0.9"]),
        ] {
            let found: Vec<_> = request(headers, client).source_ips().iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{headers:?}");
        }
        let many = vec!["10.0.0.1"; 100].join(",");
        let found = request(&[(forwarded, &many)], Some("10.0.0.9")).source_ips();
        assert_eq!((found.len(), found[SOURCE_IPS_MAX - 1].to_string()), (SOURCE_IPS_MAX, "10.0.0.9".to_owned()));
    }

    #[test]
    fn what_an_event_holds_is_bounded() {
        let of = |path: &str, agent: usize| {
            let request = http::Request::get(path).header("user-agent", "x".repeat(agent));
            Request::of(&request.body(()).unwrap(), None).unusual_bytes()
        };
        assert_eq!(of("/api/v1/nodes", 100), 0);
        let long = format!("/api/v1/nodes?labelSelector={}", "x".repeat(60_000));
        assert_eq!(of(&long, 10_000), URI_MAX + USER_AGENT_MAX - USUAL_BYTES);
    }

    #[test]
    fn long_user_agents_are_cut() {
        let long = "x".repeat(USER_AGENT_MAX + 1);
        let agent = request(&[("user-agent", &long)], None).user_agent();
        assert_eq!(agent, format!("{}{TRUNCATED}", &long[1..]));
        assert_eq!(request(&[("user-agent", &long[1..])], None).user_agent(), long[1..]);
        assert_eq!(cut("a\u{e9}", 2), format!("a{TRUNCATED}"));
    }
}
