//! One object: the bytes that upstream sent, and the few parts of them that the gateway needs.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;

use super::derived::Derived;
use base::apimachinery::{Encoding, Labels, ObjectKey, ResourceVersion};

/// An object at one version. Immutable; shared by snapshots, history and responses.
///
/// Invariant: the opening of the object's [`super::Shape`] followed by `tail` is the JSON object as upstream wrote it.
/// In a protobuf store, `tail` is the object's own message.
#[derive(Debug)]
pub struct Object {
    pub key: ObjectKey,
    /// The object's version; for a deleted object the version of the deletion.
    pub version: ResourceVersion,
    pub labels: Labels,
    /// Values of the schema's fields, in the schema's order. The value of a field that the object lacks is defined by
    /// the source of the field (read-path 5.1, "Value rules").
    pub(super) fields: Box<[Arc<str>]>,
    /// Everything after the shape's opening, including the closing brace.
    pub(super) tail: Bytes,
    /// The position in `tail` of the digits of `metadata.resourceVersion`.
    pub(super) version_at: Range<usize>,
    /// The position in `tail` of the value of `metadata`: a JSON object with its braces, or a message without its tag
    /// and length.
    pub(super) metadata_at: Range<usize>,
    /// The metadata converted to JSON and to protobuf, where `tail` does not contain it in that form; the inner
    /// `Option` is `None` where that is impossible.
    pub(super) derived: Derived<Encoding, Option<Metadata>>,
}

/// An object's metadata: a JSON object, or an `ObjectMeta` message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub bytes: Bytes,
    /// The position in `bytes` of the digits of the version.
    pub version_at: Range<usize>,
}

impl Object {
    /// Everything after the shape's opening, including the closing brace.
    pub fn tail(&self) -> &Bytes {
        &self.tail
    }

    /// The parts of the tail before and after the digits of its version, so that another version can be put in between.
    pub fn tail_around_version(&self) -> (&[u8], &[u8]) {
        (&self.tail[..self.version_at.start], &self.tail[self.version_at.end..])
    }

    /// The value of `metadata` as upstream wrote it: a JSON object, or an `ObjectMeta` message.
    pub fn metadata(&self) -> Bytes {
        self.tail.slice(self.metadata_at.clone())
    }

    /// The position in the tail of the value of `metadata`.
    pub fn metadata_at(&self) -> Range<usize> {
        self.metadata_at.clone()
    }

    /// The position in the tail of the digits of the version, which lies within the metadata.
    pub fn version_at(&self) -> Range<usize> {
        self.version_at.clone()
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

    /// The value of the schema's field at `position`.
    pub fn field(&self, position: usize) -> &str {
        &self.fields[position]
    }
}
