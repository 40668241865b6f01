//! The bytes of one object, as text or in a compressed block.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::block::Block;

/// Bytes that can be moved into a block, and are the same for every reader.
#[derive(Debug)]
pub(super) struct ObjectBytes(Mutex<Place>);

/// Small, since most objects are in blocks.
#[derive(Debug)]
enum Place {
    Text(Box<Bytes>),
    /// In the text of the block, from that position on.
    In(Arc<Block>, u32),
}

impl ObjectBytes {
    /// Inflates a part of the block if the bytes, `length` of them, are in one whose text is not kept.
    pub(super) fn bytes(&self, length: usize) -> Bytes {
        let (block, at) = match &*self.lock() {
            Place::Text(bytes) => return Bytes::clone(bytes),
            Place::In(block, at) => (block.clone(), *at as usize),
        };
        block.text(at..at + length)
    }

    /// The block that has the bytes; `None` if they are text.
    pub(super) fn block(&self) -> Option<Arc<Block>> {
        self.place().map(|(block, _)| block)
    }

    /// The block that has the bytes, and their position in its text; `None` if they are text.
    pub(super) fn place(&self) -> Option<(Arc<Block>, u32)> {
        match &*self.lock() {
            Place::Text(_) => None,
            Place::In(block, at) => Some((block.clone(), *at)),
        }
    }

    /// Moves the bytes into a block whose text has them from that position on.
    pub(super) fn move_into(&self, block: Arc<Block>, at: u32) {
        let before = std::mem::replace(&mut *self.lock(), Place::In(block, at));
        // Without the lock, as is what frees the text.
        if let Place::In(before, _) = before {
            before.retire();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<(Arc<Block>, u32)> for ObjectBytes {
    /// In the text of the block, from that position on.
    fn from((block, at): (Arc<Block>, u32)) -> Self {
        Self(Mutex::new(Place::In(block, at)))
    }
}

impl From<Bytes> for ObjectBytes {
    fn from(bytes: Bytes) -> Self {
        Self(Mutex::new(Place::Text(bytes.into())))
    }
}
