//! One watch event: four bytes of length, then a `WatchEvent` that contains an envelope (read-path 3.1).

use bytes::Bytes;

use super::{
    envelope::{CLOSING, envelope_len, put_envelope_head, with_version},
    status::{STATUS_OPENING, status_message},
};
use crate::store::{
    Change, FrameKind, Object, Shape,
    wire::{bytes_len, put_bytes, put_length},
};

/// The frame of `change` for watchers that see it as `kind`.
pub fn frame(change: &Change, kind: FrameKind, shape: &Shape) -> Bytes {
    let opening = shape.object_opening();
    match kind {
        FrameKind::Added => event("ADDED", opening, &change.object.tail()),
        FrameKind::Modified => event("MODIFIED", opening, &change.object.tail()),
        FrameKind::Deleted => event("DELETED", opening, &change.object.tail()),
        FrameKind::Left => {
            let before = change.source(kind);
            event("DELETED", opening, &with_version(before, change.version))
        }
    }
}

/// The synthetic ADDED event of an object that exists when a watch starts.
pub fn added(object: &Object, shape: &Shape) -> Bytes {
    event("ADDED", shape.object_opening(), &object.tail())
}

/// An ERROR event, after which the stream ends (read-path 2.1). `status` is the JSON of a Status.
pub fn error_event(status: &[u8]) -> Bytes {
    event("ERROR", STATUS_OPENING, &status_message(status))
}

/// Fields of `WatchEvent`, and the only field of the `RawExtension` in it.
const TYPE: u32 = 1;
const OBJECT: u32 = 2;
const RAW: u32 = 1;

/// The length in bytes of what [`event`] returns for a message of `length` bytes.
pub fn event_len(kind: &str, opening: &[u8], length: usize) -> usize {
    let extension = bytes_len(RAW, envelope_len(opening, length));
    4 + bytes_len(TYPE, kind.len()) + bytes_len(OBJECT, extension)
}

/// An event with one message, in an envelope with that opening.
pub fn event(kind: &str, opening: &[u8], message: &[u8]) -> Bytes {
    let envelope = envelope_len(opening, message.len());
    let extension = bytes_len(RAW, envelope);
    let length = bytes_len(TYPE, kind.len()) + bytes_len(OBJECT, extension);
    let mut out = Vec::with_capacity(length + 4);
    // The length always fits into four bytes: frames from upstream above 64 MiB are refused.
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    put_bytes(&mut out, TYPE, kind.as_bytes());
    put_length(&mut out, OBJECT, extension);
    put_length(&mut out, RAW, envelope);
    put_envelope_head(&mut out, opening, message.len());
    out.extend_from_slice(message);
    out.extend_from_slice(CLOSING);
    out.into()
}
