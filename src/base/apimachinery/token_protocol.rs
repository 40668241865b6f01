//! Bearer tokens in place of a subprotocol of a WebSocket (read-path 8.1).

use http::{HeaderMap, header};

const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Whether a subprotocol carries a token.
pub fn is_token_protocol(protocol: &str) -> bool {
    protocol.starts_with(PREFIX)
}

/// Whether an API server may find a token in the subprotocols that a request asks for. It looks for one only if the
/// connection is to become a WebSocket; that `Upgrade` is missing is the only proof that it is not.
pub fn shows_token_protocol(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).into_iter();
    let mut protocols = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let is_token = |protocol: &[u8]| protocol.trim_ascii().starts_with(PREFIX.as_bytes());
    headers.contains_key(header::UPGRADE) && protocols.any(is_token)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_token_is_found_among_all_subprotocols_of_an_upgrade() {
        for (protocols, found) in [
            (&[&b"base64url.bearer.authorization.k8s.io.dG9r"[..]][..], true),
            (&[b"v5.channel.k8s.io", b"x, \tbase64url.bearer.authorization.k8s.io. ,"], true),
            (&[b"\xff,base64url.bearer.authorization.k8s.io.dG9r"], true),
            (&[b"v5.channel.k8s.io, x-base64url.bearer.authorization.k8s.io.dG9r"], false),
            (&[b"BASE64URL.bearer.authorization.k8s.io.dG9r"], false),
            (&[], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in protocols {
                headers.append(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_bytes(value).unwrap());
            }
            assert!(!shows_token_protocol(&headers), "no upgrade");
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            assert_eq!(shows_token_protocol(&headers), found, "{headers:?}");
        }
    }
}
