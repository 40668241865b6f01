//! Identifies an object within its collection.

use std::{borrow::Borrow, fmt, sync::Arc};

/// Namespace and name as in the storage key: `namespace/name`, or only the name.
///
/// Ordered by the bytes of that text, as the API server orders lists and initial events (read-path 3.3): `a-b/x` comes
/// before `a/x`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// `namespace` is `None` for a cluster-scoped object.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) => Self(format!("{namespace}/{name}").into()),
            None => Self(name.into()),
        }
    }

    /// `namespace/name`, or only the name. Keys are ordered by these bytes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Names and namespaces contain no slash, so the first slash separates them.
    pub fn namespace(&self) -> Option<&str> {
        self.0.split_once('/').map(|(namespace, _)| namespace)
    }

    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }

    /// Whether the API server can hold an object with that key: there is a namespace exactly if the resource is
    /// `namespaced`, and it and the name can be segments of a path, which the API server requires of all resources
    /// (`IsValidPathSegmentName` in k8s.io/apimachinery).
    pub fn is_valid(&self, namespaced: bool) -> bool {
        let is_segment = |text: &str| !matches!(text, "" | "." | "..") && !text.contains(['/', '%']);
        let namespace = self.namespace();
        namespace.is_some() == namespaced && namespace.is_none_or(is_segment) && is_segment(self.name())
    }
}

impl Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_valid_if_the_api_server_can_have_it() {
        for (key, namespaced, expected) in [
            (ObjectKey::new(Some("a"), "x"), true, true),
            (ObjectKey::new(None, "system:node"), false, true),
            (ObjectKey::new(None, "x"), true, false),
            (ObjectKey::new(Some("a"), "x"), false, false),
            (ObjectKey::new(Some(""), "x"), true, false),
            (ObjectKey::new(Some("a"), ""), true, false),
            (ObjectKey::new(Some("a"), ".."), true, false),
            (ObjectKey::new(Some("a"), "../x/y\0"), true, false),
            (ObjectKey::new(Some("a/b"), "x"), true, false),
            (ObjectKey::new(None, "a/x"), false, false),
            (ObjectKey::new(None, "a%2fx"), false, false),
        ] {
            assert_eq!(key.is_valid(namespaced), expected, "{key} {namespaced}");
        }
    }

    #[test]
    fn keys_sort_by_bytes_of_the_whole_text() {
        let hyphenated = ObjectKey::new(Some("a-b"), "x");
        let plain = ObjectKey::new(Some("a"), "x");
        assert!(hyphenated < plain);
        assert_eq!((plain.namespace(), plain.name()), (Some("a"), "x"));
        assert_eq!(ObjectKey::new(None, "node-1").namespace(), None);
    }
}
