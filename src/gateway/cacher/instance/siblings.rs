//! The stores of one resource, in all encodings and versions of the API, and what they share.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Instance;
use crate::cacher::proofs::Proofs;
use base::apimachinery::ResourceVersion;
use engine::reflector::StorageEvidence;

/// What the stores of one resource share. All versions of the API have the same objects.
#[derive(Debug)]
pub(in crate::cacher) struct Siblings {
    pub(in crate::cacher) proofs: Proofs,
    /// The stores that are filled.
    stores: Mutex<Vec<Weak<Instance>>>,
}

impl Siblings {
    /// Of a resource of this storage.
    pub(in crate::cacher) fn of(storage: StorageEvidence) -> Self {
        Self { proofs: Proofs::of(storage), stores: Mutex::default() }
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

    /// The store with the highest progress; `None` if that is not higher than `version`.
    pub(super) fn ahead_of(&self, version: ResourceVersion) -> Option<Arc<Instance>> {
        let stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        // Usually there is only one store, and nothing to compare it with.
        if stores.len() < 2 {
            return None;
        }
        let known = stores.iter().filter_map(Weak::upgrade);
        known.filter(|store| store.progress() > version).max_by_key(|store| store.progress())
    }
}
