//! Takes apart the bytes of real servers, and puts them together again.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{envelope::with_version, *};
use crate::{
    encode::ListPosition,
    store::{ChangeKind, FrameKind, HistoryLimits, Object, Predicate, Schema, Shape, store},
};
use base::apimachinery::{
    FieldSelector, GroupResource, LabelSelector, ResourceVersion, ShardSelector, selectable_fields,
};

fn golden(name: &str) -> Bytes {
    let path = format!("{}/../../tests/data/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}")).into()
}

fn frames(name: &str) -> Vec<WatchEvent> {
    let mut reader = FrameReader::default();
    let mut events = Vec::new();
    for piece in golden(name).chunks(1000) {
        reader.push(piece);
        while let Some(frame) = reader.next_frame().unwrap() {
            events.push(WatchEvent::parse(&frame).unwrap());
        }
    }
    events
}

fn version(text: &str) -> ResourceVersion {
    ResourceVersion::parse(text).unwrap()
}

fn schema(kind: &str, api_version: &str, group: &str, resource: &str) -> Schema {
    let resource = GroupResource { group: group.into(), resource: resource.into() };
    Schema::protobuf(Shape::protobuf(kind, api_version), &resource, selectable_fields(&resource, true))
}

fn pods() -> Schema {
    schema("Pod", "v1", "", "pods")
}

fn objects(list: &ListBody, schema: &Schema) -> Vec<Arc<Object>> {
    list.items().map(|item| Arc::new(Object::from_protobuf(item, schema).unwrap())).collect()
}

fn position(list: &ListBody) -> ListPosition {
    ListPosition::of(version(&list.resource_version))
}

fn rebuilt(envelope: &ListEnvelope, position: &ListPosition, objects: &[Arc<Object>]) -> Vec<u8> {
    let field = envelope.item_field();
    let mut items = Vec::new();
    for object in objects {
        put_item_opening(&mut items, object, field);
        items.extend_from_slice(&object.tail());
    }
    assert_eq!(items.len(), objects.iter().map(|object| item_len(object, field)).sum::<usize>());
    [&*envelope.head(position, items.len()), &items, &envelope.tail(position)].concat()
}

/// File, kind, API version, group and resource of every list that was recorded in both encodings.
const LISTS: [(&str, &str, &str, &str, &str); 13] = [
    ("upstream/pods", "Pod", "v1", "", "pods"),
    ("upstream/configmaps", "ConfigMap", "v1", "", "configmaps"),
    ("upstream/nodes", "Node", "v1", "", "nodes"),
    ("upstream/namespaces", "Namespace", "v1", "", "namespaces"),
    ("upstream/secrets", "Secret", "v1", "", "secrets"),
    ("upstream/services", "Service", "v1", "", "services"),
    ("upstream/deployments", "Deployment", "apps/v1", "apps", "deployments"),
    ("upstream/events", "Event", "v1", "", "events"),
    ("v1.20/events", "Event", "v1", "", "events"),
    ("v1.20/events.events.k8s.io", "Event", "events.k8s.io/v1", "events.k8s.io", "events"),
    ("v1.20/jobs", "Job", "batch/v1", "batch", "jobs"),
    ("v1.20/replicationcontrollers", "ReplicationController", "v1", "", "replicationcontrollers"),
    (
        "v1.20/certificatesigningrequests",
        "CertificateSigningRequest",
        "certificates.k8s.io/v1",
        "certificates.k8s.io",
        "certificatesigningrequests",
    ),
];

#[test]
fn the_json_and_protobuf_readers_agree() {
    #[derive(serde::Deserialize)]
    struct Items<'a> {
        #[serde(borrow)]
        items: Vec<&'a serde_json::value::RawValue>,
    }

    for (file, kind, api_version, group, resource) in LISTS {
        let json = golden(&format!("{file}.list.json"));
        let items: Items<'_> = serde_json::from_slice(&json).unwrap();
        let protobuf = schema(kind, api_version, group, resource);
        let resource = GroupResource { group: group.into(), resource: resource.into() };
        let schema = Schema::new(Shape::typed(kind, api_version), selectable_fields(&resource, true));
        assert_eq!(schema.fields(), protobuf.fields(), "{file}");
        let list = ListBody::parse(golden(&format!("{file}.list.pb"))).unwrap();
        let objects = objects(&list, &protobuf);
        assert_eq!(items.items.len(), objects.len(), "{file}");
        for (item, object) in items.items.iter().zip(&objects) {
            let expected = Object::from_item(Bytes::copy_from_slice(item.get().as_bytes()), &schema).unwrap();
            assert_eq!((&expected.key, expected.version), (&object.key, object.version), "{file}");
            assert_eq!(expected.labels(), object.labels(), "{file} {}", object.key);
            for (place, field) in schema.places().iter().zip(schema.fields()) {
                let (expected, found) = (expected.field(*place), object.field(*place));
                assert_eq!(expected, found, "{file} {} {}", object.key, field.label);
            }
            let metadata: serde_json::Value = serde_json::from_slice(&expected.metadata()).unwrap();
            assert_eq!(metadata["name"], object.key.name(), "{file}");
        }
    }
}

