//! Bytes from upstream in protobuf, as a watch, as a list and as an object: either refused, or parsed as prost parses
//! them.

#![no_main]

#[path = "../../../src/engine/store/protobuf/pod.rs"]
mod pod;

use std::collections::HashMap;

use bytes::Bytes;
use kube_fanout::{
    apimachinery::{Encoding, GroupResource, MetaVersion, ObjectKey, selectable_fields},
    encode::{
        partial::Partial,
        protobuf::{self, BookmarkTemplate, FrameReader, ListBody, WatchEvent},
    },
    store::{Object, Schema, Shape},
};
use libfuzzer_sys::fuzz_target;
use prost::Message as _;

use pod::Pod;

fuzz_target!(|data: &[u8]| {
    let pods = GroupResource { group: "".into(), resource: "pods".into() };
    let schema = Schema::protobuf(Shape::protobuf("Pod", "v1"), &pods, selectable_fields(&pods, true));
    object(Bytes::copy_from_slice(data), &schema, &pods);
    if let Ok(list) = ListBody::parse(Bytes::copy_from_slice(data)) {
        list.items().for_each(|item| object(item, &schema, &pods));
    }
    let mut reader = FrameReader::default();
    for piece in data.chunks(1000) {
        reader.push(piece);
        while let Ok(Some(frame)) = reader.next_frame() {
            let Ok(event) = WatchEvent::parse(&frame) else { return };
            if let Ok(recorded) = BookmarkTemplate::record(&event) {
                let again = WatchEvent::parse(&recorded.template.event(recorded.version)).expect("an event");
                let again = BookmarkTemplate::record(&again).expect("still a bookmark");
                assert_eq!((again.version, again.template), (recorded.version, recorded.template));
            }
            // The result does not matter: only a panic is an error.
            drop(event.status());
            object(event.message, &schema, &pods);
        }
    }
});

fn object(message: Bytes, schema: &Schema, resource: &GroupResource) {
    let Ok(object) = Object::from_protobuf(message.clone(), schema) else { return };
    let pod = Pod::decode(message.clone()).expect("what the reader takes, another decoder takes");
    let selectable = pod.selectable();
    let metadata = pod.metadata.expect("it has metadata");
    let namespace = Some(&*metadata.namespace).filter(|namespace| !namespace.is_empty());
    assert_eq!(object.key, ObjectKey::new(namespace, &metadata.name));
    assert_eq!(object.version.to_string(), metadata.resource_version.trim_start_matches('0'));
    let labels: HashMap<_, _> = object.labels.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    assert_eq!(labels, metadata.labels);
    for (label, value) in selectable {
        assert_eq!(object.field(schema.position(label).expect("selectable")), value, "{label}");
    }
    let event = WatchEvent::parse(&protobuf::added(&object, &schema.shape)).expect("an event");
    assert_eq!(event.message, message);
    let partial = Partial::new(Encoding::Protobuf, MetaVersion::V1, &schema.shape, resource).expect("protobuf");
    let event = WatchEvent::parse(&partial.added(&object).expect("a slice")).expect("an event");
    let partial = Pod::decode(event.message).expect("metadata alone");
    assert_eq!(partial.metadata.map(|metadata| metadata.labels), Some(labels));
}
