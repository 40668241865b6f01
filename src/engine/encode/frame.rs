//! One watch event: in JSON `{"type":…,"object":…}` and a newline (read-path 3.1).

use bytes::Bytes;

use super::protobuf;
use crate::store::{Change, FrameKind, Object, Shape};
use base::apimachinery::{Encoding, ResourceVersion};

/// The frame of `change` for watchers that see it as `kind`.
pub fn frame(change: &Change, kind: FrameKind, shape: &Shape) -> Bytes {
    match (shape.encoding(), kind) {
        (Encoding::Protobuf, _) => protobuf::frame(change, kind, shape),
        (Encoding::Json, FrameKind::Added) => event(b"ADDED", shape, &[&change.object.tail()]),
        (Encoding::Json, FrameKind::Modified) => event(b"MODIFIED", shape, &[&change.object.tail()]),
        (Encoding::Json, FrameKind::Deleted) => event(b"DELETED", shape, &[&change.object.tail()]),
        (Encoding::Json, FrameKind::Left) => left(change.source(kind), change.version, shape),
    }
}

/// The length in bytes of what [`put_added`] appends.
pub fn added_len(object: &Object, shape: &Shape) -> usize {
    let (opening, tail) = (shape.object_opening(), object.tail_len());
    match shape.encoding() {
        Encoding::Json => event_len(b"ADDED", opening, tail),
        Encoding::Protobuf => protobuf::event_len("ADDED", opening, tail),
    }
}

/// Appends the synthetic ADDED event of an object that exists when a watch starts.
pub fn put_added(events: &mut Vec<u8>, object: &Object, shape: &Shape) {
    match shape.encoding() {
        Encoding::Json => put_event(events, b"ADDED", shape, &[&object.tail()]),
        Encoding::Protobuf => events.extend_from_slice(&protobuf::added(object, shape)),
    }
}

/// An ERROR event, after which the stream ends (read-path 2.1).
///
/// `status` is the JSON of a Status, whatever the encoding.
pub fn error_event(status: &[u8], encoding: Encoding) -> Bytes {
    match encoding {
        Encoding::Json => event(b"ERROR", &Shape::Custom, &[status.trim_ascii_end()]),
        Encoding::Protobuf => protobuf::error_event(status),
    }
}

/// The event for an object that left the selector: its last matching content with the new version (read-path 3.3).
fn left(before: &Object, version: ResourceVersion, shape: &Shape) -> Bytes {
    let (head, tail) = before.tail_around_version();
    event(b"DELETED", shape, &[&head, version.to_string().as_bytes(), &tail])
}

pub(super) fn event(kind: &[u8], shape: &Shape, parts: &[&[u8]]) -> Bytes {
    let mut line = Vec::new();
    put_event(&mut line, kind, shape, parts);
    line.into()
}

/// The length in bytes of an event in JSON, whose object has `length` bytes after its opening.
pub(super) fn event_len(kind: &[u8], opening: &[u8], length: usize) -> usize {
    const REST: &[u8] = b"{\"type\":\"\",\"object\":}\n";
    REST.len() + kind.len() + opening.len() + length
}

fn put_event(events: &mut Vec<u8>, kind: &[u8], shape: &Shape, parts: &[&[u8]]) {
    let opening = shape.object_opening();
    let length = parts.iter().map(|part| part.len()).sum::<usize>();
    events.reserve(event_len(kind, opening, length));
    events.extend_from_slice(b"{\"type\":\"");
    events.extend_from_slice(kind);
    events.extend_from_slice(b"\",\"object\":");
    events.extend_from_slice(opening);
    for part in parts {
        events.extend_from_slice(part);
    }
    events.extend_from_slice(b"}\n");
}
