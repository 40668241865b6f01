//! One object: the bytes that upstream sent, and the few parts of them that the gateway needs.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;

use super::{
    block::{Block, Thaw},
    derived::Derived,
    interner::Selectable,
    json,
    object_bytes::ObjectBytes,
    protobuf,
    schema::FieldPlace,
    size::{Measured, StoreSize},
};
use base::apimachinery::{Encoding, Labels, ObjectKey, ResourceVersion, ShardField, ShardHash, ShardSelector};

/// An object at one version. Immutable; shared by snapshots, history and responses.
///
/// Invariant: the opening of the object's [`super::Shape`] followed by `tail` is the JSON object as upstream wrote it.
/// In a protobuf store, `tail` is the object's own message.
#[derive(Debug)]
pub struct Object {
    pub key: ObjectKey,
    /// The object's version; for a deleted object the version of the deletion.
    pub version: ResourceVersion,
    pub(super) selectable: Arc<Selectable>,
    /// Everything after the shape's opening, including the closing brace.
    pub(super) tail: ObjectBytes,
    /// The length of `tail` in bytes, which is far less than 4 GiB.
    pub(super) tail_len: u32,
    /// The position in `tail` of the digits of `version`.
    pub(super) version_at: u32,
    /// The position in `tail` of the value of `metadata`: a JSON object with its braces, or a message without its tag
    /// and length.
    pub(super) metadata_at: Span,
    /// The hash of `metadata.uid`, or of the empty text if there is none.
    pub(super) uid_hash: ShardHash,
    /// The metadata converted to JSON and to protobuf, where `tail` does not contain it in that form; the inner
    /// `Option` is `None` where that is impossible.
    pub(super) derived: Derived<Encoding, Option<Metadata>>,
}

// With its counts of references, what the allocator gives is 112 bytes; a million objects are usual.
const _: () = assert!(size_of::<Object>() <= 96);

/// A range of a tail, which is far shorter than 4 GiB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span(u32, u32);

impl Span {
    pub(super) fn range(self) -> Range<usize> {
        self.0 as usize..self.1 as usize
    }
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self(position(range.start), position(range.end))
    }
}

/// An object's metadata: a JSON object, or an `ObjectMeta` message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub bytes: Bytes,
    /// The position in `bytes` of the digits of the version.
    pub version_at: Range<usize>,
}

impl Object {
    /// Everything after the shape's opening, including the closing brace. Inflated if the object is compressed: a
    /// reader of many objects calls [`Self::thaw`] first.
    pub fn tail(&self) -> Bytes {
        self.tail.bytes(self.tail_len())
    }

    /// The length of the tail in bytes.
    pub fn tail_len(&self) -> usize {
        self.tail_len as usize
    }

    pub fn labels(&self) -> &Labels {
        &self.selectable.labels
    }

    /// Whether the object is in one of those shards.
    pub fn is_in(&self, shards: &ShardSelector) -> bool {
        shards.contains(match shards.field() {
            ShardField::Uid => self.uid_hash,
            ShardField::Namespace => ShardHash::of(self.key.namespace().unwrap_or_default()),
        })
    }

    /// Whether no selector tells the two apart, if they have the same key.
    pub(super) fn is_selected_like(&self, other: &Self) -> bool {
        self.selectable == other.selectable
    }

    /// Keeps the text of the object's block for `thaw`, which reads the object and its neighbours next.
    pub fn thaw(&self, thaw: &mut Thaw) {
        thaw.enter(self.tail.block());
    }

    /// Whether a slice of the object keeps the text of its neighbours too.
    pub fn is_compressed(&self) -> bool {
        self.tail.block().is_some()
    }

