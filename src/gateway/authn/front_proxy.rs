//! Users that a front proxy asserts by headers (read-path 8.1).
//!
//! Invariant: these headers are removed from every request before any other code reads it, for every sender.

use std::str;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use base::{apimachinery::UserInfo, config::ProxyHeaders};

/// Headers that assert a user, in their order; empty if there are none. Only those sent by a front proxy are trusted.
#[derive(Clone, Debug, Default)]
pub(super) struct Asserted(Vec<(HeaderName, HeaderValue)>);

/// An asserted value is not UTF-8, so that a review could not carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a header of the front proxy is not UTF-8")]
pub(super) struct Unreadable;

impl Asserted {
    /// Removes the asserting headers from a request: those of `names`, and all `X-Remote-*`.
    pub(super) fn take(headers: &mut HeaderMap, names: &[ProxyHeaders]) -> Self {
        let is_asserted = |name: &&HeaderName| names.iter().any(|names| names.has(name));
        let found: Vec<_> = headers.keys().filter(is_asserted).cloned().collect();
        let mut taken = Vec::new();
        for name in found {
            taken.extend(headers.get_all(&name).iter().map(|value| (name.clone(), value.clone())));
            headers.remove(name);
        }
        Self(taken)
    }

    /// The user asserted in the headers `names`, with no group added. `None` without a user name: the proxy then acts
    /// as itself.
    pub(super) fn user(&self, names: &ProxyHeaders) -> Result<Option<UserInfo>, Unreadable> {
        let name = self.first(&names.user)?;
        if name.is_empty() {
            return Ok(None);
        }
        let mut user =
            UserInfo { name: name.to_owned(), uid: self.first(&names.uid)?.to_owned(), ..UserInfo::default() };
        for name in &names.group {
            for value in self.values(name) {
                let value = text(value.as_bytes())?;
                if !value.is_empty() {
                    user.groups.push(value.to_owned());
                }
            }
        }
        for (name, value) in &self.0 {
            for key in names.extra_prefixes.iter().filter_map(|prefix| name.as_str().strip_prefix(prefix.as_str())) {
                let value = text(value.as_bytes())?;
                user.extra.entry(extra_key(key)?).or_default().push(value.to_owned());
            }
        }
        Ok(Some(user))
    }

    /// The first value of the first of these headers whose first value is not empty; empty if there is none.
    fn first(&self, names: &[HeaderName]) -> Result<&str, Unreadable> {
        for name in names {
            let value = self.values(name).next().map_or(Ok(""), |value| text(value.as_bytes()))?;
            if !value.is_empty() {
                return Ok(value);
            }
        }
        Ok("")
    }

    fn values<'a>(&'a self, name: &HeaderName) -> impl Iterator<Item = &'a HeaderValue> {
        self.0.iter().filter(move |(other, _)| other == name).map(|(_, value)| value)
    }
}

/// Decodes the key of an extra value. Header names are lower-cased, escapes included, but `%41` still decodes to `A`. A
/// key with an invalid escape is used as it is written.
fn extra_key(escaped: &str) -> Result<String, Unreadable> {
    let is_escaped =
        |rest: &str| rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    if !escaped.split('%').skip(1).all(is_escaped) {
        return Ok(escaped.to_owned());
    }
    percent_decode_str(escaped).decode_utf8().map(Into::into).map_err(|_| Unreadable)
}

fn text(bytes: &[u8]) -> Result<&str, Unreadable> {
    str::from_utf8(bytes).map_err(|_| Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    fn user(lines: &[(&'static str, &[u8])]) -> Result<Option<UserInfo>, Unreadable> {
        Asserted::take(&mut headers(lines), &[ProxyHeaders::default()]).user(&ProxyHeaders::default())
    }

    #[test]
    fn a_user_is_read_from_its_headers() {
        let user = user(&[
            ("x-remote-group", b"devs"),
            ("x-remote-user", b"jane"),
            ("x-remote-extra-scopes", b"read"),
            ("x-remote-group", b""),
            ("x-remote-group", b"ops, sre"),
            ("x-remote-uid", b"u-1"),
            ("x-remote-extra-scopes", b"write"),
            ("x-remote-extra-example.org%2fteam", "caf\u{e9}".as_bytes()),
            ("x-remote-extra-%41b", b""),
            ("x-remote-extra-50%", b"odd"),
        ]);
        let extra = [
            ("50%", vec!["odd"]),
            ("Ab", vec![""]),
            ("example.org/team", vec!["caf\u{e9}"]),
            ("scopes", vec!["read", "write"]),
        ];
        let expected = UserInfo {
            name: "jane".into(),
            uid: "u-1".into(),
            groups: vec!["devs".into(), "ops, sre".into()],
            extra: extra.map(|(key, values)| (key.into(), values.into_iter().map(Into::into).collect())).into(),
        };
        assert_eq!(user, Ok(Some(expected)));
    }

    #[test]
    fn configured_header_names_are_read_and_all_identity_headers_removed() {
        let name = |name| HeaderName::from_static(name);
        let names = ProxyHeaders {
            user: vec![name("x-first"), name("x-second")],
            uid: Vec::new(),
            group: vec![name("x-team"), name("x-group")],
            extra_prefixes: vec!["x-more-".to_owned()],
        };
        let mut headers = headers(&[
            ("accept", b"*/*"),
            ("x-group", b"b"),
            ("x-first", b""),
            ("x-second", b"jane"),
            ("x-remote-user", b"admin"),
            ("x-remote-group", b"system:masters"),
            ("x-remote-uid", b"0"),
            ("x-team", b"a"),
            ("x-more-scope", b"s"),
        ]);
        let asserted = Asserted::take(&mut headers, std::slice::from_ref(&names));
        assert_eq!(headers.keys().collect::<Vec<_>>(), ["accept"]);
        let expected = UserInfo {
            name: "jane".into(),
            uid: String::new(),
            groups: vec!["a".into(), "b".into()],
            extra: [("scope".to_owned(), vec!["s".to_owned()])].into(),
        };
        assert_eq!(asserted.user(&names), Ok(Some(expected)));
    }

    #[test]
    fn without_a_name_no_user_is_asserted() {
        assert_eq!(user(&[("x-remote-group", b"system:masters")]), Ok(None));
        assert_eq!(user(&[("x-remote-user", b""), ("x-remote-user", b"jane")]), Ok(None));
        assert_eq!(user(&[("x-remote-user-name", b"jane")]), Ok(None));
    }

    #[test]
    fn values_that_are_not_utf8_are_an_error() {
        assert_eq!(user(&[("x-remote-user", b"j\xff")]), Err(Unreadable));
        assert_eq!(user(&[("x-remote-user", b"jane"), ("x-remote-group", b"\xff")]), Err(Unreadable));
        assert_eq!(user(&[("x-remote-user", b"jane"), ("x-remote-extra-%ff", b"x")]), Err(Unreadable));
    }

    proptest! {
        /// Also unknown headers with the usual prefix.
        #[test]
        fn every_header_with_an_identity_prefix_is_removed(
            names in proptest::collection::vec("(x-remote-|x-remote|accept-|remote-)[a-z%0-9-]{0,9}[a-z]", 0..9),
        ) {
            let mut headers = HeaderMap::new();
            for name in &names {
                headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_static("x"));
            }
            let others = names.iter().filter(|name| !name.starts_with("x-remote-")).count();
            let taken = Asserted::take(&mut headers, &[ProxyHeaders::default()]);
            prop_assert_eq!(headers.len(), others);
            prop_assert_eq!(taken.0.len(), names.len() - others);
        }
    }
}
