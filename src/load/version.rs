//! Reads resource versions from events and the codes of errors, in JSON and protobuf. Pure.

use std::borrow::Cow;

use prost::Message;
use serde::Deserialize;

/// The prefix of an encoded protobuf object.
pub(super) const MAGIC: &[u8] = b"k8s\0";
/// The number of bytes of the length in front of a protobuf event.
const LENGTH: usize = 4;

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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn unknown(raw: Vec<u8>) -> Vec<u8> {
        // With its TypeMeta.
        [MAGIC, &[0x0a, 2, b'v', b'1'], &Unknown { raw }.encode_to_vec()].concat()
    }

    #[test]
    fn events_have_the_version_of_their_object_and_errors_their_code() {
        let json = br#"{"type":"ADDED","object":{"data":{"resourceVersion":"1"},
            "metadata":{"name":"a","resourceVersion":"5"}}}"#;
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
