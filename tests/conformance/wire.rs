//! Parses protobuf as far as it is needed to compare two responses: the envelope, lists and watch frames. Objects are
//! compared as bytes.

use bytes::{Buf, Bytes, BytesMut};
use serde_json::{Value, json};

use crate::compare::Rules;

/// The prefix of its content types.
pub(crate) const CONTENT: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: &[u8] = b"k8s\0";
/// Fields of `WatchEvent`: the type, and the object in a `RawExtension`.
const EVENT_TYPE: u64 = 1;
const EVENT_OBJECT: u64 = 2;
/// The only field of a `RawExtension`.
const EXTENSION_RAW: u64 = 1;
/// Fields of `Unknown`: the type, and the message.
const TYPE_META: u64 = 1;
const RAW: u64 = 2;
/// The metadata field of a list, and of a `PartialObjectMetadataList` of v1beta1, which has the items first.
const LIST_META: u64 = 1;
const LIST_META_V1BETA1: u64 = 2;
/// The version in `ListMeta`.
const LIST_VERSION: u64 = 2;
/// The metadata field of every object, and fields of its `ObjectMeta`.
const METADATA: u64 = 1;
const METADATA_FIELDS: [(u64, &str); 3] = [(1, "name"), (3, "namespace"), (6, "resourceVersion")];
/// Number of the version in `ObjectMeta`.
const OBJECT_VERSION: u64 = 6;

/// A comparable form, without versions and order where these may differ; `None` if the bytes are invalid.
pub(crate) fn comparable(rules: Rules, body: &[u8], is_watch: bool) -> Option<String> {
    let mut pieces = if is_watch { frames(body)? } else { message(rules, body)? };
    if rules.any_order {
        pieces.sort_unstable();
    }
    Some(pieces.join("\n"))
}

/// An event of a watch.
pub(crate) struct FrameEvent {
    pub(crate) kind: String,
    /// Name, namespace and version of the object.
    pub(crate) metadata: Value,
}

/// Removes a complete frame from the front, and returns it without its length.
pub(crate) fn split_frame(buffer: &mut BytesMut) -> Option<Bytes> {
    let length = usize::try_from(u32::from_be_bytes(*buffer.first_chunk()?)).ok()?;
    if buffer.len() < length + 4 {
        return None;
    }
    buffer.advance(4);
    Some(buffer.split_to(length).freeze())
}

/// `None` if the bytes are invalid.
pub(crate) fn event(frame: &[u8]) -> Option<FrameEvent> {
    let kind = String::from_utf8(field(frame, EVENT_TYPE)?.to_vec()).ok()?;
    let envelope = field(field(frame, EVENT_OBJECT)?, EXTENSION_RAW)?.strip_prefix(MAGIC)?;
    let meta = field(field(envelope, RAW)?, METADATA)?;
    let mut metadata = json!({});
    for (number, name) in METADATA_FIELDS {
        metadata[name] = std::str::from_utf8(field(meta, number).unwrap_or_default()).ok()?.into();
    }
    Some(FrameEvent { kind, metadata })
}

/// The first field of that number.
fn field(message: &[u8], wanted: u64) -> Option<&[u8]> {
    fields(message)?.into_iter().find(|(number, _)| *number == wanted).map(|(_, field)| field)
}

/// The frames of a watch without bookmarks, whose times are arbitrary, except for the one that ends initial events.
fn frames(mut body: &[u8]) -> Option<Vec<String>> {
    let mut frames = Vec::new();
    while !body.is_empty() {
        let (length, rest) = body.split_at_checked(4)?;
        let length = usize::try_from(u32::from_be_bytes(length.try_into().ok()?)).ok()?;
        let (frame, rest) = rest.split_at_checked(length)?;
        body = rest;
        let (_, kind) = *fields(frame)?.iter().find(|(number, _)| *number == EVENT_TYPE)?;
        if kind != b"BOOKMARK" {
            frames.push(frame.escape_ascii().to_string());
        } else if frame.windows(18).any(|part| part == b"initial-events-end") {
            frames.push(without_version(frame)?);
        }
    }
    Some(frames)
}

/// The bookmark's fields, without its version and the lengths around it: a longer version makes them longer.
fn without_version(frame: &[u8]) -> Option<String> {
    let envelope = field(field(frame, EVENT_OBJECT)?, EXTENSION_RAW)?.strip_prefix(MAGIC)?;
    let mut pieces = vec!["BOOKMARK".to_owned()];
    for (number, part) in fields(envelope)? {
        if number != RAW {
            pieces.push(format!("envelope {number} {}", part.escape_ascii()));
            continue;
        }
        for (number, part) in fields(part)? {
            if number != METADATA {
                pieces.push(format!("object {number} {}", part.escape_ascii()));
                continue;
            }
            for (number, part) in fields(part)? {
                let part = if number == OBJECT_VERSION { "*".to_owned() } else { part.escape_ascii().to_string() };
                pieces.push(format!("metadata {number} {part}"));
            }
        }
    }
    Some(pieces.join(", "))
}

/// An object as one piece; a list in its parts.
fn message(rules: Rules, body: &[u8]) -> Option<Vec<String>> {
    let envelope = fields(body.strip_prefix(MAGIC)?)?;
    let (_, type_meta) = *envelope.iter().find(|(number, _)| *number == TYPE_META)?;
    if !type_meta.ends_with(b"List") {
        return Some(vec![body.escape_ascii().to_string()]);
    }
    let is_odd = type_meta.windows(19).any(|part| part == b"meta.k8s.io/v1beta1");
    let list_meta = if is_odd { LIST_META_V1BETA1 } else { LIST_META };
    let mut pieces = Vec::new();
    for (number, field) in envelope {
        if number != RAW {
            pieces.push(format!("envelope {number} {}", field.escape_ascii()));
            continue;
        }
        for (number, item) in fields(field)? {
            if number == list_meta && rules.any_version {
                for (number, meta) in fields(item)? {
                    let meta = if number == LIST_VERSION { "*".to_owned() } else { meta.escape_ascii().to_string() };
                    pieces.push(format!("metadata {number} {meta}"));
                }
            } else {
                pieces.push(format!("item {number} {}", item.escape_ascii()));
            }
        }
    }
    Some(pieces)
}

/// Number and bytes of each field; for a number, the bytes are its varint.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, &[u8])>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (tag, rest) = varint(bytes)?;
        let length = match tag & 7 {
            0 => rest.len() - varint(rest)?.1.len(),
            1 => 8,
            2 => {
                let (length, rest) = varint(rest)?;
                let (field, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                found.push((tag >> 3, field));
                bytes = rest;
                continue;
            }
            5 => 4,
            _ => return None,
        };
        let (field, rest) = rest.split_at_checked(length)?;
        found.push((tag >> 3, field));
        bytes = rest;
    }
    Some(found)
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(9) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}
