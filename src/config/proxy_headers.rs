//! Names of the headers in which front proxies say for which user they ask.

use http::HeaderName;

/// What the usual names begin with.
const USUAL: &str = "x-remote-";

/// Names of one front proxy's headers, or all that are looked at where several are used. Of each kind at least one, but for uids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyHeaders {
    /// The first with a value counts.
    pub user: Vec<HeaderName>,
    /// As for the user.
    pub uid: Vec<HeaderName>,
    /// All values of all of them count.
    pub group: Vec<HeaderName>,
    /// In lower case. What follows one in a header's name is the key of an extra value.
    pub extra_prefixes: Vec<String>,
}

impl ProxyHeaders {
    /// Whether a header says, here or anywhere else by the usual names, for which user a front proxy asks.
    pub fn has(&self, name: &HeaderName) -> bool {
        let is_named = || [&self.user, &self.uid, &self.group].into_iter().any(|names| names.contains(name));
        let is_extra = || self.extra_prefixes.iter().any(|prefix| name.as_str().starts_with(prefix));
        name.as_str().starts_with(USUAL) || is_named() || is_extra()
    }
}

impl Default for ProxyHeaders {
    /// The usual names.
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
