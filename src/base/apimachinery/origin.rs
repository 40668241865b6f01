//! The origin of a web page, as browsers send it in `Origin` (RFC 6454, section 7).

use std::{fmt, net::IpAddr, str::FromStr};

use http::uri::Authority;

/// Scheme, host and port: two pages have the same origin if all three are equal.
///
/// Equal origins compare equal however they are written: the case is ignored, addresses are in canonical form, and the
/// default port of the scheme is left out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    scheme: Box<str>,
    /// A name, or an address without brackets.
    host: Box<str>,
    /// `None` for the default port of the scheme.
    port: Option<u16>,
}

/// The text is not a single origin: for example `null`, or several origins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a single origin")]
pub struct InvalidOrigin;

impl Origin {
    /// The format that [`Self::from_str`] accepts, for messages.
    pub const ALLOWED: &str = "SCHEME://HOST or SCHEME://HOST:PORT, without a path";

    /// The origin of pages from a server with this name.
    pub fn of_server(tls: bool, authority: &Authority) -> Option<Self> {
        Self::new(if tls { "https" } else { "http" }, authority)
    }

    fn new(scheme: &str, authority: &Authority) -> Option<Self> {
        let (host, port) = (authority.host(), authority.port_u16());
        let written = port.map_or_else(|| host.len(), |_| authority.as_str().len());
        // Refuses `user@host` and `host:`.
        if authority.as_str().contains('@') || authority.as_str().len() != written || host.is_empty() {
            return None;
        }
        let scheme = scheme.to_ascii_lowercase();
        let port = port.filter(|&port| default_port(&scheme) != Some(port));
        Some(Self { scheme: scheme.into(), host: normal_host(host).into(), port })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bracket = if self.host.contains(':') { ["[", "]"] } else { ["", ""] };
        write!(formatter, "{}://{}{}{}", self.scheme, bracket[0], self.host, bracket[1])?;
        self.port.map_or(Ok(()), |port| write!(formatter, ":{port}"))
    }
}

impl FromStr for Origin {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, authority) = text.split_once("://").ok_or(InvalidOrigin)?;
        let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        let authority = Authority::try_from(authority).map_err(|_| InvalidOrigin)?;
        if !is_scheme || !is_host(authority.host()) {
            return Err(InvalidOrigin);
        }
        Self::new(scheme, &authority).ok_or(InvalidOrigin)
    }
}

/// A host in lower case without brackets; an address in canonical form.
pub fn normal_host(host: &str) -> String {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().map_or_else(|_| host.to_ascii_lowercase(), |address| address.to_string())
}

/// Whether the host is a DNS name or an address, and not a pattern or percent-encoded.
fn is_host(host: &str) -> bool {
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match bracketed {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_')),
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_in_canonical_form() {
        for (one, other) in [
            ("http://localhost:8001", "HTTP://LOCALHOST:8001"),
            ("http://a", "http://a:80"),
            ("https://a", "https://a:443"),
            ("http://[::1]:1", "http://[0:0:0:0:0:0:0:1]:1"),
        ] {
            assert_eq!(one.parse::<Origin>().unwrap(), other.parse().unwrap(), "{one} {other}");
        }
        for (one, other) in [
            ("http://a", "https://a"),
            ("http://a:443", "https://a:443"),
            ("http://a", "http://a:81"),
            ("http://a", "http://b.a"),
            ("http://localhost", "http://127.0.0.1"),
            ("app://a", "app://a:80"),
        ] {
            assert_ne!(one.parse::<Origin>().unwrap(), other.parse().unwrap(), "{one} {other}");
        }
    }

    #[test]
    fn invalid_origins_are_refused() {
        for text in [
            "",
            "null",
            "*",
            "a",
            "//a",
            "://a",
            "http://",
            "http://a/",
            "http://a/b",
            "http://a?b",
            "http://a#b",
            "http://u@a",
            "http://a:",
            "http://a:b",
            "http://a:70000",
            "http://a b",
            "http://a http://b",
            "http://a, http://b",
            "http://*.a",
            "http://a%62",
            "1http://a",
            "ht tp://a",
            "http://[::1",
            "http://[a]",
        ] {
            assert_eq!(text.parse::<Origin>(), Err(InvalidOrigin), "{text}");
        }
        assert!("chrome-extension://abcdef".parse::<Origin>().is_ok());
    }

    #[test]
    fn a_server_has_the_origin_of_its_scheme_and_name() {
        let server = |tls, authority: &str| Origin::of_server(tls, &authority.parse().unwrap());
        assert_eq!(server(false, "localhost:8001"), Some("http://localhost:8001".parse().unwrap()));
        assert_eq!(server(true, "localhost:443"), Some("https://localhost".parse().unwrap()));
        assert_eq!(server(false, "LOCALHOST"), Some("http://localhost:80".parse().unwrap()));
        assert_eq!(server(false, "u@localhost"), None);
    }
}
