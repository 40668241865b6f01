//! The envelope of one object.

use bytes::Bytes;

use crate::store::{
    Object, Shape,
    wire::{bytes_len, put_bytes, put_length},
};
use base::apimachinery::ResourceVersion;

/// The field of the object in `Unknown`; the fields before it are part of the opening.
const RAW: u32 = 2;
/// Fields 3 and 4 of `Unknown`, content encoding and content type: written although they are empty.
pub(super) const CLOSING: &[u8] = b"\x1a\x00\x22\x00";

/// One object, as in the response to a get.
pub fn object(object: &Object, shape: &Shape) -> Bytes {
    envelope(shape.object_opening(), &object.tail())
}

/// A message in an envelope with the opening of its [`Shape`].
pub fn envelope(opening: &[u8], message: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(envelope_len(opening, message.len()));
    put_envelope_head(&mut out, opening, message.len());
    out.extend_from_slice(message);
    out.extend_from_slice(CLOSING);
    out.into()
}

pub(super) fn envelope_len(opening: &[u8], message_len: usize) -> usize {
    opening.len() + bytes_len(RAW, message_len) + CLOSING.len()
}

/// Everything before the message. [`CLOSING`] follows the message.
pub(super) fn put_envelope_head(out: &mut Vec<u8>, opening: &[u8], message_len: usize) {
    out.extend_from_slice(opening);
    put_length(out, RAW, message_len);
}

/// Fields of an object and of its `ObjectMeta`.
pub(super) const METADATA: u32 = 1;
const RESOURCE_VERSION: u32 = 6;

/// An object's message with another version in it. The lengths of the enclosing messages change with the number of
/// digits.
pub(super) fn with_version(object: &Object, version: ResourceVersion) -> Vec<u8> {
    let (tail, metadata, digits) = (object.tail(), object.metadata_at(), object.version_at());
    // The store only accepts objects whose tags and lengths have their shortest encoding.
    let field = |number, at: &std::ops::Range<usize>| at.end - bytes_len(number, at.len());
    let version = version.to_string();
    let mut out = Vec::with_capacity(tail.len() + 24);
    out.extend_from_slice(&tail[..field(METADATA, &metadata)]);
    put_length(&mut out, METADATA, metadata.len() - digits.len() + version.len());
    out.extend_from_slice(&tail[metadata.start..field(RESOURCE_VERSION, &digits)]);
    put_bytes(&mut out, RESOURCE_VERSION, version.as_bytes());
    out.extend_from_slice(&tail[digits.end..]);
    out
}
