//! A run of neighbouring objects of one namespace: the unit of copying and of shared list bytes.

use std::sync::Arc;

use bytes::Bytes;

use super::{derived::Derived, object::Object};
use crate::apimachinery::Representation;

/// At most [`Leaf::LEN_MAX`] objects in key order, never of two namespaces.
///
/// Immutable but for what is derived from the objects: kept only while the leaf is part of the newest snapshot.
pub struct Leaf {
    objects: Vec<Arc<Object>>,
    bytes: usize,
    /// Made for one list: what is derived goes with it.
    is_private: bool,
    /// `None` inside: some object has no such form.
    joined: Derived<Representation, Option<Bytes>>,
    deflated: Derived<Representation, Option<Deflated>>,
}

/// Bytes in compressed form, so that they can become part of any gzip member.
#[derive(Clone, Debug)]
pub struct Deflated {
    /// Raw deflate blocks (RFC 1951) that refer to nothing before them, none of them final, the last one ending with a
    /// whole byte.
    pub blocks: Bytes,
    /// CRC-32 of what was compressed.
    pub checksum: u32,
    /// Bytes that were compressed.
    pub length: u64,
}

impl Leaf {
    /// A full leaf is split. Small enough to copy on every change, large enough that a list finds its
    /// objects, and compresses them, in few steps.
    pub const LEN_MAX: usize = 64;
    /// A leaf that shrinks below this is joined with its neighbour.
    pub const LEN_MIN: usize = 16;

    pub(super) fn new(objects: Vec<Arc<Object>>) -> Self {
        let bytes = objects.iter().map(|object| object.tail().len()).sum();
        Self { objects, bytes, is_private: false, joined: Derived::default(), deflated: Derived::default() }
    }

    /// Objects that a selector has left, for one list alone: of whatever namespaces, and part of no snapshot.
    pub fn of(objects: Vec<Arc<Object>>) -> Self {
        Self { is_private: true, ..Self::new(objects) }
    }

    pub fn objects(&self) -> &[Arc<Object>] {
        &self.objects
    }

    /// Bytes of the objects' JSON.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The items joined for lists in that form: made by `join` on the first call, shared afterwards.
    pub fn joined(&self, form: Representation, join: impl FnOnce(&[Arc<Object>]) -> Option<Bytes>) -> Option<Bytes> {
        self.joined.get_or_make(form, || join(&self.objects))
    }

    /// The same, if they are kept now.
    pub fn joined_now(&self, form: Representation) -> Option<Bytes> {
        self.joined.kept(form)?
    }

    /// The items compressed for lists in that form: made by `deflate` on the first call, shared afterwards.
    pub fn deflated(&self, form: Representation, deflate: impl FnOnce(&Self) -> Option<Deflated>) -> Option<Deflated> {
        self.deflated.get_or_make(form, || deflate(self))
    }

    /// The same, if they are kept now.
    pub fn deflated_now(&self, form: Representation) -> Option<Deflated> {
        self.deflated.kept(form)?
    }

    /// How many bytes of joined items the leaf holds now, in all forms.
    pub fn joined_bytes(&self) -> usize {
        self.joined.sum(|joined| joined.as_ref().map_or(0, Bytes::len))
    }

    /// How many bytes it holds for the one list that it was made for.
    pub fn own_bytes(&self) -> usize {
        if self.is_private { self.joined_bytes() } else { 0 }
    }

    /// How many bytes of compressed items the leaf holds now, in all forms.
    pub fn deflated_bytes(&self) -> usize {
        self.deflated.sum(|deflated| deflated.as_ref().map_or(0, |deflated| deflated.blocks.len()))
    }

    /// How many bytes of other forms its objects hold now.
    pub fn derived_bytes(&self) -> usize {
        self.objects.iter().map(|object| object.derived_bytes()).sum()
    }

    /// Gives back derived bytes that nobody has asked for since the last sweep.
    pub(super) fn sweep(&self) {
        self.joined.sweep();
        self.deflated.sweep();
        self.objects.iter().for_each(|object| object.sweep());
    }

    /// The leaf leaves the newest snapshot: its derived bytes go.
    pub(super) fn retire(&self) {
        self.joined.retire();
        self.deflated.retire();
    }

    /// Where `key` stands, or would stand.
    pub(super) fn search(&self, key: &str) -> Result<usize, usize> {
        self.objects.binary_search_by(|object| object.key.as_str().cmp(key))
    }
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Leaf").field("objects", &self.objects.len()).field("bytes", &self.bytes).finish()
    }
}
