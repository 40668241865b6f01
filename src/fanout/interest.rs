//! What a watcher is about: the part of it that decides whether a change wakes it.

use std::sync::Arc;

use crate::{
    apimachinery::ObjectKey,
    store::{Object, Predicate, Schema},
};

/// The part of a collection that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Everything,
    Namespace(Arc<str>),
    /// A single object, by `metadata.name` or by the path.
    Object(ObjectKey),
}

/// The key of the index under which a watcher waits: the most selective one that its request allows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Interest {
    Everything,
    Namespace(Arc<str>),
    Object(ObjectKey),
    /// One value of the schema's indexed field: a kubelet's own node.
    Indexed(Arc<str>),
}

impl Scope {
    /// Whether the object lies in it, by its key alone.
    pub fn contains(&self, object: &Object) -> bool {
        match self {
            Self::Everything => true,
            Self::Namespace(namespace) => object.key.namespace() == Some(namespace),
            Self::Object(key) => object.key == *key,
        }
    }

    /// The beginning that all keys of the scope share.
    pub fn prefix(&self) -> String {
        match self {
            Self::Everything => String::new(),
            Self::Namespace(namespace) => format!("{namespace}/"),
            Self::Object(key) => key.to_string(),
        }
    }
}

impl Interest {
    /// The narrowest key under which every change that the request could see wakes it.
    pub fn of(scope: &Scope, predicate: &Predicate, schema: &Schema) -> Self {
        if let Scope::Object(key) = scope {
            return Self::Object(key.clone());
        }
        if let Some(value) = schema.indexed_field().and_then(|field| predicate.required(field)) {
            return Self::Indexed(value.into());
        }
        match scope {
            Scope::Namespace(namespace) => Self::Namespace(namespace.clone()),
            Scope::Everything | Scope::Object(_) => Self::Everything,
        }
    }
}
