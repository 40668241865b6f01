//! Reads the key, the version, the labels and the selectable fields from an object's protobuf, in one pass over its
//! wire format. Everything else is skipped without decoding it.

use std::ops::Range;

use bytes::Bytes;

use super::{
    object::{self, Object},
    read_error::ReadError,
    schema::Schema,
    wire::{Field, Fields, InvalidWire, Value, varint_len},
};
use base::apimachinery::{ObjectKey, ResourceVersion, ShardHash};

impl Object {
    /// Parses an object's own message: an item of a list, or the `raw` field of an envelope.
    ///
    /// `schema` must come from [`Schema::protobuf`].
    pub fn from_protobuf(message: Bytes, schema: &Schema) -> Result<Self, ReadError> {
        let mut values = vec![None; schema.fields().len()];
        let mut metadata = None;
        for field in Fields::of(&message) {
            let field = field.map_err(ReadError::Wire)?;
            if field.number == METADATA {
                // A decoder may merge two `metadata` fields, but one slice cannot represent the result.
                if metadata.is_some() || !is_shortest(&field) {
                    return Err(ReadError::Shape);
                }
                metadata = Some((Metadata::read(field.value.bytes().map_err(ReadError::Wire)?)?, field.at));
            } else if let Some(tree) = schema.tags.child(field.number) {
                tree.read(field.value, &mut values).map_err(ReadError::Wire)?;
            }
        }
        let (metadata, metadata_at) = metadata.ok_or(ReadError::Missing("metadata"))?;
        let name = Some(metadata.name).filter(|name| !name.is_empty()).ok_or(ReadError::Missing("metadata.name"))?;
        let (digits, digits_at) = metadata.version.ok_or(ReadError::Missing("metadata.resourceVersion"))?;
        let version =
            ResourceVersion::parse(digits).map_err(|_| ReadError::Missing("numeric metadata.resourceVersion"))?;
        let digits_at = metadata_at.start + digits_at.start..metadata_at.start + digits_at.end;
        let version_at = object::version_at(&digits_at, version).ok_or(ReadError::Shape)?;
        let metadata_at = metadata_at.into();
        let key = ObjectKey::new(Some(metadata.namespace).filter(|namespace| !namespace.is_empty()), name);
        let selectable = schema.selectable(metadata.labels.iter().copied(), values);
        let uid_hash = ShardHash::of(metadata.uid);
        let (tail_len, tail, derived) = (object::position(message.len()), message.into(), Default::default());
        Ok(Self { key, version, selectable, tail, tail_len, version_at, metadata_at, uid_hash, derived })
    }
}

/// Field numbers of every object and of its `ObjectMeta`.
const METADATA: u32 = 1;
const NAME: u32 = 1;
const NAMESPACE: u32 = 3;
const UID: u32 = 5;
const RESOURCE_VERSION: u32 = 6;
const LABELS: u32 = 11;

/// The `uid` in an object's `ObjectMeta`; `None` if the message is invalid there or has no `uid`.
pub(super) fn uid(metadata: &[u8]) -> Option<String> {
    let uid = Fields::of(metadata).filter_map(Result::ok).filter(|field| field.number == UID).last()?;
    uid.value.text().ok().map(str::to_owned)
}

/// Whether tag and length have their shortest encoding: only then their positions follow from the position of the
/// value.
fn is_shortest(field: &Field<'_>) -> bool {
    let length = field.at.len() as u64;
    field.at.start - field.whole.start == varint_len(u64::from(field.number) << 3) + varint_len(length)
}

#[derive(Default)]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
    version: Option<(&'a str, Range<usize>)>,
    labels: Vec<(&'a str, &'a str)>,
}

impl<'a> Metadata<'a> {
    fn read(message: &'a [u8]) -> Result<Self, ReadError> {
        let mut found = Self::default();
        for field in Fields::of(message) {
            let field = field.map_err(ReadError::Wire)?;
            match field.number {
                NAME => found.name = field.value.text().map_err(ReadError::Wire)?,
                NAMESPACE => found.namespace = field.value.text().map_err(ReadError::Wire)?,
                UID => found.uid = field.value.text().map_err(ReadError::Wire)?,
                RESOURCE_VERSION => {
                    if found.version.is_some() || !is_shortest(&field) {
                        return Err(ReadError::Shape);
                    }
                    found.version = Some((field.value.text().map_err(ReadError::Wire)?, field.at));
                }
                LABELS => found.labels.push(map_entry(field.value).map_err(ReadError::Wire)?),
                _ => {}
            }
        }
        Ok(found)
    }
}

