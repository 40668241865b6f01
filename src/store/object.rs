//! One object: the bytes that upstream sent, and the little of them that the gateway has to know.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;

use super::derived::Derived;
use crate::apimachinery::{Encoding, Labels, ObjectKey, ResourceVersion};

/// An object at one version. Immutable; shared by snapshots, history and answers.
///
/// Invariant: once the opening of its [`super::Shape`] is put before it, `tail` is an object in JSON, as valid as upstream
/// wrote it; in a protobuf store it is the object's own message.
#[derive(Debug)]
pub struct Object {
    pub key: ObjectKey,
    /// The object's own version, which for a deleted one is the version of the deletion.
    pub version: ResourceVersion,
    pub labels: Labels,
    /// Values of the schema's fields, in its order; absent in the object is what the field's
    /// source says (read-path 5.1, "Value rules").
    pub(super) fields: Box<[Arc<str>]>,
    /// Everything behind the shape's opening, closing brace included.
    pub(super) tail: Bytes,
    /// Where in `tail` the digits of `metadata.resourceVersion` stand.
    pub(super) version_at: Range<usize>,
    /// Where in `tail` the value of `metadata` stands: braces included, or a message without tag and length.
    pub(super) metadata_at: Range<usize>,
    /// The metadata as it is not in `tail`, in JSON and in protobuf; `None` inside where it has no such form.
    pub(super) derived: Derived<Encoding, Option<Metadata>>,
}

/// An object's metadata: a JSON object, or an `ObjectMeta` message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub bytes: Bytes,
    /// Where in them the digits of the version stand.
    pub version_at: Range<usize>,
}

impl Object {
    /// Everything behind the shape's opening, closing brace included.
    pub fn tail(&self) -> &Bytes {
        &self.tail
    }

    /// The tail cut around the digits of its version, for putting another version there.
    pub fn tail_around_version(&self) -> (&[u8], &[u8]) {
        (&self.tail[..self.version_at.start], &self.tail[self.version_at.end..])
    }

    /// The value of `metadata` as upstream wrote it: a JSON object, or an `ObjectMeta` message.
    pub fn metadata(&self) -> Bytes {
        self.tail.slice(self.metadata_at.clone())
    }

    /// `metadata.uid`, read when it is asked for; empty where there is none.
    pub(super) fn uid(&self) -> String {
        let metadata = &self.tail[self.metadata_at.clone()];
        // No message of protobuf begins so.
        let is_json = metadata.starts_with(b"{");
        let uid = if is_json { super::json::uid(metadata) } else { super::protobuf::uid(metadata) };
        uid.unwrap_or_default()
    }

    /// Where in the tail the value of `metadata` stands.
    pub fn metadata_at(&self) -> Range<usize> {
        self.metadata_at.clone()
    }

    /// Where in the tail the digits of the version stand: within the metadata.
    pub fn version_at(&self) -> Range<usize> {
        self.version_at.clone()
    }

    /// The metadata in another form than upstream wrote it: made by `make` when it is first asked for in that
    /// encoding, then kept for as long as it is asked for.
    pub fn derived(&self, encoding: Encoding, make: impl FnOnce(&Self) -> Option<Metadata>) -> Option<Metadata> {
        self.derived.get_or_make(encoding, || make(self))
    }

    /// The same for this once: what is kept, if it is, or made and not kept.
    pub fn derived_once(&self, encoding: Encoding, make: impl FnOnce(&Self) -> Option<Metadata>) -> Option<Metadata> {
        self.derived.kept(encoding).unwrap_or_else(|| make(self))
    }

    /// How many bytes are kept in other forms now.
    pub fn derived_bytes(&self) -> usize {
        self.derived.sum(|metadata| metadata.as_ref().map_or(0, |metadata| metadata.bytes.len()))
    }

    /// The object leaves the newest snapshot: history keeps it in upstream's form only.
    pub(super) fn retire(&self) {
        self.derived.retire();
    }

    /// Gives back other forms that nobody has asked for since the last sweep.
    pub(super) fn sweep(&self) {
        self.derived.sweep();
    }

    /// Value of the schema's field at `position`.
    pub fn field(&self, position: usize) -> &str {
        &self.fields[position]
    }
}
