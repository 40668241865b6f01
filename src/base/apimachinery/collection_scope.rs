//! The part of a resource's collection that one list or watch covers.

use std::{fmt, sync::Arc};

/// What is listed and watched: everything, or one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CollectionScope {
    /// All namespaces, or all objects of a cluster-scoped resource.
    Cluster,
    Namespace(Arc<str>),
}

impl CollectionScope {
    /// The namespace; `None` for the whole cluster.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Cluster => None,
            Self::Namespace(namespace) => Some(namespace),
        }
    }

    /// Whether the two have objects in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.namespace().zip(other.namespace()).is_none_or(|(one, other)| one == other)
    }
}

impl fmt::Display for CollectionScope {
    /// Follows the name of a resource: empty, or ` in NAMESPACE`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.namespace().map_or(Ok(()), |namespace| write!(formatter, " in {namespace}"))
    }
}
