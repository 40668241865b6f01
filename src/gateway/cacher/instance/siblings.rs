//! The stores of one resource, in all scopes, encodings and versions of the API, and what they share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use super::Instance;
use crate::cacher::proofs::Proofs;
use base::apimachinery::{CollectionScope, ResourceVersion};
use engine::reflector::{Evidence, StorageEvidence};

/// What the stores of one resource share. All versions of the API have the same objects.
#[derive(Debug)]
pub(in crate::cacher) struct Siblings {
    evidence: Evidence,
    /// Those of each scope: a progress probe says nothing of what it does not watch.
    proofs: Mutex<HashMap<CollectionScope, Weak<Proofs>>>,
    /// The stores that are filled.
    stores: Mutex<Vec<Weak<Instance>>>,
}

impl Siblings {
    /// Of a resource of this storage.
    pub(in crate::cacher) fn of(storage: StorageEvidence) -> Self {
        Self { evidence: Evidence::of(storage), proofs: Mutex::default(), stores: Mutex::default() }
    }

    /// The proofs that the stores of a scope share.
    pub(in crate::cacher) fn proofs(&self, scope: &CollectionScope) -> Arc<Proofs> {
        let mut proofs = self.proofs.lock().unwrap_or_else(PoisonError::into_inner);
        proofs.retain(|_, known| known.strong_count() > 0);
        if let Some(known) = proofs.get(scope).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(Proofs::of(self.evidence.of_another_scope()));
        proofs.insert(scope.clone(), Arc::downgrade(&new));
        new
    }

    /// Adds a store that was filled; [`Self::remove`] removes it.
    pub(in crate::cacher) fn add(&self, store: &Arc<Instance>) {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(store));
    }

    /// Removes a store that was given up: other stores must no longer be compared with it, even if a watch still holds
    /// it.
    pub(in crate::cacher) fn remove(&self, store: &Arc<Instance>) {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        stores.retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(store)));
    }

    /// Of the stores that have objects of `scope` and a higher progress than `version`: the one with the highest, and
    /// whether any of them is followed. Stores of different namespaces have no object in common that could go back.
    pub(super) fn ahead_of(&self, version: ResourceVersion, scope: &CollectionScope) -> Option<(Arc<Instance>, bool)> {
        let stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        // Usually there is only one store, and nothing to compare it with.
        if stores.len() < 2 {
            return None;
        }
        let known = stores.iter().filter_map(Weak::upgrade);
        let ahead = known.filter(|store| store.scope.overlaps(scope) && store.progress() > version);
        let ahead: Vec<_> = ahead.collect();
        let is_followed = ahead.iter().any(|store| store.is_followed());
        ahead.into_iter().max_by_key(|store| store.progress()).map(|furthest| (furthest, is_followed))
    }
}
