//! The objects of a whole state, from which a store is made or bridged.

use std::sync::Arc;

use super::{
    budget::{Claim, StoreBudget},
    leaf::Leaf,
    object::Object,
};
use base::apimachinery::ObjectKey;

/// Objects in the order of their keys, each key once.
#[derive(Debug, Default)]
pub struct Objects {
    objects: Vec<Arc<Object>>,
    /// How many neighbours are in one block that has nothing else, if all are in such blocks.
    runs: Vec<usize>,
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
            None => Ok(Self { objects, runs: Vec::new(), _claim: None }),
        }
    }

    /// From the objects of a packed state: each run has all objects of its block. `None` if they cannot be leaves in
    /// this order.
    pub(crate) fn of_runs(runs: Vec<Vec<Arc<Object>>>) -> Option<Self> {
        let is_leaf = |run: &Vec<Arc<Object>>| {
            (1..=Leaf::LEN_MAX).contains(&run.len())
                && run.iter().all(|object| object.key.namespace() == run[0].key.namespace())
        };
        let are_leaves = runs.iter().all(is_leaf);
        let lengths = runs.iter().map(Vec::len).collect();
        let objects: Vec<_> = runs.into_iter().flatten().collect();
        let are_sorted = objects.windows(2).all(|pair| pair[0].key < pair[1].key);
        (are_leaves && are_sorted).then_some(Self { objects, runs: lengths, _claim: None })
    }

    /// The leaves of a state that has them.
    pub(super) fn leaves(&self, budget: &StoreBudget) -> Vec<Leaf> {
        if self.runs.is_empty() {
            let of_namespaces = self.objects.chunk_by(|a, b| a.key.namespace() == b.key.namespace());
            let chunks = of_namespaces.flat_map(|objects| objects.chunks(Leaf::LEN_MAX * 3 / 4));
            return chunks.map(|chunk| Leaf::new(chunk.to_vec(), budget.clone())).collect();
        }
        let mut rest = &self.objects[..];
        let mut next = |length: &usize| {
            let (run, others) = rest.split_at(*length);
            rest = others;
            Leaf::packed(run.to_vec(), budget.clone())
        };
        self.runs.iter().map(&mut next).collect()
    }

    /// What they take, in bytes.
    pub(super) fn kept_bytes(&self) -> usize {
        self.objects.iter().map(|object| object.kept_bytes()).sum()
    }

    pub fn as_slice(&self) -> &[Arc<Object>] {
        &self.objects
    }

    /// The same, which keep what was claimed for them.
    pub fn with_claim(self, claim: Claim) -> Self {
        Self { _claim: Some(claim), ..self }
    }
}
