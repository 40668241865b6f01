//! The part of a collection that one read may look at.

use std::sync::Arc;

use crate::apimachinery::ObjectKey;

/// Which objects of a collection a read may look at, decided by their keys alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All namespaces, or all of a cluster-scoped resource.
    Everything,
    Namespace(Arc<str>),
    /// Every object of this name, in all namespaces: a list of all namespaces whose field selector requires `metadata.name`.
    Named(Arc<str>),
    Object(ObjectKey),
}

impl Scope {
    /// Whether the object of that key lies in it.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        match self {
            Self::Everything => true,
            Self::Namespace(namespace) => key.namespace() == Some(namespace),
            Self::Named(name) => key.name() == &**name,
            Self::Object(only) => key == only,
        }
    }

    /// The beginning that all keys in it share.
    pub fn prefix(&self) -> String {
        match self {
            Self::Everything | Self::Named(_) => String::new(),
            Self::Namespace(namespace) => format!("{namespace}/"),
            Self::Object(key) => key.to_string(),
        }
    }
}
