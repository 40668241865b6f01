//! A run of neighbouring objects of one namespace: the unit of copying and of shared list bytes.

use std::sync::Arc;

use bytes::Bytes;

use super::{derived::Derived, object::Object};

/// At most [`Leaf::LEN_MAX`] objects in key order, never of two namespaces.
///
/// Immutable but for what is derived from the objects: kept only while the leaf is part of the newest snapshot.
pub struct Leaf {
    objects: Vec<Arc<Object>>,
    bytes: usize,
    joined: Derived<Bytes>,
    deflated: Derived<Deflated>,
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
    /// A full leaf is split. Small enough to copy on every change, large enough that a list of
    /// 10,000 objects is some 300 writes.
    pub const LEN_MAX: usize = 64;
    /// A leaf that shrinks below this is joined with its neighbour.
    pub const LEN_MIN: usize = 16;

    pub(super) fn new(objects: Vec<Arc<Object>>) -> Self {
        let bytes = objects.iter().map(|object| object.tail().len()).sum();
        Self { objects, bytes, joined: Derived::new(), deflated: Derived::new() }
    }

    pub fn objects(&self) -> &[Arc<Object>] {
        &self.objects
    }

    /// Bytes of the objects' JSON.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The items joined for a list: made by `join` on the first call, shared afterwards.
    pub fn joined(&self, join: impl FnOnce(&[Arc<Object>]) -> Bytes) -> Bytes {
        self.joined.get_or_make(|| join(&self.objects))
    }

    /// The items compressed for a list: made by `deflate` on the first call, shared afterwards.
    pub fn deflated(&self, deflate: impl FnOnce(&[Arc<Object>]) -> Deflated) -> Deflated {
        self.deflated.get_or_make(|| deflate(&self.objects))
    }

    /// How many bytes of joined items the leaf holds now.
    pub fn joined_bytes(&self) -> usize {
        self.joined.kept(Bytes::len).unwrap_or_default()
    }

    /// How many bytes of compressed items the leaf holds now.
    pub fn deflated_bytes(&self) -> usize {
        self.deflated.kept(|deflated| deflated.blocks.len()).unwrap_or_default()
    }

    /// Gives back derived bytes that no list has asked for since the last sweep.
    pub(super) fn sweep(&self) {
        self.joined.sweep();
        self.deflated.sweep();
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
