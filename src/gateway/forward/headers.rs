//! Decides which headers pass. Pure.
//!
//! Headers of a single connection end here (RFC 9110, 7.6.1); all others pass unchanged in both directions, values of
//! one name in their order. Credentials are handled elsewhere: see [`crate::connector::Outbound`].

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Version, header};

use super::ForwardError;

/// Without `Trailer`: it announces trailers, which pass too, and hyper sends none over HTTP/1.1 without it.
static HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Only used to upgrade the connection to HTTP/2 itself, which is not passed on.
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const IMPERSONATE: &str = "impersonate-";

/// Whether a client asks to switch to a protocol other than HTTP; such a request must go upstream over HTTP/1.1.
pub fn is_upgrade<B>(request: &Request<B>) -> bool {
    let elsewhere = || tokens(request.headers(), &header::UPGRADE).any(|token| !token.eq_ignore_ascii_case("h2c"));
    let asks = || tokens(request.headers(), &header::CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    request.version() == Version::HTTP_11 && elsewhere() && asks()
}

/// Turns a client's headers into those of the request to upstream.
pub(super) fn for_upstream(headers: &mut HeaderMap, client: Option<IpAddr>, upgrade: bool) -> Result<(), ForwardError> {
    let takes_trailers = tokens(headers, &header::TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    let named = named_in_connection(headers);
    if let Some(identity) = named.iter().find(|name| name.as_str().starts_with(IMPERSONATE)) {
        return Err(ForwardError::IdentityHeader(identity.clone()));
    }
    end_hop(headers, &named, upgrade);
    headers.remove(HTTP2_SETTINGS);
    if takes_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if let Some(client) = client {
        append_client(headers, client);
    }
    Ok(())
}

/// Turns upstream's headers into those of the answer to the client.
pub(super) fn for_client(headers: &mut HeaderMap, upgraded: bool) {
    end_hop(headers, &named_in_connection(headers), upgraded);
}

/// Removes headers that are for this connection only; few requests have any. With `upgrade`, the upgrade is requested,
/// or granted, anew.
fn end_hop(headers: &mut HeaderMap, named: &[HeaderName], upgrade: bool) {
    let protocols: Vec<_> = headers.get_all(header::UPGRADE).iter().cloned().collect();
    let is_of_hop = |name: &&HeaderName| HOP_BY_HOP.contains(name) || named.contains(name);
    let of_hop: Vec<_> = headers.keys().filter(is_of_hop).cloned().collect();
    for name in of_hop {
        headers.remove(name);
    }
    if upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        for protocol in protocols {
            headers.append(header::UPGRADE, protocol);
        }
    }
}

/// Appends the client's address to those that proxies in front of the gateway have left, as one value.
fn append_client(headers: &mut HeaderMap, client: IpAddr) {
    let client = client.to_canonical().to_string();
    let prior: Vec<_> = headers.get_all(&FORWARDED_FOR).iter().map(HeaderValue::as_bytes).collect();
    let joined = [prior.as_slice(), &[client.as_bytes()]].concat().join(&b", "[..]);
    let value = HeaderValue::from_bytes(&joined).expect("values joined by a comma are a value");
    headers.insert(FORWARDED_FOR, value);
}

fn named_in_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    tokens(headers, &header::CONNECTION).filter_map(|token| token.parse().ok()).collect()
}

/// The comma-separated words in all values of one name. Values that are not text are skipped.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort_by(|a, b| a.split(':').next().cmp(&b.split(':').next()));
        lines
    }

    fn to_upstream(given: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers = headers(given);
        for_upstream(&mut headers, None, false).unwrap();
        lines(&headers)
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let kept = to_upstream(&[
            ("connection", "keep-alive, X-Mine"),
            ("connection", "x-other"),
            ("x-mine", "1"),
            ("x-other", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "Basic x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABk"),
            ("te", "gzip, Trailers"),
            ("accept", "application/json"),
        ]);
        assert_eq!(kept, ["accept: application/json", "te: trailers"]);
        assert_eq!(to_upstream(&[("te", "gzip")]), Vec::<String>::new());
    }

    #[test]
    fn other_headers_are_forwarded_in_order() {
        let given = [
            ("accept", "b"),
            ("accept", "a"),
            ("audit-id", "x"),
            ("content-length", "5"),
            ("impersonate-group", "g2"),
            ("impersonate-group", "g1"),
            ("impersonate-user", "u"),
            ("trailer", "x-sum"),
            ("user-agent", "kubectl"),
        ];
        let expected: Vec<_> = given.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert_eq!(to_upstream(&given), expected);
    }

    #[test]
    fn connection_cannot_name_impersonation_headers() {
        let mut headers = headers(&[("connection", "close, Impersonate-User"), ("impersonate-user", "u")]);
        let error = for_upstream(&mut headers, None, false).unwrap_err();
        assert!(matches!(error, ForwardError::IdentityHeader(_)), "{error:?}");
    }

    #[test]
    fn the_address_of_the_client_comes_last() {
        let mut headers = headers(&[("x-forwarded-for", "10.0.0.1, 10.0.0.2"), ("x-forwarded-for", "10.0.0.3")]);
        for_upstream(&mut headers, Some("::ffff:127.0.0.1".parse().unwrap()), false).unwrap();
        assert_eq!(lines(&headers), ["x-forwarded-for: 10.0.0.1, 10.0.0.2, 10.0.0.3, 127.0.0.1"]);
    }

    #[test]
    fn upgrade_headers_are_written_again() {
        let mut headers = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ("x-stream-protocol-version", "v3.channel.k8s.io"),
        ]);
        for_upstream(&mut headers, None, true).unwrap();
        let expected = [
            "connection: Upgrade",
            "upgrade: SPDY/3.1",
            "x-stream-protocol-version: v4.channel.k8s.io",
            "x-stream-protocol-version: v3.channel.k8s.io",
        ];
        assert_eq!(lines(&headers), expected);
    }

    #[test]
    fn only_http1_switches_to_what_is_not_http() {
        let request = |version, connection: &'static str, upgrade: &'static str| {
            let request = Request::builder().version(version).header("connection", connection);
            is_upgrade(&request.header("upgrade", upgrade).body(()).unwrap())
        };
        assert!(request(Version::HTTP_11, "keep-alive, upgrade", "websocket"));
        assert!(!request(Version::HTTP_11, "Upgrade, HTTP2-Settings", "h2c"));
        assert!(!request(Version::HTTP_11, "keep-alive", "websocket"));
        assert!(!request(Version::HTTP_2, "upgrade", "websocket"));
    }
}
