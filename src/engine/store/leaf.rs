//! A run of neighbouring objects of one namespace: the unit of copying and of shared list bytes.

use std::sync::Arc;

use bytes::Bytes;

use super::{derived::Derived, object::Object};
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
    /// The inner `Option` is `None` if an object cannot be written in that representation.
    joined: Derived<Representation, Option<Bytes>>,
    deflated: Derived<Representation, Option<Deflated>>,
}

/// Compressed bytes that can become part of any gzip member.
#[derive(Clone, Debug)]
pub struct Deflated {
    /// Raw deflate blocks (RFC 1951) that refer to nothing before them. None of them is final, and the last one ends on
    /// a byte boundary.
    pub blocks: Bytes,
    /// CRC-32 of the uncompressed bytes.
    pub checksum: u32,
    /// The number of uncompressed bytes.
    pub length: u64,
}

impl Leaf {
    /// The maximum number of objects; a leaf that grows beyond it is split. Small enough to copy on every change, and
    /// large enough that a list collects and compresses its objects in few steps.
    pub const LEN_MAX: usize = 64;
    /// A leaf that shrinks below this number of objects is merged with its neighbour.
    pub const LEN_MIN: usize = 16;

    pub(super) fn new(objects: Vec<Arc<Object>>) -> Self {
        let bytes = objects.iter().map(|object| object.tail().len()).sum();
        Self { objects, bytes, is_private: false, joined: Derived::default(), deflated: Derived::default() }
    }

    /// A leaf of the objects that match one list's selector. They may be of several namespaces, and the leaf is not
    /// part of any snapshot.
    pub fn of(objects: Vec<Arc<Object>>) -> Self {
        Self { is_private: true, ..Self::new(objects) }
    }

    /// Whether it was made for a single list.
    pub fn is_private(&self) -> bool {
        self.is_private
    }

    pub fn objects(&self) -> &[Arc<Object>] {
        &self.objects
    }

    /// The total length of the objects' tails, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The items joined for lists in that representation: made by `join` on the first call, then shared.
    pub fn joined(&self, form: Representation, join: impl FnOnce(&[Arc<Object>]) -> Option<Bytes>) -> Option<Bytes> {
        self.joined.get_or_make(form, || join(&self.objects))
    }

    /// The joined items, if they are kept now.
    pub fn joined_now(&self, form: Representation) -> Option<Bytes> {
        self.joined.kept(form)?
    }

    /// The items compressed for lists in that representation: made by `deflate` on the first call, then shared.
    pub fn deflated(&self, form: Representation, deflate: impl FnOnce(&Self) -> Option<Deflated>) -> Option<Deflated> {
        self.deflated.get_or_make(form, || deflate(self))
    }

    /// The compressed items, if they are kept now.
    pub fn deflated_now(&self, form: Representation) -> Option<Deflated> {
        self.deflated.kept(form)?
    }

    /// Bytes of joined items that the leaf holds now, in all representations.
    pub fn joined_bytes(&self) -> usize {
        self.joined.sum(|joined| joined.as_ref().map_or(0, Bytes::len))
    }

    /// Bytes of joined items that the leaf holds for a single list; 0 if it is part of snapshots.
    pub fn own_bytes(&self) -> usize {
        if self.is_private { self.joined_bytes() } else { 0 }
    }

    /// Bytes of compressed items that the leaf holds now, in all representations.
    pub fn deflated_bytes(&self) -> usize {
        self.deflated.sum(|deflated| deflated.as_ref().map_or(0, |deflated| deflated.blocks.len()))
    }

    /// Bytes that the objects of the leaf hold now in other representations.
    pub fn derived_bytes(&self) -> usize {
        self.objects.iter().map(|object| object.derived_bytes()).sum()
    }

    /// Drops derived bytes that were not used since the last sweep.
    pub(super) fn sweep(&self) {
        self.joined.sweep();
        self.deflated.sweep();
        self.objects.iter().for_each(|object| object.sweep());
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

impl std::fmt::Debug for Leaf {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Leaf").field("objects", &self.objects.len()).field("bytes", &self.bytes).finish()
    }
}
