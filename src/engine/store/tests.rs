//! Compares the store with a plain map, and tests its edge cases.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::encode::{Form, Settled};
use base::apimachinery::{
    Encoding, GroupResource, Representation, ResourceVersion, SelectableField, View, selectable_fields,
};

fn version(value: u64) -> ResourceVersion {
    ResourceVersion::new(value).expect("not zero")
}

fn pods() -> Schema {
    let pods = GroupResource { group: "".into(), resource: "pods".into() };
    Schema::new(Shape::typed("Pod", "v1"), selectable_fields(&pods, true))
}

fn pod_json(namespace: &str, name: &str, rv: u64) -> String {
    let metadata = format!(r#""name":"{name}","namespace":"{namespace}","resourceVersion":"{rv}""#);
    let head = format!(r#""kind":"Pod","apiVersion":"v1","metadata":{{{metadata},"labels":{{"app":"a\u003cb"}}}}"#);
    let spec = format!(r#"{{"nodeName":"n{rv}","hostNetwork":true}}"#);
    format!(r#"{{{head},"spec":{spec},"status":{{"phase":"Running"}}}}"#)
}

fn event_json(kind: ChangeKind, object: &str) -> String {
    let kind = match kind {
        ChangeKind::Added => "ADDED",
        ChangeKind::Modified => "MODIFIED",
        ChangeKind::Deleted | ChangeKind::Gone | ChangeKind::Reselected => "DELETED",
    };
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn pod(schema: &Schema, namespace: &str, name: &str, rv: u64) -> Object {
    Object::from_event(pod_json(namespace, name, rv).into(), schema).expect("a pod")
}

#[test]
fn values_for_selectors_are_read_from_the_bytes() {
    let schema = pods();
    let pod = pod(&schema, "ns", "p", 7);
    assert_eq!((pod.key.as_str(), pod.version), ("ns/p", version(7)));
    assert_eq!(pod.labels().get("app"), Some("a<b"));
    let field = |label| pod.field(schema.place(label).expect("selectable"));
    assert_eq!(
        ["spec.nodeName", "spec.hostNetwork", "status.phase", "metadata.namespace", "status.podIP"].map(field),
        ["n7", "true", "Running", "ns", ""]
    );
    let (head, tail) = pod.tail_around_version();
    assert!(head.ends_with(b"\"resourceVersion\":\"") && tail.starts_with(b"\",\"labels\""));
}

#[test]
fn metadata_is_found_at_any_place_and_between_any_blanks() {
    let schema = Schema::new(Shape::Custom, Vec::new());
    let metadata = r#"{"name":"a","resourceVersion":"1","labels":{"metadata":"}"}}"#;
    for json in [
        format!(r#"{{"kind":"W","metadata":{metadata},"spec":{{"metadata":{{}}}},"zone":1}}"#),
        format!(r#"{{"kind":"W","metadata":{metadata}}}"#),
        format!(r#"{{ "kind" : "W", "metadata" : {metadata} , "spec" : {{}} }}"#),
        format!("{{\"metadata\":{metadata}\n}}\n"),
        format!(r#"{{"metadata":{metadata},"\u0073pec":{{}}}}"#),
    ] {
        let object = Object::from_event(json.clone().into(), &schema).expect("an object");
        assert_eq!(object.metadata(), metadata, "{json}");
    }
}

#[test]
fn fields_are_strings_booleans_and_integers_at_any_place() {
    let paths =
        [".spec.size", ".spec.on", ".spec.share", ".spec.deep.name", ".spec.list.name", ".kind", ".metadata.uid"];
    let schema = Schema::new(Shape::Custom, paths.iter().filter_map(|path| SelectableField::custom(path)).collect());
    let json = r#"{"kind":"W","metadata":{"labels":null,"name":"a","resourceVersion":"1","uid":"u"},
        "spec":{"size":-3,"on":false,"share":1.5,"deep":{"n":1,"name":"\u0041"},"list":[{"name":"x"}]}}"#;
    let object = Object::from_event(json.into(), &schema).expect("an object");
    let fields: Vec<_> = schema.places().iter().map(|place| object.field(*place)).collect();
    assert_eq!(fields, ["-3", "false", "", "A", "", "W", "u"]);
    assert_eq!(object.labels().iter().count(), 0);
}

#[test]
fn objects_of_another_shape_are_refused() {
    let schema = pods();
    for json in [
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","resourceVersion":"1"}}"#,
        r#"{"kind":"Pod","apiVersion":"v1","spec":{},"metadata":{"name":"a","resourceVersion":"1"}}"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1"}}"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"x"}}"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"1"}"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":[]}"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"1"},"metadata":{"name":"a"}}"#,
    ] {
        assert!(Object::from_event(Bytes::from_static(json.as_bytes()), &schema).is_err(), "{json}");
    }
}

#[test]
fn versions_that_do_not_rise_are_refused_without_effect() {
    let (mut writer, reader) = filled(&[], 10, 100);
    let late = pod(reader.schema(), "ns", "p", 10);
    let refused = writer.apply(ChangeKind::Added, late, Bytes::new());
    assert_eq!(refused.map(|change| change.version), Err(OutOfOrder { given: version(10), progress: version(10) }));
    writer.advance(version(9));
    assert_eq!((reader.progress(), reader.snapshot().len()), (version(10), 0));
}

/// As etcd deletes all keys of one lease.
#[test]
fn objects_that_expire_together_are_deleted_at_one_version() {
    let schema = pods();
    let (mut writer, reader) = filled(&[("ns", "a"), ("ns", "b"), ("ns", "c")], 10, 1 << 20);
    let delete = |writer: &mut Writer, name: &str| {
        let gone = pod(&schema, "ns", name, 11);
        writer.apply(ChangeKind::Deleted, gone, Bytes::new()).map(|change| change.number)
    };
    assert_eq!((delete(&mut writer, "a"), delete(&mut writer, "b")), (Ok(FIRST_CHANGE), Ok(FIRST_CHANGE + 1)));
    assert_eq!((reader.progress(), reader.snapshot().len()), (version(11), 1));
    // An object that does not exist, or another kind of change, is out of order.
    let out_of_order = || OutOfOrder { given: version(11), progress: version(11) };
    assert_eq!(delete(&mut writer, "a"), Err(out_of_order()));
    let changed = writer.apply(ChangeKind::Modified, pod(&schema, "ns", "c", 11), Bytes::new());
    assert_eq!(changed.map(|change| change.number), Err(out_of_order()));
    let told = reader.backlog(FIRST_CHANGE, 10).unwrap().changes;
    assert_eq!(told.iter().map(|change| change.object.key.as_str()).collect::<Vec<_>>(), ["ns/a", "ns/b"]);
    assert_eq!(reader.after(version(10)), Ok(FIRST_CHANGE));
    assert_eq!(reader.after(version(11)), Ok(FIRST_CHANGE + 2));
}

#[test]
fn history_covers_exactly_its_window() {
    let (mut writer, reader) = filled(&[("ns", "a")], 10, 0);
    for rv in 11..=310 {
        let object = pod(reader.schema(), "ns", "a", rv);
        writer.apply(ChangeKind::Modified, object, Bytes::new()).expect("rising");
    }
    writer.advance(version(400));
    // Bytes are over; the minimum stays.
    let oldest = version(310 - HistoryLimits::COUNT_MIN as u64);
    for lost in [1, oldest.value() - 1] {
        assert_eq!(reader.after(version(lost)), Err(Expired::Trimmed), "{lost}");
    }
    assert!(reader.after(oldest).is_ok() && reader.exact(oldest).is_some());
    assert!(reader.exact(version(oldest.value() - 1)).is_none());
    assert_eq!(
        reader.exact(version(350)).map(|state| state.version()),
        Some(version(350)),
        "nothing happened since 310"
    );
    assert!(reader.exact(version(401)).is_none(), "not known yet");
    assert_eq!(reader.backlog(FIRST_CHANGE, 10).map(|backlog| backlog.next), None, "gone");
    let ahead = reader.after(version(9999)).expect("starts with what comes next");
    assert_eq!(reader.backlog(ahead, 10).expect("there").caught_up, Some(version(400)));
}

#[tokio::test(start_paused = true)]
async fn history_grows_old_when_nothing_changes() {
    let (mut writer, reader) = filled(&[], 1, 1 << 30);
    for number in 2..=151 {
        writer
            .apply(ChangeKind::Added, pod(reader.schema(), "ns", &format!("p-{number}"), number), Bytes::new())
            .unwrap();
    }
    tokio::time::advance(std::time::Duration::from_secs(299)).await;
    reader.trim_history();
    assert_eq!(reader.size().changes, 150);
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    reader.trim_history();
    assert_eq!(reader.size().changes, HistoryLimits::COUNT_MIN);
    assert!(reader.after(version(51)).is_ok() && reader.after(version(50)).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_version_is_too_old_when_another_has_followed_it_for_long() {
    let seconds = |seconds| tokio::time::advance(std::time::Duration::from_secs(seconds));
    let (mut writer, reader) = filled(&[("ns", "a")], 10, 1 << 30);
    seconds(1000).await;
    assert!(reader.exact(version(10)).is_some(), "it is the newest");
    writer.advance(version(20));
    seconds(200).await;
    writer.advance(version(30));
    seconds(99).await;
    let known = |numbers: &[u64]| numbers.iter().filter(|number| reader.exact(version(**number)).is_some()).count();
    assert_eq!(known(&[10, 19, 20, 30]), 4);
    seconds(2).await;
    assert_eq!((known(&[10, 19]), known(&[20, 29, 30])), (0, 3));
    seconds(1000).await;
    assert_eq!((known(&[10, 20, 29]), known(&[30])), (0, 1));
}

#[tokio::test]
async fn waiting_for_a_version_ends_when_it_is_reached() {
    let (mut writer, reader) = filled(&[], 10, 100);
    let waiting = reader.reached(version(12));
    tokio::pin!(waiting);
    assert!(futures_util::poll!(&mut waiting).is_pending());
    writer.advance(version(12));
    waiting.await;
}

#[test]
fn derived_bytes_are_shared_and_dropped_with_their_leaf() {
    let (mut writer, reader) = filled(&[("ns", "a"), ("ns", "b")], 10, 1 << 20);
    let before = reader.snapshot();
    let form = Representation { encoding: Encoding::Json, view: View::Whole };
    let join = |leaf: &Leaf| leaf.joined(form, |objects| Some(vec![b'x'; objects.len()].into())).expect("it is made");
    let leaf = before.leaves().next().expect("one leaf");
    assert_eq!(join(leaf).as_ptr(), join(leaf).as_ptr());
    let deflate = |leaf: &Leaf| {
        let blocks = vec![b'y'; 3 * leaf.objects().len()].into();
        let deflated = leaf.deflated(form, |_| Some(Deflated { blocks, checksum: 0, length: 2 }));
        deflated.expect("it is made").blocks
    };
    assert_eq!(deflate(leaf).as_ptr(), deflate(leaf).as_ptr());
    assert_eq!((reader.size().joined_bytes, reader.size().deflated_bytes), (2, 6));
    reader.sweep();
    assert_eq!(reader.size().joined_bytes, 2, "asked for since the last sweep");
    reader.sweep();
    assert_eq!(reader.size().joined_bytes, 0);
    join(leaf);
    let object = pod(reader.schema(), "ns", "a", 11);
    writer.apply(ChangeKind::Modified, object, Bytes::new()).expect("rising");
    assert_eq!((leaf.joined_bytes(), reader.size().joined_bytes), (0, 0));
    assert_eq!(reader.size().deflated_bytes, 0);
    assert_ne!(join(leaf).as_ptr(), join(leaf).as_ptr(), "old states keep nothing");
    assert_ne!(deflate(leaf).as_ptr(), deflate(leaf).as_ptr(), "old states keep nothing");
}

#[test]
fn a_state_has_each_key_once() {
    let schema = pods();
    let of = |names: &[&str]| {
        Objects::new(names.iter().map(|name| std::sync::Arc::new(pod(&schema, "ns", name, 1))).collect())
    };
    let ordered = of(&["c", "a", "b"]).expect("each key once");
    let keys: Vec<_> = ordered.as_slice().iter().map(|object| object.key.as_str()).collect();
    assert_eq!(keys, ["ns/a", "ns/b", "ns/c"]);
    assert_eq!(
        of(&["c", "a", "c"]).map_err(|error| error.to_string()).unwrap_err(),
        r#"two objects have the key ns/c"#
    );
}

#[test]
fn an_item_with_a_type_of_its_own_is_refused() {
    let metadata = r#""metadata":{"name":"a","namespace":"ns","resourceVersion":"1"}"#;
    let item = |rest: &str| Object::from_item(format!("{{{metadata}{rest}}}").into(), &pods()).is_ok();
    assert!(item("") && item(r#","spec":{"kind":"x"}"#));
    assert!(!item(r#","kind":"Secret""#) && !item(r#","apiVersion":"v1""#));
    let opening = r#""kind":"Pod","apiVersion":"v1""#;
    let event = |rest: &str| Object::from_event(format!("{{{opening},{metadata}{rest}}}").into(), &pods()).is_ok();
    assert!(event("") && !event(r#","kind":"Pod""#));
}

fn filled(objects: &[(&str, &str)], at: u64, bytes: usize) -> (Writer, Reader) {
    let schema = std::sync::Arc::new(pods());
    let objects = objects.iter().map(|(ns, name)| std::sync::Arc::new(pod(&schema, ns, name, 1))).collect();
    let objects = Objects::new(objects).expect("each key once");
    let limits = HistoryLimits { age: std::time::Duration::from_secs(300), bytes };
    store(schema, &objects, version(at), limits)
}

/// An operation on the store and on the map.
#[derive(Clone, Debug)]
enum Deed {
    Put(u8, u16),
    Delete(u8, u16),
    /// What has not changed since the last time is compressed.
    Compress,
    Sweep,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        3 => (0..4u8, 0..300u16).prop_map(|(ns, name)| Deed::Put(ns, name)),
        2 => (0..4u8, 0..300u16).prop_map(|(ns, name)| Deed::Delete(ns, name)),
        1 => (0..2u8).prop_map(|one| if one == 0 { Deed::Sweep } else { Deed::Compress }),
    ];
    proptest::collection::vec(deed, 1..600)
}

/// Namespaces that sort differently as prefixes of keys than by their names.
const NAMESPACES: [&str; 4] = ["a", "a-b", "a0", "b"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_store_equals_a_plain_map_at_every_version(deeds in deeds(), start in 0..300u16) {
        let (mut writer, reader) = filled(&[], 1, 1 << 30);
        let (mut map, mut states, mut lines) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (at, deed) in deeds.iter().enumerate() {
            let rv = at as u64 + 2;
            let (ns, name) = match deed {
                Deed::Put(ns, name) | Deed::Delete(ns, name) => (ns, name),
                Deed::Sweep => {
                    reader.sweep();
                    continue;
                }
                Deed::Compress => {
                    Settled::of(&reader).iter().for_each(|settled| settled.compress(&reader));
                    continue;
                }
            };
            let (ns, name) = (NAMESPACES[usize::from(*ns)], format!("p-{name}"));
            let key = format!("{ns}/{name}");
            let object = pod(reader.schema(), ns, &name, rv);
            let kind = match (deed, map.contains_key(&key)) {
                (Deed::Put(..), false) => ChangeKind::Added,
                (Deed::Put(..), true) => ChangeKind::Modified,
                (Deed::Delete(..), true) => ChangeKind::Deleted,
                (Deed::Delete(..) | Deed::Compress | Deed::Sweep, _) => continue,
            };
            let before = if kind == ChangeKind::Deleted { map.remove(&key) } else { map.insert(key, rv) };
            let line = event_json(kind, &pod_json(ns, &name, rv));
            let change = writer.apply(kind, object, line.clone().into()).expect("rising");
            lines.push(line);
            prop_assert_eq!(change.before.as_ref().map(|object| object.version.value()), before);
            states.push((rv, map.clone()));
        }
        let form = Form::Whole(reader.schema().shape.clone());
        for (change, line) in reader.backlog(FIRST_CHANGE, lines.len()).expect("all").changes.iter().zip(lines) {
            let frame = form.frame(change, change.kind.into(), &mut Thaw::default()).expect("whole");
            prop_assert_eq!(str::from_utf8(&frame).unwrap(), line);
        }
        for (rv, map) in states.iter().rev() {
            let state = reader.exact(version(*rv)).expect("in the window");
            let held: BTreeMap<_, _> = state.leaves().flat_map(|leaf| leaf.objects())
                .map(|object| (object.key.to_string(), object.version.value())).collect();
            prop_assert_eq!(&held, map);
            prop_assert_eq!(state.len(), map.len());
            for object in state.leaves().flat_map(|leaf| leaf.objects()) {
                let (namespace, name) = (object.key.namespace().unwrap(), object.key.name());
                let json = [reader.schema().shape.object_opening(), &object.tail()].concat();
                prop_assert_eq!(String::from_utf8(json).unwrap(), pod_json(namespace, name, object.version.value()));
            }
        }
        let state = reader.snapshot();
        let bytes: usize = state.leaves().map(|leaf| leaf.bytes()).sum();
        prop_assert_eq!(state.bytes(), bytes);
        for namespace in NAMESPACES {
            let prefix = format!("{namespace}/");
            let from = format!("{prefix}p-{start}");
            let expected: Vec<_> = map.range(from.clone()..).map(|(key, _)| key.clone())
                .filter(|key| key.starts_with(&prefix)).collect();
            let held: Vec<_> = state.objects_from(&prefix, &from).map(|object| object.key.to_string()).collect();
            prop_assert_eq!(&held, &expected);
            prop_assert_eq!(state.count_from(&prefix, &from), expected.len());
            let whole = state.leaves_in(namespace).flat_map(|leaf| leaf.objects()).count();
            prop_assert_eq!(whole, map.keys().filter(|key| key.starts_with(&prefix)).count());
        }
        for leaf in state.leaves() {
            prop_assert!((1..=Leaf::LEN_MAX).contains(&leaf.objects().len()));
        }
    }
}
