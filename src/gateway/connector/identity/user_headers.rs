//! Expresses a user as headers from which upstream reads exactly that user. Pure.
//!
//! Upstream trims spaces and tabs around a value, and ignores an empty value: a value that would not arrive unchanged
//! is refused. Names are percent-encoded where an API server decodes them. Values may hold non-ASCII bytes: API servers
//! send and read them unchanged.

use std::{borrow::Cow, fmt::Write};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{IdentityError, UserPart};
use base::{apimachinery::UserInfo, config::ProxyHeaders};

type Headers = Vec<(HeaderName, HeaderValue)>;

/// Header names of one way to express a user.
#[derive(Clone, Debug)]
pub(super) struct Names {
    user: HeaderName,
    uid: HeaderName,
    group: HeaderName,
    extra_prefix: Cow<'static, str>,
}

static IMPERSONATION: Names = Names {
    user: HeaderName::from_static("impersonate-user"),
    uid: HeaderName::from_static("impersonate-uid"),
    group: HeaderName::from_static("impersonate-group"),
    extra_prefix: Cow::Borrowed("impersonate-extra-"),
};

impl Names {
    /// The names that upstream reads from a front proxy: the first of each kind, or else the default.
    pub(super) fn of(headers: &ProxyHeaders) -> Self {
        let first = |names: &[HeaderName], usual| names.first().cloned().unwrap_or(HeaderName::from_static(usual));
        let extra_prefix = headers.extra_prefixes.first().map_or("x-remote-extra-", String::as_str);
        Self {
            user: first(&headers.user, "x-remote-user"),
            uid: first(&headers.uid, "x-remote-uid"),
            group: first(&headers.group, "x-remote-group"),
            extra_prefix: Cow::Owned(extra_prefix.to_owned()),
        }
    }
}

pub(super) const ANONYMOUS: &str = "system:anonymous";
/// Upstream adds this group to every user except the anonymous one, unless the user has it or `system:unauthenticated`.
const AUTHENTICATED: &str = "system:authenticated";
/// Names of users for which an impersonating API server looks up groups if none is given (read-path 8.4).
const WITH_GROUPS_BY_NAME: [&str; 2] = ["system:serviceaccount:", "system:node:"];
/// Extra key for the certificate that a client showed to the gateway. Its value differs for each certificate, so that
/// no rule could allow impersonating it.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The user in the headers of a front proxy. `system:authenticated` is sent with the other groups: upstream adds it
/// only where it is missing.
pub(super) fn front_proxy(user: &UserInfo, names: &Names) -> Result<Headers, IdentityError> {
    let mut headers = named(user, names)?;
    add_groups(&mut headers, names, user.groups.iter().map(String::as_str))?;
    add_extra(&mut headers, names, user, |_| true)?;
    Ok(headers)
}

/// The user in the headers of impersonation. `system:authenticated` is left to upstream, which adds it, so that the
/// gateway needs no permission to impersonate it; but it is sent where upstream would otherwise look up the groups
/// itself.
pub(super) fn impersonation(user: &UserInfo) -> Result<Headers, IdentityError> {
    if user.name == ANONYMOUS {
        return Err(IdentityError::Anonymous);
    }
    let mut headers = named(user, &IMPERSONATION)?;
    let others = || user.groups.iter().map(String::as_str).filter(|group| *group != AUTHENTICATED);
    let finds_groups = WITH_GROUPS_BY_NAME.iter().any(|prefix| user.name.starts_with(prefix));
    if finds_groups && others().all(str::is_empty) {
        add_groups(&mut headers, &IMPERSONATION, [AUTHENTICATED].into_iter())?;
    } else {
        add_groups(&mut headers, &IMPERSONATION, others())?;
    }
    add_extra(&mut headers, &IMPERSONATION, user, |key| key != CREDENTIAL_ID)?;
    Ok(headers)
}

/// Adds a user's headers; `headers` has none of these names yet.
pub(super) fn add(headers: &mut HeaderMap, user: Headers) -> Result<(), IdentityError> {
    for (name, value) in user {
        headers.try_append(name, value).map_err(|_| IdentityError::TooMuch)?;
    }
    Ok(())
}

fn named(user: &UserInfo, names: &Names) -> Result<Headers, IdentityError> {
    if user.name.is_empty() {
        return Err(IdentityError::Nameless);
    }
    let mut headers = vec![(names.user.clone(), value(&user.name, UserPart::Name)?)];
    if !user.uid.is_empty() {
        headers.push((names.uid.clone(), value(&user.uid, UserPart::Uid)?));
    }
    Ok(headers)
}

/// A header for each group. Empty names are left out, as an API server ignores them.
fn add_groups<'a>(
    headers: &mut Headers,
    names: &Names,
    groups: impl Iterator<Item = &'a str>,
) -> Result<(), IdentityError> {
    for group in groups.filter(|group| !group.is_empty()) {
        headers.push((names.group.clone(), value(group, UserPart::Group)?));
    }
    Ok(())
}

fn add_extra(
    headers: &mut Headers,
    names: &Names,
    user: &UserInfo,
    passes: impl Fn(&str) -> bool,
) -> Result<(), IdentityError> {
    for (key, values) in user.extra.iter().filter(|(key, _)| passes(key)) {
        let name = format!("{}{}", names.extra_prefix, escaped(key));
        let name = HeaderName::try_from(name).map_err(|_| IdentityError::Unsendable(UserPart::ExtraKey))?;
        for extra in values {
            headers.push((name.clone(), value(extra, UserPart::ExtraValue)?));
        }
    }
    Ok(())
}

