//! The `ObjectMeta` message of a custom resource, made from its JSON. `required` has the meaning of Kubernetes'
//! generated code: the field is written even if it is empty.

use std::collections::BTreeMap;

use prost::Message as _;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::value::RawValue;

use crate::store::{Metadata, Object, wire::Fields};

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObjectMeta {
    #[prost(string, required, tag = "1")]
    name: String,
    #[prost(string, required, tag = "2")]
    generate_name: String,
    #[prost(string, required, tag = "3")]
    namespace: String,
    #[prost(string, required, tag = "4")]
    self_link: String,
    #[prost(string, required, tag = "5")]
    uid: String,
    #[prost(string, required, tag = "6")]
    resource_version: String,
    #[prost(int64, required, tag = "7")]
    generation: i64,
    #[prost(message, required, tag = "8")]
    creation_timestamp: Timestamp,
    #[prost(message, optional, tag = "9")]
    deletion_timestamp: Option<Timestamp>,
    #[prost(int64, optional, tag = "10")]
    deletion_grace_period_seconds: Option<i64>,
    #[prost(message, repeated, tag = "11")]
    #[serde(deserialize_with = "entries")]
    labels: Vec<Entry>,
    #[prost(message, repeated, tag = "12")]
    #[serde(deserialize_with = "entries")]
    annotations: Vec<Entry>,
    #[prost(message, repeated, tag = "13")]
    owner_references: Vec<OwnerReference>,
    #[prost(string, repeated, tag = "14")]
    finalizers: Vec<String>,
    #[prost(message, repeated, tag = "17")]
    managed_fields: Vec<ManagedFieldsEntry>,
}

/// An entry of a map of strings.
#[derive(Clone, PartialEq, prost::Message)]
struct Entry {
    #[prost(string, required, tag = "1")]
    key: String,
    #[prost(string, required, tag = "2")]
    value: String,
}

/// A time in whole seconds; without fields for a time that was never set.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Timestamp {
    #[prost(int64, optional, tag = "1")]
    seconds: Option<i64>,
    #[prost(int32, optional, tag = "2")]
    nanos: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OwnerReference {
    #[prost(string, required, tag = "1")]
    kind: String,
    #[prost(string, required, tag = "3")]
    name: String,
    #[prost(string, required, tag = "4")]
    uid: String,
    #[prost(string, required, tag = "5")]
    api_version: String,
    #[prost(bool, optional, tag = "6")]
    controller: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    block_owner_deletion: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ManagedFieldsEntry {
    #[prost(string, required, tag = "1")]
    manager: String,
    #[prost(string, required, tag = "2")]
    operation: String,
    #[prost(string, required, tag = "3")]
    api_version: String,
    #[prost(message, optional, tag = "4")]
    time: Option<Timestamp>,
    #[prost(string, required, tag = "6")]
    fields_type: String,
    #[prost(message, optional, tag = "7")]
    fields_v1: Option<FieldsV1>,
    #[prost(string, required, tag = "8")]
    subresource: String,
}

/// JSON, as the object has it.
#[derive(Clone, PartialEq, prost::Message)]
struct FieldsV1 {
    #[prost(bytes = "vec", required, tag = "1")]
    raw: Vec<u8>,
}

/// The message of a custom resource's metadata.
pub(super) fn metadata(object: &Object) -> Option<Metadata> {
    const RESOURCE_VERSION: u32 = 6;
    let metadata: ObjectMeta = serde_json::from_slice(&object.metadata()).ok()?;
    let bytes = metadata.encode_to_vec();
    let version_at = Fields::of(&bytes).flatten().find(|field| field.number == RESOURCE_VERSION)?.at;
    Some(Metadata { bytes: bytes.into(), version_at })
}

/// The entries in the order of their keys.
fn entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Entry>, D::Error> {
    let map = Option::<BTreeMap<String, String>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(map.into_iter().map(|(key, value)| Entry { key, value }).collect())
}

impl Timestamp {
    /// Parses a time as Go writes it: whole seconds, UTC.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let time: jiff::Timestamp = text.parse().ok()?;
        (time.to_string() == text && time.subsec_nanosecond() == 0)
            .then(|| Self { seconds: Some(time.as_second()), nanos: Some(0) })
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not a time in whole seconds"))
    }
}

impl<'de> Deserialize<'de> for FieldsV1 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        Ok(Self { raw: raw.get().as_bytes().to_vec() })
    }
}
