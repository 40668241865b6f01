//! A run of neighbouring objects of one namespace: the unit of copying and of shared list bytes.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::object::Object;

/// At most [`Leaf::LEN_MAX`] objects in key order, never of two namespaces.
///
/// Immutable but for the joined bytes, which are derived. Those are kept only while the leaf is
/// part of the newest snapshot: history would otherwise hold a copy for every version listed.
pub struct Leaf {
    objects: Vec<Arc<Object>>,
    bytes: usize,
    joined: Mutex<Joined>,
}

enum Joined {
    NotYet,
    Kept(Bytes),
    Retired,
}

impl Leaf {
    /// A full leaf is split. Small enough to copy on every change, large enough that a list of
    /// 10,000 objects is some 300 writes.
    pub const LEN_MAX: usize = 64;
    /// A leaf that shrinks below this is joined with its neighbour.
    pub const LEN_MIN: usize = 16;

    pub(super) fn new(objects: Vec<Arc<Object>>) -> Self {
        let bytes = objects.iter().map(|object| object.tail().len()).sum();
        Self { objects, bytes, joined: Mutex::new(Joined::NotYet) }
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
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        if let Joined::Kept(bytes) = &*joined {
            return bytes.clone();
        }
        let bytes = join(&self.objects);
        if matches!(*joined, Joined::NotYet) {
            *joined = Joined::Kept(bytes.clone());
        }
        bytes
    }

    /// How many bytes of joined items the leaf holds now.
    pub fn joined_bytes(&self) -> usize {
        match &*self.joined.lock().unwrap_or_else(PoisonError::into_inner) {
            Joined::Kept(bytes) => bytes.len(),
            Joined::NotYet | Joined::Retired => 0,
        }
    }

    /// The leaf leaves the newest snapshot: its derived bytes go.
    pub(super) fn retire(&self) {
        *self.joined.lock().unwrap_or_else(PoisonError::into_inner) = Joined::Retired;
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
