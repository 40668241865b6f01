//! Who asks: from a connection and its headers to a user.
//!
//! In `trusted` mode everybody who reaches the listener (loopback or a Unix socket, see
//! [`crate::config`]) acts with the gateway's own credentials, as with `kubectl proxy`.

use http::{HeaderMap, HeaderName, header};

pub use crate::apimachinery::UserInfo;

/// Who a request is answered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// The gateway's own identity.
    Gateway,
    /// Somebody whom upstream has to resolve from `Impersonate-*`, after checking that the gateway may.
    Impersonated,
}

/// Prefix of the headers by which a front proxy asserts a user: nobody is believed them here.
const FRONT_PROXY: &str = "x-remote-";
const IMPERSONATE: &str = "impersonate-";

/// Takes the client's credentials off a request and says who it is answered for.
pub fn authenticate_trusted(headers: &mut HeaderMap) -> Requester {
    headers.remove(header::AUTHORIZATION);
    let asserted: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with(FRONT_PROXY)).cloned().collect();
    for name in asserted {
        headers.remove(name);
    }
    let impersonated = headers.keys().any(|name| name.as_str().starts_with(IMPERSONATE));
    if impersonated { Requester::Impersonated } else { Requester::Gateway }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_dropped_and_impersonation_is_seen() {
        let mut headers = HeaderMap::new();
        for name in ["authorization", "x-remote-user", "x-remote-extra-scopes", "accept"] {
            headers.insert(HeaderName::from_static(name), "x".parse().expect("a header value"));
        }
        assert_eq!(authenticate_trusted(&mut headers), Requester::Gateway);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
        headers.insert("impersonate-user", "jane".parse().expect("a header value"));
        assert_eq!(authenticate_trusted(&mut headers), Requester::Impersonated);
    }
}
