//! The part of a collection that one request may read.

use std::sync::Arc;

use base::apimachinery::{CollectionScope, FieldSelector, FieldValue, ObjectKey};

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

    /// Whether a store of that part of the collection has all objects in this scope that match the selector.
    pub fn lies_within(&self, store: &CollectionScope, fields: &FieldSelector) -> bool {
        let namespace = match self {
            Self::Namespace(namespace) => Some(&**namespace),
            Self::Object(key) => key.namespace(),
            Self::Everything | Self::Named(_) => None,
        };
        let is_required = |FieldValue { label, value }: &FieldValue| {
            let mut terms = fields.requirements().iter();
            terms.any(|term| term.equals && term.field == *label && *term.value == **value)
        };
        store.namespace.as_deref().is_none_or(|of_store| namespace == Some(of_store))
            && store.selection.as_ref().is_none_or(is_required)
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
