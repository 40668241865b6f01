//! The names of stores: those that exist, and those that are to exist from the start.

use std::fmt;

use base::{
    apimachinery::{CollectionScope, Encoding, GroupResource, GroupVersionResource},
    config::Prewarm,
};

/// Identifies a store: a part of a resource's collection in one encoding, with its own upstream watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct StoreKey {
    pub(super) resource: GroupVersionResource,
    pub(super) scope: CollectionScope,
    pub(super) encoding: Encoding,
}

/// A part of a resource's collection that is cached from the start, in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prewarmed {
    pub resource: GroupResource,
    pub scope: CollectionScope,
}

impl Prewarmed {
    /// All that an item of `cache.prewarm` names.
    pub fn all(prewarm: &Prewarm) -> impl Iterator<Item = Self> + use<> {
        let resource = prewarm.resource.clone();
        prewarm.scopes().into_iter().map(move |scope| Self { resource: resource.clone(), scope })
    }

    /// Whether the store covers just that, in any encoding and version of the API.
    pub(super) fn is(&self, store: &StoreKey) -> bool {
        self.scope == store.scope && self.resource == store.resource.group_resource()
    }
}

impl fmt::Display for Prewarmed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.resource, self.scope.after_name())
    }
}

impl StoreKey {
    pub(super) fn of(resource: &GroupVersionResource, scope: CollectionScope, encoding: Encoding) -> Self {
        Self { resource: resource.clone(), scope, encoding }
    }

    pub(super) fn whole(resource: &GroupVersionResource, encoding: Encoding) -> Self {
        Self::of(resource, CollectionScope::CLUSTER, encoding)
    }

    /// The stores of the resource that have all objects of this one, and more.
    pub(super) fn wider(&self) -> Vec<Self> {
        let covering = self.scope.covering().into_iter().filter(|scope| *scope != self.scope);
        covering.map(|scope| Self { scope, ..self.clone() }).collect()
    }
}

impl fmt::Display for StoreKey {
    /// For example `pods.v1`, `pods.v1/protobuf` or `pods.v1 of a`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, scope, encoding } = self;
        let encoding = if *encoding == Encoding::Protobuf { "/protobuf" } else { "" };
        write!(formatter, "{resource}{encoding}{}", scope.after_name())
    }
}
