//! What a request brings to show who it is from.
//!
//! Invariant: a token is in no text that is made from these types.

use std::{fmt, ops::Range, str, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::apimachinery::UserInfo;
use crate::fairness::ClientKey;

/// Who a request says that it is from, and how far that is known. Taken off its headers.
///
/// `impersonates` says that it has an `Impersonate-*` header: upstream decides whether that may be, so that memory never
/// answers it (read-path 8.4).
#[derive(Clone, Debug)]
pub enum Credentials {
    /// Acts with the gateway's own credentials (`trusted` mode).
    Gateway { impersonates: bool },
    /// Verified here, by a client certificate or by a front proxy: upstream has to be told.
    Verified { user: Arc<UserInfo>, impersonates: bool },
    /// Upstream knows whose it is, and gets it unchanged.
    Bearer { token: BearerToken, impersonates: bool },
    /// Names no user: no `Authorization` header, or one of no effect, which upstream gets as it came.
    Passed { authorization: Option<HeaderValue>, impersonates: bool },
    /// A client certificate that nobody vouches for, and nothing else. The API server answers these with 401, and not as
    /// if they had shown nothing.
    Refused,
}

impl Credentials {
    /// Whether the request is to act as somebody else than whom these are of.
    pub fn impersonates(&self) -> bool {
        match self {
            Self::Gateway { impersonates }
            | Self::Verified { impersonates, .. }
            | Self::Bearer { impersonates, .. }
            | Self::Passed { impersonates, .. } => *impersonates,
            // Of no effect for somebody who is nobody.
            Self::Refused => false,
        }
    }

    /// Sorts what stood in `Authorization`, as the API server does (read-path 8.1).
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
    /// Where in it the token is. `None` if it has letters that a review cannot ask about.
    token: Option<Range<usize>>,
}

impl BearerToken {
    /// The header as it came, for upstream.
    pub fn authorization(&self) -> &HeaderValue {
        &self.authorization
    }

    /// Finds the token in a header, or gives the header back. What is not plain text might be one to others.
    fn of_authorization(authorization: HeaderValue) -> Result<Self, HeaderValue> {
        let bytes = authorization.as_bytes();
        match find_token(bytes) {
            _ if !bytes.is_ascii() => Ok(Self { authorization, token: None }),
            Some(token) => Ok(Self { authorization, token: Some(token) }),
            None => Err(authorization),
        }
    }

    /// What stands for the token, however the header around it is written.
    pub fn key(&self) -> ClientKey {
        ClientKey::of(&self.token().unwrap_or_else(|| self.authorization.as_bytes()))
    }

    /// The token alone. None if it has letters that a review cannot ask about.
    pub(super) fn token(&self) -> Option<&[u8]> {
        self.authorization.as_bytes().get(self.token.clone()?)
    }

    /// The same, to ask about it.
    pub(super) fn text(&self) -> Option<&str> {
        str::from_utf8(self.token()?).ok()
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BearerToken").finish_non_exhaustive()
    }
}

/// Where the second of the words between single spaces is, if the first is `Bearer`. It may not be empty.
fn find_token(authorization: &[u8]) -> Option<Range<usize>> {
    let before = authorization.len() - authorization.trim_ascii_start().len();
    let words = authorization.trim_ascii();
    let (scheme, words) = words.split_at_checked(SCHEME.len())?;
    let length = memchr::memchr(b' ', words).unwrap_or(words.len());
    let start = before + SCHEME.len();
    (scheme.eq_ignore_ascii_case(SCHEME) && length > 0).then_some(start..start + length)
}

const SCHEME: &[u8] = b"bearer ";

/// Takes the `Authorization` header off. Of several the first counts, as for the API server; upstream gets no other.
pub(super) fn take_authorization(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let mut authorization = headers.remove(header::AUTHORIZATION)?;
    authorization.set_sensitive(true);
    Some(authorization)
}

/// Whether a request asks to act as somebody else.
pub(super) fn impersonates(headers: &HeaderMap) -> bool {
    headers.keys().map(HeaderName::as_str).any(|name| name.starts_with("impersonate-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of an `Authorization` header.
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
    fn what_is_no_bearer_token_names_nobody() {
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
    fn what_is_not_text_is_for_upstream_to_read() {
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
