//! The part of a collection that one request may read.

use std::sync::Arc;

use base::apimachinery::{CollectionScope, ObjectKey};

/// The objects of a collection that a request may read, determined by their keys alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All namespaces, or all objects of a cluster-scoped resource.
    Everything,
    Namespace(Arc<str>),
    /// All objects with this name in any namespace: a list of all namespaces whose field selector requires
    /// `metadata.name`.
    Named(Arc<str>),
    Object(ObjectKey),
}

impl Scope {
    /// Whether the scope contains the object with that key.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        match self {
            Self::Everything => true,
            Self::Namespace(namespace) => key.namespace() == Some(namespace),
            Self::Named(name) => key.name() == &**name,
            Self::Object(only) => key == only,
        }
    }

    /// Whether a store of that part of the collection has all objects in this scope.
    pub fn lies_within(&self, store: &CollectionScope) -> bool {
        match (store, self) {
            (CollectionScope::Cluster, _) => true,
            (CollectionScope::Namespace(of_store), Self::Namespace(namespace)) => of_store == namespace,
            (CollectionScope::Namespace(of_store), Self::Object(key)) => key.namespace() == Some(&**of_store),
            (CollectionScope::Namespace(_), Self::Everything | Self::Named(_)) => false,
        }
    }

    /// The longest known common prefix of all keys in the scope.
    pub fn prefix(&self) -> String {
        match self {
            Self::Everything | Self::Named(_) => String::new(),
            Self::Namespace(namespace) => format!("{namespace}/"),
            Self::Object(key) => key.to_string(),
        }
    }
}