    /// Whether both are in the same block, which is inflated once for them, or both are text.
    pub fn is_beside(&self, other: &Self) -> bool {
        match (self.block(), other.block()) {
            (Some(one), Some(other)) => Arc::ptr_eq(&one, &other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// The memory for labels beyond those of usual objects, which [`super::OBJECT_BYTES`] includes.
    pub(super) fn unusual_bytes(&self) -> usize {
        const USUAL: usize = 1 << 10;
        self.labels().bytes().saturating_sub(USUAL)
    }

    /// What its bytes take, compressed or not.
    pub(super) fn kept_bytes(&self) -> usize {
        self.block().map_or(self.tail_len(), |block| block.share_of(self.tail_len()))
    }

    /// The block that has the object; `None` if it is not compressed.
    pub(super) fn block(&self) -> Option<Arc<Block>> {
        self.tail.block()
    }

    /// The block that has the object, and the position of its tail in the text; `None` if it is not compressed.
    pub fn place(&self) -> Option<(Arc<Block>, u32)> {
        self.tail.place()
    }

    /// Moves the tail into a block whose text has it from that position on.
    pub(super) fn move_into(&self, block: Arc<Block>, at: u32) {
        self.tail.move_into(block, at);
    }

    /// The parts of the tail before and after the digits of its version, so that another version can be put in between.
    pub fn tail_around_version(&self) -> (Bytes, Bytes) {
        let tail = self.tail();
        (tail.slice(..self.version_at().start), tail.slice(self.version_at().end..))
    }

    /// The value of `metadata` as upstream wrote it: a JSON object, or an `ObjectMeta` message.
    pub fn metadata(&self) -> Bytes {
        self.tail().slice(self.metadata_at())
    }

    /// `metadata.uid`, read on each call; `None` if there is none, or an empty one.
    pub fn uid(&self) -> Option<String> {
        uid_in(&self.metadata()).filter(|uid| !uid.is_empty())
    }

    /// Whether the object's hash is the one of that metadata.
    pub(crate) fn has_hash_of(&self, metadata: &[u8]) -> bool {
        ShardHash::of(&uid_in(metadata).unwrap_or_default()) == self.uid_hash
    }

    /// The position in the tail of the value of `metadata`.
    pub fn metadata_at(&self) -> Range<usize> {
        self.metadata_at.range()
    }

    /// The position in the tail of the digits of the version, which lies within the metadata.
    pub fn version_at(&self) -> Range<usize> {
        let start = self.version_at as usize;
        start..start + digits(self.version)
    }

    /// The metadata in another form than upstream wrote it: made by `make` on the first call for that encoding, then
    /// kept while it is in use.
    pub fn derived(&self, encoding: Encoding, make: impl FnOnce(&Self) -> Option<Metadata>) -> Option<Metadata> {
        self.derived.get_or_make(encoding, || make(self))
    }

    /// The metadata in another form, for a single use: the kept value if there is one, otherwise the result of `make`,
    /// which is not kept.
    pub fn derived_once(&self, encoding: Encoding, make: impl FnOnce(&Self) -> Option<Metadata>) -> Option<Metadata> {
        self.derived.kept(encoding).unwrap_or_else(|| make(self))
    }

    /// Bytes of metadata that are kept now in other forms.
    pub fn derived_bytes(&self) -> usize {
        self.derived.sum(|metadata| metadata.as_ref().map_or(0, |metadata| metadata.bytes.len()))
    }

    /// Drops the other forms, because the object is no longer part of the newest snapshot; history keeps upstream's
    /// form only.
    pub(super) fn retire(&self) {
        self.derived.retire();
    }

    /// Drops other forms that were not used since the last sweep.
    pub(super) fn sweep(&self) {
        self.derived.sweep();
    }

    /// The value of the schema's field at that place.
    pub fn field(&self, place: FieldPlace) -> &str {
        match place {
            FieldPlace::Name => self.key.name(),
            FieldPlace::Namespace => self.key.namespace().unwrap_or_default(),
            FieldPlace::Value(position) => &self.selectable.fields[position],
        }
    }
}

impl Measured for Object {
    /// A compressed one counts as text, which it becomes when it is sent.
    fn add_to(&self, size: &mut StoreSize) {
        size.objects += 1;
        size.object_bytes += self.tail_len();
        size.derived_bytes += self.derived_bytes();
        size.unusual_bytes += self.unusual_bytes();
    }
}

/// `metadata.uid`, if it is there.
fn uid_in(metadata: &[u8]) -> Option<String> {
    // No `ObjectMeta` message begins with this byte.
    if metadata.starts_with(b"{") { json::uid(metadata) } else { protobuf::uid(metadata) }
}

/// A length or a position in a tail.
pub(super) fn position(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// The position of a version's digits; `None` if it is not written as Go writes numbers.
pub(super) fn version_at(digits_at: &Range<usize>, version: ResourceVersion) -> Option<u32> {
    (digits_at.len() == digits(version)).then(|| position(digits_at.start))
}

/// The number of decimal digits.
fn digits(version: ResourceVersion) -> usize {
    version.value().ilog10() as usize + 1
}