fn value(text: &str, part: UserPart) -> Result<HeaderValue, IdentityError> {
    if text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']) {
        return Err(IdentityError::Unsendable(part));
    }
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| IdentityError::Unsendable(part))
}

/// A key as part of a header's name. Bytes that a name cannot hold are percent-encoded; so are capitals, since an API
/// server lowercases the name before it decodes it.
fn escaped(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    for byte in key.bytes() {
        if matches!(byte, b'a'..=b'z' | b'0'..=b'9') || b"!#$&'*+-.^_`|~".contains(&byte) {
            name.push(char::from(byte));
        } else {
            write!(name, "%{byte:02x}").expect("a string takes whatever is written");
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front_proxy(user: &UserInfo) -> Result<Headers, IdentityError> {
        super::front_proxy(user, &Names::of(&ProxyHeaders::default()))
    }

    fn user(name: &str, groups: &[&str]) -> UserInfo {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        UserInfo { name: name.to_owned(), groups, ..UserInfo::default() }
    }

    fn with_extra(key: &str, value: &str) -> UserInfo {
        let mut user = user("jane", &[]);
        user.extra.insert(key.to_owned(), vec![value.to_owned()]);
        user
    }

    fn lines(headers: Result<Headers, IdentityError>) -> Vec<String> {
        let headers = headers.unwrap();
        headers.iter().map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))).collect()
    }

    #[test]
    fn a_front_proxy_sends_every_group() {
        let asserted = lines(front_proxy(&user("jane", &["b", "", "system:authenticated", "a"])));
        let groups = ["b", "system:authenticated", "a"].map(|group| format!("x-remote-group: {group}"));
        assert_eq!(asserted, [&["x-remote-user: jane".to_owned()], &groups[..]].concat());
        assert_eq!(lines(front_proxy(&user("system:anonymous", &[]))), ["x-remote-user: system:anonymous"]);
    }

    #[test]
    fn upstream_adds_the_group_of_an_impersonated_user() {
        let groups = |name: &str, groups: &[&str]| lines(impersonation(&user(name, groups)))[1..].join(" ");
        assert_eq!(groups("jane", &["a", "system:authenticated"]), "impersonate-group: a");
        assert_eq!(groups("jane", &["system:authenticated"]), "");
        assert_eq!(groups("jane", &["system:unauthenticated"]), "impersonate-group: system:unauthenticated");
    }

    #[test]
    fn impersonation_by_name_adds_no_implied_groups() {
        for name in ["system:serviceaccount:n:default", "system:node:n"] {
            for groups in [&["system:authenticated"][..], &["", "system:authenticated"], &[]] {
                let impersonated = lines(impersonation(&user(name, groups)));
                assert_eq!(impersonated[1..], ["impersonate-group: system:authenticated"], "{name} {groups:?}");
            }
            let impersonated = lines(impersonation(&user(name, &["a", "system:authenticated"])));
            assert_eq!(impersonated[1..], ["impersonate-group: a"], "{name}");
        }
        assert_eq!(impersonation(&user("system:anonymous", &["a"])).unwrap_err(), IdentityError::Anonymous);
    }

    #[test]
    fn users_that_headers_cannot_carry_exactly_are_refused() {
        for told in [front_proxy, impersonation] {
            assert_eq!(told(&user("", &["a"])).unwrap_err(), IdentityError::Nameless);
            for text in [" jane", "jane ", "\tjane", "ja\nne", "ja\rne", "ja\0ne", "jane\x7f", " "] {
                let unsendable = |part| Err(IdentityError::Unsendable(part));
                assert_eq!(told(&user(text, &[])).map(drop), unsendable(UserPart::Name), "{text:?}");
                assert_eq!(told(&user("jane", &[text])).map(drop), unsendable(UserPart::Group), "{text:?}");
                let uid = UserInfo { uid: text.to_owned(), ..user("jane", &[]) };
                assert_eq!(told(&uid).map(drop), unsendable(UserPart::Uid), "{text:?}");
                assert_eq!(told(&with_extra("k", text)).map(drop), unsendable(UserPart::ExtraValue), "{text:?}");
            }
            assert!(told(&user("j\u{e4}ne d\toe", &["\u{1f512}"])).is_ok());
        }
    }

    #[test]
    fn keys_of_extra_fields_are_percent_encoded() {
        for (key, expected) in [
            ("scopes", "scopes"),
            ("", ""),
            ("a/b c:%", "a%2fb%20c%3a%25"),
            ("Capital", "%43apital"),
            ("\u{e4}\n", "%c3%a4%0a"),
            ("!#$&'*+-.^_`|~09", "!#$&'*+-.^_`|~09"),
        ] {
            let asserted = lines(front_proxy(&with_extra(key, "v")));
            assert_eq!(asserted[1], format!("x-remote-extra-{expected}: v"));
            let decoded = percent_encoding::percent_decode_str(expected).decode_utf8().unwrap();
            assert_eq!(decoded, key);
        }
        let long = front_proxy(&with_extra(&"k".repeat(1 << 16), "v"));
        assert_eq!(long.map(drop), Err(IdentityError::Unsendable(UserPart::ExtraKey)));
    }

    #[test]
    fn more_than_a_request_can_carry_is_refused() {
        let extra = (0..100_000).map(|key| (key.to_string(), vec![String::new()])).collect();
        let user = UserInfo { extra, ..user("jane", &[]) };
        assert_eq!(add(&mut HeaderMap::new(), front_proxy(&user).unwrap()), Err(IdentityError::TooMuch));
    }
}