#[test]
fn lists_and_gets_equal_those_of_upstream() {
    for (file, kind, api_version, group, resource) in LISTS {
        let body = golden(&format!("{file}.list.pb"));
        let list = ListBody::parse(body.clone()).unwrap();
        assert_eq!((list.kind.as_str(), list.api_version.as_str()), (&*format!("{kind}List"), api_version));
        let objects = objects(&list, &schema(kind, api_version, group, resource));
        let envelope = ListEnvelope::new(&list.kind, &list.api_version);
        assert_eq!(rebuilt(&envelope, &position(&list), &objects), body, "{file}");
    }
    let list = ListBody::parse(golden("upstream/pods.list.pb")).unwrap();
    let schema = pods();
    let all = objects(&list, &schema);
    let namespaced: Vec<_> = all.iter().filter(|pod| pod.key.namespace() == Some("diff-a")).cloned().collect();
    let answer = golden("answers/accept-pb-pods.pb");
    let newer = position(&ListBody::parse(answer.clone()).unwrap());
    assert_eq!(rebuilt(&ListEnvelope::new("PodList", "v1"), &newer, &namespaced), answer);
    let pod = namespaced.iter().find(|pod| pod.key.name() == "pod-03").unwrap();
    assert_eq!(object(pod, &schema.shape), golden("answers/accept-get-pb-pod.pb"));
}

