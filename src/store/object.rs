//! One object: the bytes that upstream sent, and the little of them that the gateway has to know.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;

use crate::apimachinery::{Encoding, Labels, ObjectKey, ResourceVersion};

/// An object at one version. Immutable; shared by snapshots, history and answers.
///
/// Invariant: `tail` is valid JSON once the opening of its [`super::Shape`] is put before it; in a protobuf
/// store it is the object's own message.
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
    /// The metadata in another form, in JSON and in protobuf; `None` inside where there is no such form.
    pub(super) derived: [OnceLock<Option<Box<Derived>>>; 2],
}

/// An object's metadata in another form than upstream wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
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

    /// Where in the tail the value of `metadata` stands.
    pub fn metadata_at(&self) -> Range<usize> {
        self.metadata_at.clone()
    }

    /// Where in the tail the digits of the version stand: within the metadata.
    pub fn version_at(&self) -> Range<usize> {
        self.version_at.clone()
    }

    /// The metadata in another form: made by `make` when it is first asked for in that encoding, then kept.
    pub fn derived(&self, encoding: Encoding, make: impl FnOnce(&Self) -> Option<Derived>) -> Option<&Derived> {
        self.derived[encoding as usize].get_or_init(|| make(self).map(Box::new)).as_deref()
    }

    /// How many bytes are kept in other forms now.
    pub fn derived_bytes(&self) -> usize {
        self.derived.iter().filter_map(|derived| derived.get()?.as_ref()).map(|derived| derived.bytes.len()).sum()
    }

    /// Value of the schema's field at `position`.
    pub fn field(&self, position: usize) -> &str {
        &self.fields[position]
    }
}
