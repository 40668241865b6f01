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
    fn keys_sort_by_bytes_of_the_whole_text() {
        let hyphenated = ObjectKey::new(Some("a-b"), "x");
        let plain = ObjectKey::new(Some("a"), "x");
        assert!(hyphenated < plain);
        assert_eq!((plain.namespace(), plain.name()), (Some("a"), "x"));
        assert_eq!(ObjectKey::new(None, "node-1").namespace(), None);
    }
}
