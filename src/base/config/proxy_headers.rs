//! Names of the headers in which front proxies name the user of a request.

use http::HeaderName;

use crate::config::fields::{About, Fields, Maybe, Parsed, Refused, about};

/// Prefix of the default names.
const USUAL: &str = "x-remote-";
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

const NAME: Parsed<HeaderName> = Parsed {
    allowed: "the name of a header with no other meaning: not authorization, host, impersonate-* or a header of HTTP \
              itself",
    parse: |text| text.parse().ok().filter(|name: &HeaderName| !is_taken(name.as_str())).ok_or_else(Refused::default),
    pattern: "",
};
const PREFIX: Parsed<String> = Parsed {
    allowed: "a prefix that only the names of such headers have, like x-remote-extra-",
    parse: |text| prefix(text).ok_or_else(Refused::default),
    pattern: "",
};

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
    /// The headers that are believed from front proxies.
    pub(super) fn lists(&mut self, fields: &mut Fields<'_>) {
        fields.list(
            "usernameHeaders",
            about("header names, at least one").default("`[X-Remote-User]`"),
            &mut self.user,
            &NAME,
        );
        fields.length("usernameHeaders", 1, None);
        fields.list("uidHeaders", about("header names").default("`[X-Remote-Uid]`"), &mut self.uid, &NAME);
        fields.list("groupHeaders", about("header names").default("`[X-Remote-Group]`"), &mut self.group, &NAME);
        let text = about("prefixes of header names").default("`[X-Remote-Extra-]`");
        fields.list("extraHeaderPrefixes", text, &mut self.extra_prefixes, &PREFIX);
    }

    /// The headers that upstream reads, one of each kind.
    pub(super) fn singles(&mut self, fields: &mut Fields<'_>) {
        const IN_FLAGS: About = about("as in the API server's `--requestheader-*` flags");
        let mut name = |name, usual, names: &mut Vec<HeaderName>| {
            let mut first = names.pop();
            fields.value(name, IN_FLAGS.default(usual), &mut first, &Maybe(NAME));
            names.extend(first);
        };
        name("usernameHeader", "`X-Remote-User`", &mut self.user);
        name("uidHeader", "`X-Remote-Uid`", &mut self.uid);
        name("groupHeader", "`X-Remote-Group`", &mut self.group);
        let mut prefix = self.extra_prefixes.pop();
        let text = IN_FLAGS.default("`X-Remote-Extra-`");
        fields.value("extraHeaderPrefix", text, &mut prefix, &Maybe(PREFIX));
        self.extra_prefixes.extend(prefix);
    }

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

/// `None` if headers with another meaning begin with it.
fn prefix(text: &str) -> Option<String> {
    let prefix = text.parse::<HeaderName>().ok()?.as_str().to_owned();
    let covers = TAKEN.iter().any(|taken| taken.starts_with(&prefix)) || is_taken(&prefix);
    (prefix.len() >= PREFIX_LENGTH_MIN && !covers).then_some(prefix)
}

fn is_taken(name: &str) -> bool {
    TAKEN.iter().any(|taken| if taken.ends_with('-') { name.starts_with(taken) } else { name == *taken })
}
