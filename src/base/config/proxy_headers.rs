//! Names of the headers in which front proxies name the user of a request.

use http::HeaderName;

/// Prefix of the default names.
const USUAL: &str = "x-remote-";

/// Names of one front proxy's headers, or of all headers that are read where there are several proxies. There is at
/// least one name of each kind, except for uids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyHeaders {
    /// The first header with a value is used.
    pub user: Vec<HeaderName>,
    /// The first header with a value is used, as for the user.
    pub uid: Vec<HeaderName>,
    /// All values of all these headers are used.
    pub group: Vec<HeaderName>,
    /// In lower case. The rest of a header's name after the prefix is the key of an extra value.
    pub extra_prefixes: Vec<String>,
}

impl ProxyHeaders {
    /// Whether a header names a front proxy's user, by these names or by the default ones.
    pub fn has(&self, name: &HeaderName) -> bool {
        let is_named = || [&self.user, &self.uid, &self.group].into_iter().any(|names| names.contains(name));
        let is_extra = || self.extra_prefixes.iter().any(|prefix| name.as_str().starts_with(prefix));
        name.as_str().starts_with(USUAL) || is_named() || is_extra()
    }
}

impl Default for ProxyHeaders {
    /// The default names.
    fn default() -> Self {
        let name = |name| vec![HeaderName::from_static(name)];
        Self {
            user: name("x-remote-user"),
            uid: name("x-remote-uid"),
            group: name("x-remote-group"),
            extra_prefixes: vec!["x-remote-extra-".to_owned()],
        }
    }
}
