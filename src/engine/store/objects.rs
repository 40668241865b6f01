//! The objects of a whole state, from which a store is made or bridged.

use std::sync::Arc;

use super::{budget::Claim, object::Object};
use base::apimachinery::ObjectKey;

/// Objects in the order of their keys, each key once.
#[derive(Debug, Default)]
pub struct Objects {
    objects: Vec<Arc<Object>>,
    /// Counts them until they are in a store, which counts by itself.
    _claim: Option<Claim>,
}

/// A state that cannot be that of a collection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two objects have the key {0}")]
pub struct DuplicateKey(pub ObjectKey);

impl Objects {
    /// From objects in any order.
    ///
    /// # Errors
    /// Two objects have the same key.
    pub fn new(mut objects: Vec<Arc<Object>>) -> Result<Self, DuplicateKey> {
        objects.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        match objects.windows(2).find(|pair| pair[0].key == pair[1].key) {
            Some(pair) => Err(DuplicateKey(pair[0].key.clone())),
            None => Ok(Self { objects, _claim: None }),
        }
    }

    pub fn as_slice(&self) -> &[Arc<Object>] {
        &self.objects
    }

    /// The same, which keep what was claimed for them.
    pub fn with_claim(self, claim: Claim) -> Self {
        Self { _claim: Some(claim), ..self }
    }
}
