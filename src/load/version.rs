//! Reads resource versions from events and lists, and the codes of errors, in JSON and protobuf. Pure.

use std::{borrow::Cow, io};

use memchr::memmem;
use prost::Message;
use serde::Deserialize;

/// The prefix of an encoded protobuf object.
const MAGIC: &[u8] = b"k8s\0";
/// The number of bytes of the length in front of a protobuf event.
const LENGTH: usize = 4;
/// The numbers of bytes at the start and at the end of a list that are kept: where its version is depends on its type.
const HEAD_BYTES: usize = 16 << 10;
const TAIL_BYTES: usize = 4 << 10;
const VERSION: &[u8] = b"\"resourceVersion\":\"";

/// An event in JSON.
#[derive(Deserialize)]
struct JsonEvent<'a> {
    #[serde(borrow)]
    object: JsonObject<'a>,
}

#[derive(Deserialize)]
struct JsonObject<'a> {
    #[serde(borrow, default)]
    metadata: JsonMetadata<'a>,
    /// Only in a Status.
    code: Option<u16>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonMetadata<'a> {
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
}

/// The required fields of `WatchEvent` of meta.k8s.io.
#[derive(Clone, PartialEq, Message)]
struct ProtobufEvent {
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

#[derive(Clone, PartialEq, Message)]
struct RawExtension {
    #[prost(bytes = "vec", tag = "1")]
    raw: Vec<u8>,
}

/// `runtime.Unknown`.
#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

/// An object with its `ObjectMeta`.
#[derive(Clone, PartialEq, Message)]
struct Object {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

#[derive(Clone, PartialEq, Message)]
struct ObjectMeta {
    #[prost(string, tag = "6")]
    resource_version: String,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "6")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ListMeta {
    #[prost(string, tag = "2")]
    resource_version: String,
}

/// The version of an event's object; `None` if it has none.
pub(super) fn of_event(frame: &[u8], is_protobuf: bool) -> Option<String> {
    let version = if is_protobuf {
        Object::decode(&*protobuf_object(frame)?).ok()?.metadata?.resource_version
    } else {
        let event: JsonEvent<'_> = serde_json::from_slice(frame).ok()?;
        event.object.metadata.resource_version.into_owned()
    };
    (!version.is_empty()).then_some(version)
}

/// The code of an ERROR event; 0 if it has none.
pub(super) fn error_code(frame: &[u8], is_protobuf: bool) -> u16 {
    let code = if is_protobuf {
        protobuf_object(frame).and_then(|status| Status::decode(&*status).ok()).map(|status| status.code)
    } else {
        let event: Option<JsonEvent<'_>> = serde_json::from_slice(frame).ok();
        return event.and_then(|event| event.object.code).unwrap_or_default();
    };
    code.and_then(|code| u16::try_from(code).ok()).unwrap_or_default()
}

fn protobuf_object(frame: &[u8]) -> Option<Vec<u8>> {
    let event = ProtobufEvent::decode(frame.get(LENGTH..)?).ok()?;
    Some(Unknown::decode(event.object?.raw.strip_prefix(MAGIC)?).ok()?.raw)
}

/// The start and the end of a list. The list is written to it in pieces.
#[derive(Debug, Default)]
pub(super) struct Ends {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Ends {
    /// The version of the list.
    pub(super) fn version(&self) -> Option<String> {
        if let Some(message) = self.head.strip_prefix(MAGIC) {
            return protobuf_list(message);
        }
        let items = memmem::find(&self.head, b"\"items\":").unwrap_or(self.head.len());
        // The metadata of a list is before its items for built-in types, and after them for custom resources.
        text(&self.head[..items], memmem::find(&self.head[..items], VERSION))
            .or_else(|| text(&self.tail, memmem::rfind(&self.tail, VERSION)))
    }
}

fn text(json: &[u8], at: Option<usize>) -> Option<String> {
    let rest = &json[at? + VERSION.len()..];
    Some(std::str::from_utf8(&rest[..memchr::memchr(b'"', rest)?]).ok()?.to_owned())
}

/// The version of a list in the first bytes of an `Unknown`. The metadata is the first field of the list.
fn protobuf_list(message: &[u8]) -> Option<String> {
    let (type_meta, rest) = field(message, 1)?;
    let list = start_of(rest.get(type_meta..)?, 2)?;
    let (length, metadata) = field(list, 1)?;
    Some(ListMeta::decode(metadata.get(..length)?).ok()?.resource_version)
}

/// The length of a length-delimited field, and the bytes after the length.
fn field(message: &[u8], tag: u8) -> Option<(usize, &[u8])> {
    // Wire type 2: length-delimited.
    let mut rest = message.strip_prefix(&[tag << 3 | 2])?;
    let length = prost::encoding::decode_varint(&mut rest).ok()?;
    Some((usize::try_from(length).ok()?, rest))
}

fn start_of(message: &[u8], tag: u8) -> Option<&[u8]> {
    field(message, tag).map(|(_, rest)| rest)
}

impl io::Write for Ends {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let room = HEAD_BYTES.saturating_sub(self.head.len()).min(piece.len());
        self.head.extend_from_slice(&piece[..room]);
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(TAIL_BYTES)..]);
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn list_version(list: &[u8], piece: usize) -> Option<String> {
        let mut ends = Ends::default();
        list.chunks(piece).for_each(|piece| ends.write_all(piece).unwrap());
        ends.version()
    }

