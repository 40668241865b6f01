//! What events say of a request's head.
//!
//! Taken from every request while the head is there, and shares its bytes: it is cheap until there is an event.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header, uri::PathAndQuery};
use jiff::Timestamp;

/// What events say of a request's head. Cheap to clone.
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

/// Bytes of path and query that an event keeps. A head may have 256 KiB, and 10,000 events may wait.
const URI_MAX: usize = 8 << 10;
/// The API server keeps as much.
const USER_AGENT_MAX: usize = 1024;
/// The API server's word behind a user agent that it has cut.
const TRUNCATED: &str = "...TRUNCATED";
/// Addresses that an event keeps, the last ones: those of the proxies that are nearest.
const SOURCE_IPS_MAX: usize = 32;

impl Request {
    /// A request that has just come, from `client`; None for a Unix socket.
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

    pub(super) fn received(&self) -> Timestamp {
        self.received
    }

    /// Where the request is from, as the API server has it: what the first `X-Forwarded-For` says, then `X-Real-Ip` if that is
    /// another one, then the address of the connection if it is not the last so far. Only the address of the connection is
    /// certain: clients can make up the others.
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

/// The text up to so many bytes.
fn cut(text: &str, most: usize) -> String {
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
    fn what_is_too_long_is_cut() {
        let long = "x".repeat(USER_AGENT_MAX + 1);
        let agent = request(&[("user-agent", &long)], None).user_agent();
        assert_eq!(agent, format!("{}{TRUNCATED}", &long[1..]));
        assert_eq!(request(&[("user-agent", &long[1..])], None).user_agent(), long[1..]);
        assert_eq!(cut("a\u{e9}", 2), format!("a{TRUNCATED}"));
    }
}