#[test]
fn pages_have_a_token_for_the_next_one() {
    let position = ListPosition {
        version: version("7"),
        continue_token: Some("token".to_owned()),
        remaining_item_count: Some(300),
        shards: None,
    };
    let body = rebuilt(&ListEnvelope::new("PodList", "v1"), &position, &[]);
    let list = ListBody::parse(body.clone().into()).unwrap();
    assert_eq!((list.resource_version.as_str(), list.r#continue.as_str(), list.items().count()), ("7", "token", 0));
    assert!(body.ends_with(b"\x1a\x05token\x20\xac\x02\x1a\x00\x22\x00"));
}

/// Recorded of a server with `ShardedListAndWatch`.
#[test]
fn a_page_of_shards_equals_that_of_upstream() {
    let body = golden("v1.36/shards/configmaps.pb");
    let list = ListBody::parse(body.clone()).unwrap();
    let range = |start, end| format!("shardRange(object.metadata.uid, '0x{start}', '0x{end}')");
    let (low, high) = (range("0000000000000000", "8000000000000000"), range("ff00000000000000", "10000000000000000"));
    let shards = ShardSelector::parse(&format!("{low}||{high}")).unwrap();
    let objects = objects(&list, &schema("ConfigMap", "v1", "", "configmaps"));
    assert!(objects.iter().all(|object| object.is_in(&shards)));
    let position = ListPosition {
        continue_token: Some(list.r#continue.clone()),
        remaining_item_count: Some(3),
        shards: Some(shards),
        ..position(&list)
    };
    assert_eq!(rebuilt(&ListEnvelope::new("ConfigMapList", "v1"), &position, &objects), body);
}

#[test]
fn initial_events_equal_those_of_upstream() {
    let schema = pods();
    let list = ListBody::parse(golden("upstream/pods.list.pb")).unwrap();
    let all = objects(&list, &schema);
    let namespaced = all.iter().filter(|pod| pod.key.namespace() == Some("diff-a"));
    let events: Vec<u8> = namespaced.flat_map(|pod| added(pod, &schema.shape)).collect();
    assert_eq!(events, golden("answers/watch-rv0-pb-pods.pb"));

    let bookmark = frames("upstream/pods.watchlist.pb").pop().unwrap();
    assert_eq!(bookmark.r#type, "BOOKMARK");
    let recorded = BookmarkTemplate::record(&bookmark).unwrap();
    assert!(recorded.initial_events_end);
    let answer = golden("answers/watch-list-pb-pods.pb");
    let end = frames("answers/watch-list-pb-pods.pb").pop().unwrap();
    let end = recorded.template.initial_events_end(BookmarkTemplate::record(&end).unwrap().version);
    assert_eq!([&*events, &end].concat(), answer);
}

#[test]
fn live_events_equal_those_of_upstream() {
    for (file, schema) in [("live/all.pb", schema("ConfigMap", "v1", "", "configmaps")), ("live/all-pods.pb", pods())] {
        let mut stream = Vec::new();
        for event in frames(file) {
            let object = Object::from_protobuf(event.message.clone(), &schema).unwrap();
            stream.extend_from_slice(&super::event(&event.r#type, schema.shape.object_opening(), &object.tail()));
        }
        assert_eq!(stream, golden(file), "{file}");
    }
}

#[test]
fn another_version_changes_the_lengths_around_it() {
    let schema = pods();
    for event in frames("live/all-pods.pb") {
        let object = Object::from_protobuf(event.message.clone(), &schema).unwrap();
        for digits in ["1", "362", "18446744073709551615"] {
            let changed = Bytes::from(with_version(&object, version(digits)));
            let read = Object::from_protobuf(changed.clone(), &schema).unwrap();
            assert_eq!((read.version, &read.key), (version(digits), &object.key));
            assert_eq!(with_version(&read, object.version), event.message);
        }
    }
}

#[test]
fn bookmarks_take_any_version_and_keep_other_annotations() {
    let end = frames("upstream/pods.watchlist.pb").pop().unwrap();
    let recorded = BookmarkTemplate::record(&end).unwrap();
    let frame = |bytes: Bytes| WatchEvent::parse(&bytes).unwrap();
    let again = frame(recorded.template.initial_events_end(recorded.version));
    assert_eq!(again, end);
    let plain = BookmarkTemplate::record(&frame(recorded.template.event(version("123456789")))).unwrap();
    assert_eq!((plain.version, plain.initial_events_end), (version("123456789"), false));
    assert_eq!(plain.template, recorded.template);

    let nothing = WatchEvent { message: Bytes::new(), ..end };
    assert!(BookmarkTemplate::record(&nothing).is_err());
}

#[test]
fn statuses_are_upstreams() {
    let not_found = concat!(
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"nope\" not found","#,
        r#""reason":"NotFound","details":{"name":"nope","kind":"pods"},"code":404}"#,
    );
    assert_eq!(
        status(not_found.as_bytes()),
        &b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12I\x0a\x06\x0a\0\x12\0\x1a\0\x12\x07Failure\x1a\x15pods \"nope\" \
           not found\x22\x08NotFound*\x12\x0a\x04nope\x12\0\x1a\x04pods(\x002\x000\x94\x03\x1a\0\x22\0"[..]
    );
    let expired = concat!(
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
        r#""message":"too old resource version: 1 (822)","reason":"Expired","code":410}"#,
    );
    let event = error_event(expired.as_bytes());
    assert_eq!(
        event,
        &b"\0\0\0c\x0a\x05ERROR\x12Z\x0aXk8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12@\x0a\x06\x0a\0\x12\0\x1a\0\
           \x12\x07Failure\x1a!too old resource version: 1 (822)\x22\x07Expired0\x9a\x03\x1a\0\x22\0"[..]
    );
    let status = WatchEvent::parse(&event).unwrap().status().unwrap();
    assert_eq!((status.code, status.is_too_large()), (410, false));
}

#[test]
fn frames_longer_than_the_limit_are_refused() {
    let mut reader = FrameReader::default();
    reader.push(b"\x04\0\0");
    assert_eq!(reader.next_frame(), Ok(None));
    reader.push(b"\x01");
    assert_eq!(reader.next_frame(), Err(FrameTooLong));
}

/// The events of upstream's watch with that selector, from its JSON: type, name and version.
fn expected_events(file: &str) -> Vec<(String, String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let lines = golden(file);
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let event = |line| serde_json::from_slice::<serde_json::Value>(line).unwrap();
    lines
        .map(event)
        .map(|event| {
            let metadata = &event["object"]["metadata"];
            (text(&event["type"]), text(&metadata["name"]), text(&metadata["resourceVersion"]))
        })
        .collect()
}

#[test]
fn selectors_match_the_same_objects_in_protobuf_and_json() {
    let no_labels = LabelSelector::parse("").unwrap();
    for (file, selector) in
        [("live/podsphase.jsonl", "status.phase=Running"), ("live/pods.jsonl", "spec.nodeName=node-2")]
    {
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 1 << 20 };
        let (mut writer, reader) = store(Arc::new(pods()), &crate::store::Objects::default(), version("368"), limits);
        let schema = reader.schema().clone();
        let predicate = Predicate::new(no_labels.clone(), &FieldSelector::parse(selector).unwrap(), &schema).unwrap();
        let mut found = Vec::new();
        for event in frames("live/all-pods.pb") {
            let object = Object::from_protobuf(event.message, &schema).unwrap();
            let kind = match &*event.r#type {
                "ADDED" => ChangeKind::Added,
                "MODIFIED" => ChangeKind::Modified,
                _ => ChangeKind::Deleted,
            };
            let change = writer.apply(kind, object, Bytes::new()).unwrap();
            let Some(kind) = change.frame_kind(|object| predicate.matches(object)) else { continue };
            let seen = WatchEvent::parse(&frame(&change, kind, &schema.shape)).unwrap();
            let object = Object::from_protobuf(seen.message, &schema).unwrap();
            if kind == FrameKind::Left {
                let before = change.before.as_ref().unwrap();
                let matched = schema.places().iter().all(|place| before.field(*place) == object.field(*place));
                assert!(matched, "{selector}: what left is seen as it was");
            }
            if object.key.namespace() == Some("diff-live") {
                found.push((seen.r#type, object.key.name().to_owned(), object.version.to_string()));
            }
        }
        assert_eq!(found, expected_events(file), "{selector}");
    }
}
