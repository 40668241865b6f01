//! A watch in JSON: the lines do not depend on how the bytes are split, and each object is either refused or parsed as
//! serde_json parses it.

#![no_main]

use std::{collections::HashSet, fmt};

use bytes::Bytes;
use kube_fanout::{
    apimachinery::{Encoding, GroupResource, MetaVersion, ObjectKey, selectable_fields},
    encode::partial::Partial,
    reflector::Lines,
    store::{Object, Schema, Shape},
};
use libfuzzer_sys::fuzz_target;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, value::RawValue};

#[derive(serde::Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    object: &'a RawValue,
}

fuzz_target!(|data: &[u8]| {
    let whole = lines(data, data.len().max(1));
    for size in [1, 7] {
        assert_eq!(whole, lines(data, size), "pieces of {size}");
    }
    let pods = GroupResource { group: "".into(), resource: "pods".into() };
    for shape in [Shape::typed("Pod", "v1"), Shape::Custom] {
        let schema = Schema::new(shape, selectable_fields(&pods, true));
        object(data, &schema, &pods);
        for line in &whole {
            if let Ok(Line { object: json }) = serde_json::from_slice(line) {
                object(json.get().as_bytes(), &schema, &pods);
            }
        }
    }
});

fn lines(data: &[u8], size: usize) -> Vec<Bytes> {
    let (mut lines, mut found) = (Lines::default(), Vec::new());
    for piece in data.chunks(size) {
        lines.push(piece);
        while let Some(line) = lines.next_line().expect("shorter than the limit") {
            found.push(line);
        }
    }
    found
}

fn object(json: &[u8], schema: &Schema, resource: &GroupResource) {
    let Ok(object) = Object::from_event(Bytes::copy_from_slice(json), schema) else { return };
    for encoding in Encoding::ALL {
        let partial = Partial::new(encoding, MetaVersion::V1, &schema.shape, resource);
        // The result does not matter: only a panic is an error.
        drop(partial.map(|partial| partial.added(&object)));
    }
    // Members that the reader skips may be invalid JSON: then there is nothing to compare with.
    let Ok(value) = serde_json::from_slice::<Value>(json) else { return };
    // Of members that occur twice, each decoder may keep another one.
    if serde_json::from_slice::<NoTwins>(json).is_err() {
        return;
    }
    let metadata = &value["metadata"];
    let text = |name: &str| metadata[name].as_str();
    assert_eq!(object.key, ObjectKey::new(text("namespace"), text("name").expect("it has a name")));
    let digits = text("resourceVersion").expect("it has a version");
    assert_eq!(object.version.to_string(), digits.trim_start_matches('0'));
    assert_eq!(&object.tail()[object.version_at()], digits.as_bytes());
    assert_eq!(serde_json::from_slice::<Value>(&object.metadata()).expect("an object"), *metadata);
    let labels: Vec<_> = object.labels.iter().collect();
    let mut expected: Vec<_> = metadata["labels"].as_object().into_iter().flatten().collect();
    expected.sort_by_key(|(name, _)| *name);
    let expected: Vec<_> = expected.iter().map(|(k, v)| (k.as_str(), v.as_str().expect("text"))).collect();
    assert_eq!(labels, expected);
    for (label, section, name, absent) in [
        ("spec.nodeName", "spec", "nodeName", ""),
        ("spec.hostNetwork", "spec", "hostNetwork", "false"),
        ("status.phase", "status", "phase", ""),
        ("status.podIP", "status", "podIP", ""),
    ] {
        let scalar = match &value[section][name] {
            Value::String(text) => text.clone(),
            Value::Bool(value) => value.to_string(),
            Value::Number(number) if !number.is_f64() => number.to_string(),
            Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => absent.to_owned(),
        };
        assert_eq!(object.field(schema.position(label).expect("selectable")), scalar, "{label}");
    }
}

/// Any JSON in which no object has two members with the same name.
struct NoTwins;

impl<'de> Deserialize<'de> for NoTwins {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for NoTwins {
    type Value = Self;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut names = HashSet::new();
        while let Some((name, Self)) = map.next_entry::<String, Self>()? {
            if !names.insert(name) {
                return Err(A::Error::custom("twins"));
            }
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
}
