//! Names of front proxies' headers, both those that the gateway reads and those that it sends to upstream.

use http::HeaderName;

use crate::config::check::{Check, given};
use crate::config::raw::{self, Scalar};
use crate::config::{FrontProxyConfig, ProxyHeaders, TlsFiles};

const ALLOWED: &str =
    "the name of a header with no other meaning: not authorization, host, impersonate-* or a header of HTTP itself";
const ALLOWED_PREFIX: &str = "a prefix that only the names of such headers have, like x-remote-extra-";
/// Shorter prefixes would match headers that have nothing to do with users.
const PREFIX_LENGTH_MIN: usize = 4;
/// Prefixes of headers that requests need for other purposes.
const TAKEN: [&str; 12] = [
    "accept",
    "authorization",
    "connection",
    "content-",
    "cookie",
    "host",
    "impersonate-",
    "sec-websocket-",
    "te",
    "transfer-encoding",
    "upgrade",
    "x-stream-protocol-version",
];

impl Check {
    /// The headers that are believed from front proxies.
    pub(super) fn proxy_headers(&mut self, field: &str, raw: &raw::RequestHeader) -> ProxyHeaders {
        let usual = ProxyHeaders::default();
        let mut names = |name: &str, raw: &Option<Vec<Scalar>>, usual| match raw {
            None => usual,
            Some(raw) => self.header_names(&format!("{field}.{name}"), raw),
        };
        let user = names("usernameHeaders", &raw.username_headers, usual.user);
        let uid = names("uidHeaders", &raw.uid_headers, usual.uid);
        let group = names("groupHeaders", &raw.group_headers, usual.group);
        let extra_prefixes = match &raw.extra_header_prefixes {
            None => usual.extra_prefixes,
            Some(raw) => {
                let prefix = |(index, raw): (usize, &Scalar)| {
                    self.header_prefix(&format!("{field}.extraHeaderPrefixes[{index}]"), raw)
                };
                raw.iter().enumerate().filter_map(prefix).collect()
            }
        };
        if user.is_empty() {
            self.problem(
                &format!("{field}.usernameHeaders"),
                "empty",
                "at least one name; without the field, X-Remote-User",
            );
        }
        ProxyHeaders { user, uid, group, extra_prefixes }
    }

    /// The gateway's own certificate as a front proxy, and the headers that upstream reads from it.
    pub(super) fn front_proxy(&mut self, field: &str, raw: &raw::FrontProxy) -> FrontProxyConfig {
        let fields = ["certFile", "keyFile", "usernameHeader", "uidHeader", "groupHeader", "extraHeaderPrefix"];
        self.unknown(field, &raw.unknown, &fields);
        let files = TlsFiles {
            cert_file: self.path(&format!("{field}.certFile"), raw.cert_file.as_ref()),
            key_file: self.path(&format!("{field}.keyFile"), raw.key_file.as_ref()),
        };
        let usual = ProxyHeaders::default();
        let mut name = |name: &str, raw: &Option<Scalar>, usual| match raw {
            None => usual,
            Some(raw) => self.header_name(&format!("{field}.{name}"), raw).into_iter().collect(),
        };
        let user = name("usernameHeader", &raw.username_header, usual.user);
        let uid = name("uidHeader", &raw.uid_header, usual.uid);
        let group = name("groupHeader", &raw.group_header, usual.group);
        let extra_prefixes = match &raw.extra_header_prefix {
            None => usual.extra_prefixes,
            Some(raw) => self.header_prefix(&format!("{field}.extraHeaderPrefix"), raw).into_iter().collect(),
        };
        FrontProxyConfig { files, headers: ProxyHeaders { user, uid, group, extra_prefixes } }
    }

    fn header_names(&mut self, field: &str, raw: &[Scalar]) -> Vec<HeaderName> {
        let name = |(index, raw)| self.header_name(&format!("{field}[{index}]"), raw);
        raw.iter().enumerate().filter_map(name).collect()
    }

    fn header_name(&mut self, field: &str, Scalar(text): &Scalar) -> Option<HeaderName> {
        let name = text.parse().ok().filter(|name: &HeaderName| !is_taken(name.as_str()));
        if name.is_none() {
            self.problem(field, &given(text), ALLOWED);
        }
        name
    }

    fn header_prefix(&mut self, field: &str, Scalar(text): &Scalar) -> Option<String> {
        let prefix = text.parse().ok().map(|name: HeaderName| name.as_str().to_owned());
        let covers = |prefix: &str| TAKEN.iter().any(|taken| taken.starts_with(prefix)) || is_taken(prefix);
        let prefix = prefix.filter(|prefix| prefix.len() >= PREFIX_LENGTH_MIN && !covers(prefix));
        if prefix.is_none() {
            self.problem(field, &given(text), ALLOWED_PREFIX);
        }
        prefix
    }
}

fn is_taken(name: &str) -> bool {
    TAKEN.iter().any(|taken| if taken.ends_with('-') { name.starts_with(taken) } else { name == *taken })
}
