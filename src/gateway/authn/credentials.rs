//! The credentials that a request carries.
//!
//! Invariant: the `Debug` form of these types never contains a token.

use std::{fmt, ops::Range, str, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue, header};

use base::apimachinery::{UserInfo, shows_token_protocol};
use base::fairness::ClientKey;

/// The credentials of a request, removed from its headers, and how far they have been verified.
///
/// `impersonates` is set if the request has an `Impersonate-*` header. Only upstream can decide whether that is
/// allowed, so such a request is never answered from memory (read-path 8.4).
#[derive(Clone, Debug)]
pub enum Credentials {
    /// The request uses the gateway's own credentials (`trusted` mode).
    Gateway { impersonates: bool },
    /// The gateway verified the user by a client certificate or a front proxy, and has to tell upstream who it is.
    Verified { user: Arc<UserInfo>, impersonates: bool },
    /// A bearer token, which is forwarded unchanged for upstream to verify.
    Bearer { token: BearerToken, impersonates: bool },
    /// No user: there is no `Authorization` header, or one that the API server ignores. It is forwarded unchanged.
    Passed { authorization: Option<HeaderValue>, impersonates: bool },
    /// No `Authorization`, but a token in a subprotocol of a WebSocket. It stays in the request's headers, for upstream
    /// to verify.
    Subprotocol { impersonates: bool },
    /// A client certificate that no authority vouches for and no bearer token, or a front proxy's header that cannot be
    /// read. As at the API server the answer is 401; the request is not treated as anonymous.
    Refused,
}

impl Credentials {
    /// Whether the request asks to impersonate another user.
    pub fn impersonates(&self) -> bool {
        match self {
            Self::Gateway { impersonates }
            | Self::Verified { impersonates, .. }
            | Self::Bearer { impersonates, .. }
            | Self::Passed { impersonates, .. }
            | Self::Subprotocol { impersonates } => *impersonates,
            // Upstream answers 401, so the headers have no effect.
            Self::Refused => false,
        }
    }

    /// Those of a client that proves no user by its connection; `headers` are without its `authorization`.
    pub(super) fn of_headers(authorization: Option<HeaderValue>, headers: &HeaderMap, impersonates: bool) -> Self {
        if authorization.is_none() && shows_token_protocol(headers) {
            return Self::Subprotocol { impersonates };
        }
        Self::of_authorization(authorization, impersonates)
    }

    /// Classifies an `Authorization` header as the API server does (read-path 8.1).
    pub(crate) fn of_authorization(authorization: Option<HeaderValue>, impersonates: bool) -> Self {
        match authorization.map(BearerToken::of_authorization) {
            Some(Ok(token)) => Self::Bearer { token, impersonates },
            Some(Err(other)) => Self::Passed { authorization: Some(other), impersonates },
            None => Self::Passed { authorization: None, impersonates },
        }
    }
}

/// An `Authorization` header with a bearer token.
#[derive(Clone)]
pub struct BearerToken {
    /// Marked as sensitive.
    authorization: HeaderValue,
    /// Position of the token in it. `None` if it contains bytes that a TokenReview cannot carry.
    token: Option<Range<usize>>,
}

impl BearerToken {
    /// The header value as received, for upstream.
    pub fn authorization(&self) -> &HeaderValue {
        &self.authorization
    }

    /// Finds the token in a header value, or returns the value. A value that is not ASCII is taken for a token, since
    /// another server might read one in it.
    fn of_authorization(authorization: HeaderValue) -> Result<Self, HeaderValue> {
        let bytes = authorization.as_bytes();
        match find_token(bytes) {
            _ if !bytes.is_ascii() => Ok(Self { authorization, token: None }),
            Some(token) => Ok(Self { authorization, token: Some(token) }),
            None => Err(authorization),
        }
    }

    /// A key for the token, independent of how the header around it is written.
    pub fn key(&self) -> ClientKey {
        ClientKey::of(&self.token().unwrap_or_else(|| self.authorization.as_bytes()))
    }

    /// The token alone. `None` if it contains bytes that a TokenReview cannot carry.
    pub(super) fn token(&self) -> Option<&[u8]> {
        self.authorization.as_bytes().get(self.token.clone()?)
    }

