//! How much memory a store takes.

/// What an object takes besides its bytes: key, labels, fields, and its place in a leaf. With a million config maps it
/// is some 230 (benches/diary.md); pods take more, and are larger.
pub const OBJECT_BYTES: usize = 300;

/// The size of a store, for metrics and for the memory that all stores share ([`super::StoreBudget`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    pub objects: usize,
    /// Bytes of the newest objects.
    pub object_bytes: usize,
    /// Those of them that are kept in compressed blocks only.
    pub cold_bytes: usize,
    pub changes: usize,
    /// An estimate of the bytes that the history holds besides the newest state.
    pub change_bytes: usize,
    /// Items joined for lists, and text of blocks that is kept for readers.
    pub joined_bytes: usize,
    /// Items compressed for lists, blocks among them.
    pub deflated_bytes: usize,
    /// Metadata of objects in other forms than upstream's, and events made for watchers that upstream's own do not fit.
    pub derived_bytes: usize,
    /// Labels of objects that have very many.
    pub(super) unusual_bytes: usize,
}

/// A part of a store.
pub(super) trait Measured: Send + Sync {
    /// Adds what it takes now.
    fn add_to(&self, size: &mut StoreSize);
}

impl StoreSize {
    /// An estimate of all that the store takes.
    pub fn bytes(&self) -> u64 {
        let text = self.object_bytes - self.cold_bytes + self.objects * OBJECT_BYTES;
        let made = self.joined_bytes + self.deflated_bytes + self.derived_bytes + self.unusual_bytes;
        (text + made + self.change_bytes) as u64
    }
}