/// An entry of a map of strings: key 1, value 2, each empty if absent.
fn map_entry(value: Value<'_>) -> Result<(&str, &str), InvalidWire> {
    let (mut key, mut text) = ("", "");
    for field in Fields::of(value.bytes()?) {
        let field = field?;
        match field.number {
            1 => key = field.value.text()?,
            2 => text = field.value.text()?,
            _ => {}
        }
    }
    Ok((key, text))
}

#[cfg(test)]
mod pod;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use prost::Message as _;

    use super::{
        pod::{Pod, PodMetadata, PodSpec, PodStatus},
        *,
    };
    use crate::store::{Shape, wire::put_bytes};
    use base::apimachinery::{GroupResource, selectable_fields};

    fn pods() -> Schema {
        let pods = GroupResource { group: "".into(), resource: "pods".into() };
        Schema::protobuf(Shape::protobuf("Pod", "v1"), &pods, selectable_fields(&pods, true))
    }

    /// Fails if the reader accepts a message and finds something else in it than a full decoder does.
    fn agrees(message: &[u8]) -> Result<(), String> {
        let schema = pods();
        let Ok(object) = Object::from_protobuf(Bytes::copy_from_slice(message), &schema) else { return Ok(()) };
        let pod = Pod::decode(message).map_err(|error| format!("only the reader takes it: {error}"))?;
        let selectable = pod.selectable();
        let metadata = pod.metadata.ok_or("no metadata")?;
        let namespace = Some(&*metadata.namespace).filter(|namespace| !namespace.is_empty());
        let labels: HashMap<_, _> = object.labels().iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        let same = object.key == ObjectKey::new(namespace, &metadata.name)
            && object.version.to_string() == metadata.resource_version.trim_start_matches('0')
            && labels == metadata.labels
            && &object.tail()[object.version_at()] == metadata.resource_version.as_bytes()
            && PodMetadata::decode(object.metadata()).is_ok()
            && selectable.iter().all(|(label, value)| object.field(schema.place(label).unwrap()) == *value);
        if same { Ok(()) } else { Err(format!("{object:?}")) }
    }

    /// A pod with all fields that are read, and with some that are not.
    fn pod() -> Vec<u8> {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let metadata = PodMetadata {
            name: "p".to_owned(),
            namespace: "ns".to_owned(),
            resource_version: "1234".to_owned(),
            labels: [label("app", "x"), label("tier", "")].into(),
        };
        let spec = PodSpec { node_name: "n-1".to_owned(), host_network: true, ..PodSpec::default() };
        let status = PodStatus { phase: "Running".to_owned(), ..PodStatus::default() };
        let mut message = Pod { metadata: Some(metadata), spec, status }.encode_to_vec();
        put_bytes(&mut message, 200, b"unknown");
        message
    }

    proptest! {
        #[test]
        fn damaged_messages_are_refused_or_read_as_another_decoder_reads_them(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
            twice in any::<bool>(),
        ) {
            let mut message = pod();
            if twice {
                message.extend(pod().split_off(cut.index(message.len())));
            } else if changes.is_empty() {
                message.truncate(cut.index(message.len()));
            }
            for (at, byte) in &changes {
                let at = at.index(message.len());
                message[at] = *byte;
            }
            prop_assert_eq!(agrees(&message), Ok(()));
        }

        #[test]
        fn any_bytes_are_refused_or_read_as_another_decoder_reads_them(
            message in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            prop_assert_eq!(agrees(&message), Ok(()));
        }
    }

    #[test]
    fn messages_that_cannot_be_kept_are_refused() {
        let schema = pods();
        assert!(Object::from_protobuf(pod().into(), &schema).is_ok());
        let metadata = |fields: &[(u32, &str)]| {
            let mut metadata = Vec::new();
            for (number, value) in fields {
                put_bytes(&mut metadata, *number, value.as_bytes());
            }
            let mut message = Vec::new();
            put_bytes(&mut message, METADATA, &metadata);
            message
        };
        let twice = [pod(), pod()].concat();
        let long_length = b"\x0a\x88\0\x0a\x01p\x32\x03123".to_vec();
        for message in [
            Vec::new(),
            metadata(&[(NAME, "p")]),
            metadata(&[(RESOURCE_VERSION, "1")]),
            metadata(&[(NAME, ""), (RESOURCE_VERSION, "1")]),
            metadata(&[(NAME, "p"), (RESOURCE_VERSION, "x")]),
            metadata(&[(NAME, "p"), (RESOURCE_VERSION, "1"), (RESOURCE_VERSION, "2")]),
            twice,
            long_length,
        ] {
            assert!(Object::from_protobuf(message.clone().into(), &schema).is_err(), "{message:?}");
        }
    }
}