    /// The token as text, for a TokenReview.
    pub(super) fn text(&self) -> Option<&str> {
        str::from_utf8(self.token()?).ok()
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BearerToken").finish_non_exhaustive()
    }
}

/// The position of the second word, split at single spaces, if the first is `Bearer` and the second is not empty.
fn find_token(authorization: &[u8]) -> Option<Range<usize>> {
    let before = authorization.len() - authorization.trim_ascii_start().len();
    let words = authorization.trim_ascii();
    let (scheme, words) = words.split_at_checked(SCHEME.len())?;
    let length = memchr::memchr(b' ', words).unwrap_or(words.len());
    let start = before + SCHEME.len();
    (scheme.eq_ignore_ascii_case(SCHEME) && length > 0).then_some(start..start + length)
}

const SCHEME: &[u8] = b"bearer ";

/// Removes the `Authorization` headers. The first of several counts, as for the API server; upstream does not get the
/// others.
pub(super) fn take_authorization(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let mut authorization = headers.remove(header::AUTHORIZATION)?;
    authorization.set_sensitive(true);
    Some(authorization)
}

/// Whether a request asks to impersonate another user.
pub(super) fn impersonates(headers: &HeaderMap) -> bool {
    headers.keys().map(HeaderName::as_str).any(|name| name.starts_with("impersonate-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How an `Authorization` header is classified.
    fn sorted(authorization: &[u8]) -> Credentials {
        let mut headers = HeaderMap::new();
        headers.append(header::AUTHORIZATION, HeaderValue::from_bytes(authorization).unwrap());
        headers.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer second"));
        let credentials = Credentials::of_authorization(take_authorization(&mut headers), false);
        assert!(headers.is_empty());
        credentials
    }

    #[test]
    fn a_bearer_token_is_the_second_word() {
        for (authorization, expected) in [
            ("Bearer abc", "abc"),
            ("bearer abc", "abc"),
            ("BEARER abc def", "abc"),
            (" Bearer abc ", "abc"),
            ("\t Bearer abc\t", "abc"),
            ("Bearer abc  ", "abc"),
            ("Bearer a\tb c", "a\tb"),
            ("Bearer Bearer", "Bearer"),
        ] {
            let Credentials::Bearer { token, .. } = sorted(authorization.as_bytes()) else {
                panic!("{authorization:?}")
            };
            assert_eq!(token.text(), Some(expected), "{authorization:?}");
            assert_eq!(token.authorization(), authorization);
        }
    }

    #[test]
    fn other_authorization_is_passed_on() {
        for authorization in [
            "",
            "Bearer",
            "Bearer ",
            " Bearer  ",
            "Bearer  abc",
            "Bearer\tabc",
            "Basic dTpw",
            "Token abc",
            "Bearerabc x",
            "abc Bearer",
        ] {
            let Credentials::Passed { authorization: Some(passed), .. } = sorted(authorization.as_bytes()) else {
                panic!("{authorization:?}")
            };
            assert_eq!(passed, authorization);
        }
        assert!(matches!(
            Credentials::of_authorization(None, true),
            Credentials::Passed { authorization: None, impersonates: true }
        ));
    }

    #[test]
    fn authorization_that_is_not_ascii_is_left_to_upstream() {
        for authorization in [&b"Bearer \xff"[..], b"\xc2\xa0Bearer abc", b"Basic \xff"] {
            let Credentials::Bearer { token, .. } = sorted(authorization) else { panic!("{authorization:?}") };
            assert_eq!(token.token(), None);
        }
    }

    #[test]
    fn no_secret_is_in_their_debug_form() {
        for authorization in ["Bearer s3cret", "Basic s3cret", "Bearer x s3cret"] {
            let text = format!("{:?}", sorted(authorization.as_bytes()));
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn every_header_of_impersonation_counts() {
        for name in ["impersonate-user", "impersonate-uid", "impersonate-group", "impersonate-extra-scopes"] {
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(""))]);
            assert!(impersonates(&headers), "{name}");
        }
        assert!(!impersonates(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("impersonate-user"))])));
    }
}
