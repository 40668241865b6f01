//! Which changes wake a watcher: the key of its request, and the keys of a change.

use std::sync::Arc;

use crate::store::{Predicate, Schema, Scope};
use base::apimachinery::ObjectKey;

/// The index key of a watcher: the most selective one that its request allows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Interest {
    Everything,
    Namespace(Arc<str>),
    Object(ObjectKey),
    /// One value of the schema's indexed field, such as the node of a kubelet.
    Indexed(Arc<str>),
}

impl Interest {
    /// The most selective key under which every change that the request may see wakes the watcher.
    pub fn of(scope: &Scope, predicate: &Predicate, schema: &Schema) -> Self {
        if let Scope::Object(key) = scope {
            return Self::Object(key.clone());
        }
        if let Some(value) = schema.indexed_field().and_then(|field| predicate.required(field)) {
            return Self::Indexed(value.into());
        }
        match scope {
            Scope::Namespace(namespace) => Self::Namespace(namespace.clone()),
            Scope::Everything | Scope::Named(_) | Scope::Object(_) => Self::Everything,
        }
    }

    /// The keys whose watchers a change of the object with that key wakes. `indexed` are the values of the indexed
    /// field before and after the change.
    pub(super) fn woken_by(key: &ObjectKey, [before, after]: [Option<&str>; 2]) -> Vec<Self> {
        let mut woken = vec![Self::Everything, Self::Object(key.clone())];
        woken.extend(key.namespace().map(|namespace| Self::Namespace(namespace.into())));
        woken.extend(before.map(|value| Self::Indexed(value.into())));
        woken.extend(after.filter(|_| after != before).map(|value| Self::Indexed(value.into())));
        woken
    }
}
