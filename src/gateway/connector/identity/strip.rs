//! Removes a client's own credentials from a request. Pure.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use base::{apimachinery::is_token_protocol, config::ProxyHeaders};

/// Prefix of the headers in which a front proxy, and no other client, sends a user, its groups and extra values.
const REMOTE: &str = "x-remote-";
const IMPERSONATE: &str = "impersonate-";

/// Whether a header is part of an impersonation.
pub(super) fn is_impersonation(name: &HeaderName) -> bool {
    name.as_str().starts_with(IMPERSONATE)
}

/// Whether a request impersonates a user.
pub(super) fn impersonates(headers: &HeaderMap) -> bool {
    headers.keys().any(is_impersonation)
}

/// Removes everything that an API server accepts as credentials, so that another identity can be added.
pub(super) fn strip_credentials(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    strip_front_proxy(headers);
    strip_token_protocol(headers);
}

/// The same, with the headers named by `asserted`.
pub(super) fn strip_credentials_and(headers: &mut HeaderMap, asserted: &ProxyHeaders) {
    let found: Vec<_> = headers.keys().filter(|name| asserted.has(name)).cloned().collect();
    for name in found {
        headers.remove(name);
    }
    strip_credentials(headers);
}

/// Removes the headers that only a front proxy may send.
pub(super) fn strip_front_proxy(headers: &mut HeaderMap) {
    let remote: Vec<_> = headers.keys().filter(|name| name.as_str().starts_with(REMOTE)).cloned().collect();
    for name in remote {
        headers.remove(name);
    }
}

fn strip_token_protocol(headers: &mut HeaderMap) {
    if !protocols(headers).any(is_token_protocol) {
        return;
    }
    let others: Vec<_> =
        protocols(headers).filter(|protocol| !is_token_protocol(protocol)).map(str::to_owned).collect();
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    if let Ok(value) = HeaderValue::from_str(&others.join(", "))
        && !value.is_empty()
    {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
    }
}

/// The comma-separated words in all values. Values that are not text are skipped.
fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).into_iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|protocol| !protocol.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strip(given: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        strip_credentials(&mut headers);
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    #[test]
    fn identity_headers_and_bearer_subprotocols_are_removed() {
        let left = strip(&[
            ("authorization", "Bearer t"),
            ("authorization", "Basic t"),
            ("x-remote-user", "admin"),
            ("x-remote-uid", "1"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-scopes", "s"),
            ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.dG9r, v5.channel.k8s.io"),
            ("sec-websocket-protocol", "v4.channel.k8s.io"),
        ]);
        assert_eq!(left, ["sec-websocket-protocol: v5.channel.k8s.io, v4.channel.k8s.io"]);
        let alone = [("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.dG9r")];
        assert_eq!(strip(&alone), Vec::<String>::new());
    }

    #[test]
    fn subprotocols_without_a_token_are_unchanged() {
        let given =
            [("sec-websocket-protocol", "v5.channel.k8s.io,v4.channel.k8s.io"), ("sec-websocket-protocol", "x")];
        let expected: Vec<_> = given.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert_eq!(strip(&given), expected);
    }
}
