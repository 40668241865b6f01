//! A run of neighbouring objects of one namespace: the unit of copying and of shared list bytes.

use std::{
    ops::Range,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use bytes::Bytes;

use super::{
    block::{Block, Deflated},
    budget::StoreBudget,
    derived::Derived,
    object::Object,
    size::{Measured, StoreSize},
};
use base::apimachinery::Representation;

/// At most [`Leaf::LEN_MAX`] objects of a single namespace, in key order.
///
/// Immutable, except for the values derived from the objects, which are kept only while the leaf is part of the newest
/// snapshot.
pub struct Leaf {
    objects: Vec<Arc<Object>>,
    bytes: usize,
    /// Whether the leaf was made for a single list; its derived values are dropped with it.
    is_private: bool,
    /// For what is derived from the objects.
    budget: StoreBudget,
    /// The inner `Option` is `None` if an object cannot be written in that representation.
    joined: Derived<Representation, Option<Bytes>>,
    deflated: Derived<Representation, Option<Deflated>>,
    /// Set once the leaf was compressed: the block that has all of its objects, if one has. They keep it: the leaf of a
    /// state in history does not.
    block: OnceLock<Weak<Block>>,
    /// Whether the leaf was there at the last call of [`Self::settle`].
    is_settled: AtomicBool,
}

impl Leaf {
    /// The maximum number of objects; a leaf that grows beyond it is split. Small enough to copy on every change, and
    /// large enough that a list collects and compresses its objects in few steps.
    pub const LEN_MAX: usize = 64;
    /// A leaf that shrinks below this number of objects is merged with its neighbour.
    pub const LEN_MIN: usize = 16;

    pub(super) fn new(objects: Vec<Arc<Object>>, budget: StoreBudget) -> Self {
        let bytes = objects.iter().map(|object| object.tail_len()).sum();
        let (joined, deflated, block, is_settled) = Default::default();
        Self { objects, bytes, is_private: false, budget, joined, deflated, block, is_settled }
    }

    /// A leaf of objects that are in one block, which has nothing else.
    pub(super) fn packed(objects: Vec<Arc<Object>>, budget: StoreBudget) -> Self {
        let block = objects.first().and_then(|object| object.block()).as_ref().map_or_else(Weak::new, Arc::downgrade);
        Self { block: OnceLock::from(block), ..Self::new(objects, budget) }
    }

    /// A leaf of the objects that match one list's selector. They may be of several namespaces, and the leaf is not
    /// part of any snapshot.
    pub fn of(objects: Vec<Arc<Object>>) -> Self {
        Self { is_private: true, ..Self::new(objects, StoreBudget::default()) }
    }

    /// Whether it was made for a single list.
    pub fn is_private(&self) -> bool {
        self.is_private
    }

    pub fn objects(&self) -> &[Arc<Object>] {
        &self.objects
    }

    /// The memory for what is derived from the objects.
    pub fn budget(&self) -> &StoreBudget {
        &self.budget
    }

    /// The total length of the objects' tails, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The items joined for lists in that representation: made by `join` on the first call, then shared.
    pub fn joined(&self, form: Representation, join: impl FnOnce(&[Arc<Object>]) -> Option<Bytes>) -> Option<Bytes> {
        let length = |joined: &Option<Bytes>| joined.as_ref().map_or(0, Bytes::len);
        self.joined.get_or_make_if(form, || join(&self.objects), |joined| self.budget.take(length(joined)))
    }

    /// The joined items, if they are kept now.
    pub fn joined_now(&self, form: Representation) -> Option<Bytes> {
        self.joined.kept(form)?
    }

    /// The items compressed for lists in that representation: made by `deflate` on the first call, then shared.
    pub fn deflated(&self, form: Representation, deflate: impl FnOnce(&Self) -> Option<Deflated>) -> Option<Deflated> {
        let length = |deflated: &Option<Deflated>| deflated.as_ref().map_or(0, |deflated| deflated.blocks.len());
        let made =
            || self.deflated.get_or_make_if(form, || deflate(self), |deflated| self.budget.take(length(deflated)));
        self.in_block(form).map_or_else(made, Some)
    }

    /// The compressed items, if they are kept now.
    pub fn deflated_now(&self, form: Representation) -> Option<Deflated> {
        self.in_block(form).or_else(|| self.deflated.kept(form)?)
    }

    /// Whether a block has all of its objects and nothing else.
    pub fn is_in_block(&self) -> bool {
        self.block.get().is_some_and(|block| block.strong_count() > 0)
    }

    fn in_block(&self, form: Representation) -> Option<Deflated> {
        self.block.get()?.upgrade()?.deflated(form).cloned()
    }

    /// Whether the leaf is to be compressed: it was there at the last call already, and is not compressed.
    pub(super) fn settle(&self) -> bool {
        self.is_settled.swap(true, Relaxed) && self.block.get().is_none()
    }

    /// Moves some of the objects into a block, whose text has their tails from these positions on.
    pub fn move_into(&self, block: Block, run: Range<usize>, positions: &[u32]) {
        let (block, is_whole) = (Arc::new(block), run.len() == self.objects.len());
        for (object, at) in self.objects[run].iter().zip(positions) {
            object.move_into(block.clone(), *at);
        }
        if is_whole {
            self.deflated.clear();
            // Only one task compresses.
            drop(self.block.set(Arc::downgrade(&block)));
        }
    }

    /// Ends the compression of the leaf: [`Reader::settled`](super::Reader::settled) does not return it again.
    pub fn settled_for_good(&self) {
        drop(self.block.set(Weak::new()));
    }

    /// Bytes of joined items that the leaf holds now, in all representations.
    pub fn joined_bytes(&self) -> usize {
        self.joined.sum(|joined| joined.as_ref().map_or(0, Bytes::len))
    }

    /// Bytes of joined items that the leaf holds for a single list; 0 if it is part of snapshots.
    pub fn own_bytes(&self) -> usize {
        if self.is_private { self.joined_bytes() } else { 0 }
    }

    /// Adds what the leaf holds now, except for its objects' own bytes.
    pub(super) fn measure(&self, size: &mut StoreSize) {
        size.joined_bytes += self.joined_bytes();
        size.deflated_bytes +=
            self.deflated.sum(|deflated| deflated.as_ref().map_or(0, |deflated| deflated.blocks.len()));
        let mut last = None;
        for object in &self.objects {
            size.derived_bytes += object.derived_bytes();
            size.unusual_bytes += object.unusual_bytes();
            let Some(block) = object.block() else { continue };
            size.cold_bytes += object.tail_len();
            if last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, &block)) {
                size.deflated_bytes += block.packed_len();
                size.joined_bytes += block.kept();
                last = Some(block);
            }
        }
    }

    /// Drops derived bytes that were not used since the last sweep.
    pub(super) fn sweep(&self) {
        self.joined.sweep();
        self.deflated.sweep();
        let mut last = None;
        for object in &self.objects {
            object.sweep();
            // Once, since a second time would drop what was used since the last sweep.
            if let Some(block) = object.block()
                && last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, &block))
            {
                block.sweep();
                last = Some(block);
            }
        }
    }

    /// Drops the derived bytes, because the leaf is no longer part of the newest snapshot.
    pub(super) fn retire(&self) {
        self.joined.retire();
        self.deflated.retire();
    }

    /// The position of `key`, or where it would be inserted.
    pub(super) fn search(&self, key: &str) -> Result<usize, usize> {
        self.objects.binary_search_by(|object| object.key.as_str().cmp(key))
    }
}

impl Measured for Leaf {
    fn add_to(&self, size: &mut StoreSize) {
        size.objects += self.objects.len();
        size.object_bytes += self.bytes;
        self.measure(size);
    }
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Leaf").field("objects", &self.objects.len()).field("bytes", &self.bytes).finish()
    }
}
