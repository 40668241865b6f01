//! URL paths.

use http::Method;

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group(String),
    /// `/api/v1`, `/apis/GROUP/VERSION`
    GroupVersion {
        group: String,
        version: String,
    },
    Resource(Target),
    /// `/version`
    Version,
    /// `/healthz`, `/livez`, `/readyz` and the paths below them.
    Health,
    /// `/openapi/v3`
    OpenApi,
    /// `/openapi/v3/api/v1`, `/openapi/v3/apis/GROUP/VERSION`
    OpenApiOf {
        group: String,
        version: String,
    },
    Unknown,
}

/// A collection, an object in it, or a subresource of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// The deprecated paths with `/watch/` after the version.
    pub(crate) watch_prefix: bool,
}

impl Path {
    pub(crate) fn parse(path: &str) -> Self {
        let path = path.strip_suffix('/').unwrap_or(path);
        let segments: Vec<_> = path.split('/').skip(1).map(decode).collect();
        let segments: Vec<_> = segments.iter().map(String::as_str).collect();
        match &*segments {
            ["api"] => Self::CoreVersions,
            ["apis"] => Self::Groups,
            ["version"] => Self::Version,
            ["healthz" | "livez" | "readyz", ..] => Self::Health,
            ["openapi", "v3"] => Self::OpenApi,
            ["openapi", "v3", "api", version] => Self::OpenApiOf { group: String::new(), version: (*version).into() },
            ["openapi", "v3", "apis", group, version] => {
                Self::OpenApiOf { group: (*group).into(), version: (*version).into() }
            }
            ["apis", group] => Self::Group((*group).into()),
            ["api", version] => Self::GroupVersion { group: String::new(), version: (*version).into() },
            ["apis", group, version] => Self::GroupVersion { group: (*group).into(), version: (*version).into() },
            ["api", version, rest @ ..] => Self::resource("", version, rest),
            ["apis", group, version, rest @ ..] => Self::resource(group, version, rest),
            _ => Self::Unknown,
        }
    }

    fn resource(group: &str, version: &str, rest: &[&str]) -> Self {
        let (watch_prefix, rest) = match rest {
            ["watch", rest @ ..] => (true, rest),
            _ => (false, rest),
        };
        let (namespace, rest) = match rest {
            // The namespace itself and its own subresources.
            ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] if group.is_empty() => {
                (None, rest)
            }
            ["namespaces", namespace, rest @ ..] => (Some(*namespace).filter(|name| !name.is_empty()), rest),
            _ => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (plural, None, None),
            [plural, name] => (plural, Some(name), None),
            [plural, name, subresource @ ..] => (plural, Some(name), Some(subresource.join("/"))),
            [] => return Self::Unknown,
        };
        Self::Resource(Target {
            group: group.into(),
            version: version.into(),
            plural: (*plural).into(),
            namespace: namespace.map(Into::into),
            name: name.map(|name| (*name).to_owned()),
            subresource,
            watch_prefix,
        })
    }
}

impl Target {
    /// The storage key, for a path that names an object.
    pub(crate) fn key(&self) -> Option<String> {
        let name = self.name.as_ref()?;
        Some(match &self.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.clone(),
        })
    }

    /// Kubernetes' verb for the request; empty for a method without one.
    pub(crate) fn verb(&self, method: &Method, watch: bool) -> &'static str {
        match (method.as_str(), self.name.is_some()) {
            ("GET", _) if self.watch_prefix => "watch",
            ("GET", false) if watch => "watch",
            ("GET", false) => "list",
            ("GET", true) => "get",
            ("POST", false) => "create",
            ("PUT", true) => "update",
            ("PATCH", true) => "patch",
            ("DELETE", true) => "delete",
            ("DELETE", false) => "deletecollection",
            _ => "",
        }
    }
}

fn decode(segment: &str) -> String {
    // Only in a query do these characters have a special meaning.
    let form = format!("={}", segment.replace('+', "%2B").replace('&', "%26"));
    form_urlencoded::parse(form.as_bytes()).next().map(|(_, text)| text.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parsed_into_targets() {
        let target = |path: &str| {
            let path = Path::parse(path);
            let Path::Resource(Target { group, version, plural, namespace, name, subresource, watch_prefix }) = path
            else {
                return format!("{path:?}");
            };
            let parts = [Some(group), Some(version), namespace, Some(plural), name, subresource];
            let text: Vec<_> = parts.into_iter().map(|part| part.unwrap_or_else(|| "-".into())).collect();
            format!("{}{}", if watch_prefix { "watch:" } else { "" }, text.join(" "))
        };
        for (path, expected) in [
            ("/api/v1/pods", " v1 - pods - -"),
            ("/api/v1/pods/", " v1 - pods - -"),
            ("/api/v1/namespaces/a/pods/p/log", " v1 a pods p log"),
            ("/api/v1/namespaces/a", " v1 - namespaces a -"),
            ("/api/v1/namespaces/a/status", " v1 - namespaces a status"),
            ("/api/v1/namespaces//configmaps", " v1 - configmaps - -"),
            ("/api/v1/nodes/n%2B1+", " v1 - nodes n+1+ -"),
            ("/api/v1/watch/namespaces/a/pods", "watch: v1 a pods - -"),
            ("/apis/apps/v1/namespaces/a/deployments/d", "apps v1 a deployments d -"),
            ("/apis/apps", "Group(\"apps\")"),
            ("//api/v1/pods", "Unknown"),
            ("/readyz/etcd", "Health"),
        ] {
            assert_eq!(target(path), expected, "{path}");
        }
    }
}