    fn unknown(raw: Vec<u8>) -> Vec<u8> {
        // With its TypeMeta.
        [MAGIC, &[0x0a, 2, b'v', b'1'], &Unknown { raw }.encode_to_vec()].concat()
    }

    #[test]
    fn the_version_of_a_list_is_found_in_front_of_its_items_and_behind_them() {
        let item = r#"{"metadata":{"resourceVersion":"9"}},"#.repeat(2_000);
        let items = item.trim_end_matches(',');
        let typed = format!(r#"{{"kind":"PodList","metadata":{{"resourceVersion":"77"}},"items":[{items}]}}"#);
        let custom = format!(
            r#"{{"apiVersion":"a/v1","items":[{items}],"kind":"L","metadata":{{"continue":"","resourceVersion":"78"}}}}"#
        );
        let empty = r#"{"apiVersion":"a/v1","items":[],"kind":"L","metadata":{"resourceVersion":"79"}}"#;
        for piece in [1, 1000, 1 << 20] {
            assert_eq!(list_version(typed.as_bytes(), piece).as_deref(), Some("77"));
            assert_eq!(list_version(custom.as_bytes(), piece).as_deref(), Some("78"));
            assert_eq!(list_version(empty.as_bytes(), piece).as_deref(), Some("79"));
        }
        let metadata = ListMeta { resource_version: "80".to_owned() }.encode_to_vec();
        let list =
            [&[0x0a, u8::try_from(metadata.len()).unwrap()][..], &metadata, &[0x12, 3, 1, 2, 3].repeat(9_000)].concat();
        assert_eq!(list_version(&unknown(list), 1000).as_deref(), Some("80"));
        for broken in [&b""[..], b"{", b"k8s\0", b"k8s\0\x0a\xff", b"{\"metadata\":{\"resourceVersion\":\"5"] {
            assert_eq!(list_version(broken, 3), None);
        }
    }

    #[test]
    fn events_have_the_version_of_their_object_and_errors_their_code() {
        let json = br#"{"type":"ADDED","object":{"data":{"resourceVersion":"1"},"metadata":{"name":"a","resourceVersion":"5"}}}"#;
        assert_eq!(of_event(json, false).as_deref(), Some("5"));
        let error = br#"{"type":"ERROR","object":{"kind":"Status","metadata":{},"code":410}}"#;
        assert_eq!((error_code(error, false), of_event(error, false)), (410, None));
        let event = |raw| {
            let event = ProtobufEvent { object: Some(RawExtension { raw: unknown(raw) }) }.encode_to_vec();
            [&[0; LENGTH][..], &event].concat()
        };
        let metadata = Some(ObjectMeta { resource_version: "6".to_owned() });
        assert_eq!(of_event(&event(Object { metadata }.encode_to_vec()), true).as_deref(), Some("6"));
        assert_eq!(error_code(&event(Status { code: 410 }.encode_to_vec()), true), 410);
        for broken in [&b""[..], b"\0\0\0\x01", b"{}", b"{\"object\":5}"] {
            assert_eq!((of_event(broken, true), of_event(broken, false), error_code(broken, true)), (None, None, 0));
        }
    }
}
