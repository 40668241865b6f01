//! Compares metadata made from the objects of real servers with what the same servers answered.

use std::time::Duration;

use super::*;
use crate::{
    encode::{
        Form, JsonBookmark,
        protobuf::{FrameReader, ListBody, WatchEvent},
    },
    store::{ChangeKind, HistoryLimits, Schema, store},
};
use base::apimachinery::{Representation, ResourceVersion, View, selectable_fields};

fn golden(name: &str) -> Bytes {
    let path = format!("{}/../../tests/data/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}")).into()
}

fn version(text: &str) -> ResourceVersion {
    ResourceVersion::parse(text).unwrap()
}

fn at(text: &str) -> ListPosition {
    ListPosition::of(version(text))
}

fn resource(group: &str, resource: &str) -> GroupResource {
    GroupResource { group: group.into(), resource: resource.into() }
}

/// A store's schema and its objects.
struct Stored {
    resource: GroupResource,
    schema: Schema,
    objects: Vec<Arc<Object>>,
}

impl Stored {
    fn json(file: &str, resource: GroupResource, shape: Shape) -> Self {
        #[derive(serde::Deserialize)]
        struct Items<'a> {
            #[serde(borrow)]
            items: Vec<&'a serde_json::value::RawValue>,
        }

        let schema = Schema::new(shape, selectable_fields(&resource, true));
        let body = golden(file);
        let items: Items<'_> = serde_json::from_slice(&body).unwrap();
        let item = |item: &serde_json::value::RawValue| Bytes::copy_from_slice(item.get().as_bytes());
        let objects = items.items.into_iter().map(|raw| Arc::new(Object::from_item(item(raw), &schema).unwrap()));
        Self { resource, objects: objects.collect(), schema }
    }

    fn protobuf(file: &str, resource: GroupResource) -> Self {
        let list = ListBody::parse(golden(file)).unwrap();
        let shape = Shape::protobuf(list.kind.strip_suffix("List").unwrap(), &list.api_version);
        let schema = Schema::protobuf(shape, &resource, selectable_fields(&resource, true));
        let objects = list.items().map(|item| Arc::new(Object::from_protobuf(item, &schema).unwrap())).collect();
        Self { resource, schema, objects }
    }

    fn within(mut self, namespace: &str) -> Self {
        self.objects.retain(|object| object.key.namespace() == Some(namespace));
        self
    }

    fn partial(&self, encoding: Encoding, version: MetaVersion) -> Partial {
        Partial::new(encoding, version, &self.schema.shape, &self.resource).unwrap()
    }

    fn list(&self, encoding: Encoding, meta: MetaVersion, version: &str) -> Bytes {
        let partial = self.partial(encoding, meta);
        // Items are the same, whether made from a leaf or for a selected list.
        let items = partial.leaf_items(&self.objects).unwrap();
        assert_eq!(partial.items(self.objects.iter()), Ok(items.clone()));
        assert!(partial.leaf_items_len(&self.objects).is_none_or(|len| len == items.len()));
        let position = at(version);
        let separator = usize::from(encoding == Json && !items.is_empty());
        let (head, tail) = (partial.head(&position, items.len()), partial.tail(&position, items.len()));
        [head, items.slice(separator..), tail].concat().into()
    }
}

fn gadgets() -> Stored {
    Stored::json("v1.36/gadgets.list.json", resource("proto.example.com", "gadgets"), Shape::Custom)
}

use Encoding::{Json, Protobuf};
use MetaVersion::{V1, V1beta1};

#[test]
fn metadata_of_built_in_types_is_a_slice_of_the_bytes_of_upstream() {
    let pods = Stored::json("upstream/pods.list.json", resource("", "pods"), Shape::typed("Pod", "v1"));
    let pods = pods.within("diff-a");
    assert_eq!(pods.list(Json, V1, "362"), golden("answers/accept-pom-pods.txt"));
    let pod = pods.objects.iter().find(|pod| pod.key.name() == "pod-03").unwrap();
    assert_eq!(pods.partial(Json, V1).object(pod), Ok(golden("answers/accept-get-pom.txt")));
    assert_eq!(pod.derived_bytes(), 0);
    let pods = Stored::protobuf("upstream/pods.list.pb", resource("", "pods")).within("diff-a");
    assert_eq!(pods.list(Protobuf, V1, "362"), golden("answers/accept-pom-pb-pods.pb"));
}

#[test]
fn custom_resources_are_put_in_order_once() {
    let widgets = resource("diff.example.com", "widgets");
    let widgets = Stored::json("upstream/widgets.list.json", widgets, Shape::Custom).within("diff-a");
    assert_eq!(widgets.list(Json, V1, "356"), golden("answers/accept-pom-widgets.txt"));
    assert_eq!(widgets.list(Protobuf, V1, "356"), golden("answers/accept-pom-pb-widgets.pb"));
    let kept = widgets.objects[0].derived_bytes();
    assert!(kept > 0);
    assert_eq!(widgets.list(Json, V1, "356"), golden("answers/accept-pom-widgets.txt"));
    assert_eq!(widgets.objects[0].derived_bytes(), kept);
}

#[test]
fn custom_resources_with_everything_in_their_metadata() {
    let gadgets = gadgets();
    for (encoding, ending) in [(Json, "json"), (Protobuf, "pb")] {
        assert_eq!(gadgets.list(encoding, V1, "37"), golden(&format!("v1.36/gadgets.partial.{ending}")));
        assert_eq!(gadgets.list(encoding, V1beta1, "37"), golden(&format!("v1.36/gadgets.partial-v1beta1.{ending}")));
    }
}

#[test]
fn annotations_of_the_version_are_not_of_the_metadata() {
    for (group, name, kind) in
        [("apps", "daemonsets", "DaemonSet"), ("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler")]
    {
        let file = format!("v1.20/{name}");
        let shape = Shape::typed(kind, &format!("{group}/v1"));
        let json = Stored::json(&format!("{file}.list.json"), resource(group, name), shape);
        assert_eq!(json.list(Json, V1, "21649"), golden(&format!("{file}.partial.json")));
        let protobuf = Stored::protobuf(&format!("{file}.list.pb"), resource(group, name));
        assert_eq!(protobuf.list(Protobuf, V1, "21649"), golden(&format!("{file}.partial.pb")));
        if name == "daemonsets" {
            assert_eq!(json.list(Json, V1beta1, "21649"), golden(&format!("{file}.partial-v1beta1.json")));
            assert_eq!(protobuf.list(Protobuf, V1beta1, "21649"), golden(&format!("{file}.partial-v1beta1.pb")));
        }
    }
}

#[test]
fn empty_lists_are_null_in_json() {
    let empty = gadgets().within("elsewhere");
    for (meta, api_version) in [(V1, "meta.k8s.io/v1"), (V1beta1, "meta.k8s.io/v1beta1")] {
        let list = empty.list(Json, meta, "5");
        let expected = format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"{api_version}\",\
             \"metadata\":{{\"resourceVersion\":\"5\"}},\"items\":null}}\n"
        );
        assert_eq!(list, expected);
    }
}

#[test]
fn initial_events_and_bookmarks_of_custom_resources_equal_those_of_upstream() {
    let gadgets = gadgets();
    let bookmark = golden("v1.36/gadgets.watchlist.json");
    let bookmark = bookmark.split(|byte| *byte == b'\n').nth(2).unwrap();
    let bookmark = bookmark.strip_prefix(b"{\"type\":\"BOOKMARK\",\"object\":").unwrap().strip_suffix(b"}").unwrap();
    let (bookmark, at) = JsonBookmark::record(bookmark).unwrap();
    for (encoding, ending) in [(Json, "json"), (Protobuf, "pb")] {
        let partial = gadgets.partial(encoding, V1);
        let mut stream: Vec<u8> = gadgets.objects.iter().flat_map(|object| partial.added(object).unwrap()).collect();
        stream.extend(match &partial {
            Partial::Json(json) => json.bookmark(&bookmark).unwrap().initial_events_end(at),
            Partial::Protobuf(protobuf) => protobuf.bookmark(None).initial_events_end(at),
        });
        assert_eq!(stream, golden(&format!("v1.36/gadgets.partial.watchlist.{ending}")));
    }
}

#[test]
fn bookmarks_of_built_in_types_keep_only_metadata() {
    let shape = Shape::typed("DaemonSet", "apps/v1");
    let Some(Partial::Json(partial)) = Partial::new(Json, V1beta1, &shape, &resource("apps", "daemonsets")) else {
        panic!("a JSON store has JSON");
    };
    let whole = concat!(
        r#"{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"resourceVersion":"5","creationTimestamp":null,"#,
        r#""annotations":{"deprecated.daemonset.template.generation":"0"}},"spec":{}}"#,
    );
    let (whole, _) = JsonBookmark::record(whole.as_bytes()).unwrap();
    let bookmark = partial.bookmark(&whole).unwrap();
    assert_eq!(
        bookmark.event(version("77")),
        concat!(
            r#"{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1","#,
            r#""metadata":{"resourceVersion":"77","creationTimestamp":null}}}"#,
            "\n"
        )
    );

    let mut reader = FrameReader::default();
    reader.push(&golden("upstream/pods.watchlist.pb"));
    let frames = std::iter::from_fn(|| reader.next_frame().unwrap());
    let whole = WatchEvent::parse(&frames.last().unwrap()).unwrap();
    let recorded = crate::encode::protobuf::BookmarkTemplate::record(&whole).unwrap();
    let shape = Shape::protobuf("Pod", "v1");
    let Some(Partial::Protobuf(partial)) = Partial::new(Protobuf, V1, &shape, &resource("", "pods")) else {
        panic!("a protobuf store has protobuf");
    };
    // The metadata of a bookmark is that of a zero value for every type.
    assert_eq!(
        partial.bookmark(Some(&recorded.template)).initial_events_end(version("9")),
        partial.bookmark(None).initial_events_end(version("9"))
    );
}

#[test]
fn live_events_equal_those_of_upstream() {
    let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 1 << 20 };
    let config_maps = resource("", "configmaps");
    let schema = Arc::new(Schema::new(Shape::typed("ConfigMap", "v1"), selectable_fields(&config_maps, true)));
    let partial = Partial::new(Json, V1, &schema.shape, &config_maps).unwrap();
    let (mut writer, _) = store(schema.clone(), &crate::store::Objects::default(), version("368"), limits);
    let mut stream = Vec::new();
    for line in golden("live/all.jsonl").split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let text = std::str::from_utf8(line).unwrap();
        let (kind, object) = text.strip_prefix("{\"type\":\"").unwrap().split_once("\",\"object\":").unwrap();
        let kind = match kind {
            "ADDED" => ChangeKind::Added,
            "MODIFIED" => ChangeKind::Modified,
            _ => ChangeKind::Deleted,
        };
        let object = Bytes::copy_from_slice(object.strip_suffix('}').unwrap().as_bytes());
        let change = writer.apply(kind, Object::from_event(object, &schema).unwrap(), Bytes::new()).unwrap();
        stream.extend(partial.frame(&change, kind.into()).unwrap());
    }
    assert_eq!(Bytes::from(stream), golden("live/pom.jsonl"));
}

#[test]
fn an_object_that_leaves_has_its_old_metadata_and_the_new_version() {
    let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 1 << 20 };
    let gadgets = gadgets();
    let (partials, schema) = ([Json, Protobuf].map(|encoding| gadgets.partial(encoding, V1)), Arc::new(gadgets.schema));
    let (mut writer, _) =
        store(schema.clone(), &crate::store::Objects::new(gadgets.objects.clone()).unwrap(), version("37"), limits);
    let full = String::from_utf8(gadgets.objects[0].tail().to_vec()).unwrap();
    let later = full
        .replace("\"resourceVersion\":\"37\"", "\"resourceVersion\":\"1000\"")
        .replace("\"b\":\"x\"", "\"b\":\"y\"");
    let later = Object::from_event(later.into(), &schema).unwrap();
    let change = writer.apply(ChangeKind::Modified, later, Bytes::new()).unwrap();
    let [json, protobuf] = partials.map(|partial| partial.frame(&change, FrameKind::Left).unwrap());
    let json = String::from_utf8(json.to_vec()).unwrap();
    assert!(json.starts_with("{\"type\":\"DELETED\"") && json.contains("\"resourceVersion\":\"1000\""), "{json}");
    assert!(json.contains("\"b\":\"x\""), "{json}");
    let protobuf = WatchEvent::parse(&protobuf).unwrap();
    let read =
        Schema::protobuf(Shape::protobuf("PartialObjectMetadata", "meta.k8s.io/v1"), &gadgets.resource, Vec::new());
    let read = Object::from_protobuf(protobuf.message, &read).unwrap();
    assert_eq!((&*protobuf.r#type, read.version, read.labels().get("b")), ("DELETED", version("1000"), Some("x")));
}

#[test]
fn metadata_that_kubernetes_would_not_write_is_refused() {
    let schema = Schema::new(Shape::Custom, Vec::new());
    for (member, encodings) in [
        ("\"creationTimestamp\":\"yesterday\"", &[Json, Protobuf][..]),
        ("\"creationTimestamp\":\"2026-11-20T11:49:08.5Z\"", &[Json, Protobuf]),
        ("\"ownerReferences\":{}", &[Json, Protobuf]),
        ("\"generation\":\"x\"", &[Protobuf]),
        ("\"labels\":{\"a\":\"b\"},\"finalizers\":7", &[Protobuf]),
    ] {
        let json = format!("{{\"metadata\":{{\"name\":\"a\",\"resourceVersion\":\"1\",{member}}}}}");
        let object = Object::from_event(json.into(), &schema).unwrap();
        for encoding in encodings {
            let partial = Partial::new(*encoding, V1, &schema.shape, &resource("x.io", "things")).unwrap();
            assert_eq!(partial.object(&object), Err(NotPartial), "{member}");
        }
    }
}

#[test]
fn a_store_answers_in_its_own_encoding() {
    let pods = resource("", "pods");
    assert_eq!(Partial::new(Protobuf, V1, &Shape::typed("Pod", "v1"), &pods), None);
    assert_eq!(Partial::new(Json, V1, &Shape::protobuf("Pod", "v1"), &pods), None);
}

#[test]
fn items_of_a_leaf_are_made_once_and_dropped_when_unused() {
    let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 1 << 20 };
    let gadgets = gadgets();
    let (mut writer, reader) = store(
        Arc::new(gadgets.schema),
        &crate::store::Objects::new(gadgets.objects.clone()).unwrap(),
        version("37"),
        limits,
    );
    let shape = reader.schema().shape.clone();
    let form = |encoding, meta| {
        let representation = Representation { encoding, view: View::Partial(meta) };
        Form::new(representation, &shape, &gadgets.resource).unwrap()
    };
    let snapshot = reader.snapshot();
    let leaf = snapshot.leaves().next().unwrap();
    let mut sum = 0;
    for form in [form(Json, V1), form(Json, V1beta1), form(Protobuf, V1), form(Protobuf, V1beta1)] {
        assert_eq!(form.leaf_items_len(leaf), None);
        let items = form.leaf_items(leaf).unwrap();
        assert_eq!(form.leaf_items(leaf).unwrap().as_ptr(), items.as_ptr());
        assert_eq!(form.leaf_items_len(leaf), Some(items.len()));
        sum += items.len();
        assert_eq!((reader.size().joined_bytes, reader.size().derived_bytes), (sum, 0));
    }
    // Gets and watches keep metadata with the objects.
    form(Json, V1).object(&leaf.objects()[0]).unwrap();
    assert!(reader.size().derived_bytes > 0);
    // Once the items are compressed, their length is known.
    form(Protobuf, V1).deflated_leaf(leaf, || {}).unwrap();
    let known = form(Protobuf, V1).leaf_items_len(leaf);
    reader.sweep();
    form(Protobuf, V1).deflated_leaf(leaf, || panic!("it is kept")).unwrap();
    reader.sweep();
    assert_eq!((reader.size().joined_bytes, reader.size().derived_bytes), (0, 0));
    assert_eq!(form(Protobuf, V1).leaf_items_len(leaf), known);
    // History keeps no other forms of an object.
    form(Json, V1).object(&leaf.objects()[0]).unwrap();
    let deleted = String::from_utf8(leaf.objects()[0].tail().to_vec()).unwrap();
    let deleted = deleted.replace("\"resourceVersion\":\"37\"", "\"resourceVersion\":\"1000\"");
    let deleted = Object::from_event(deleted.into(), reader.schema()).unwrap();
    writer.apply(ChangeKind::Deleted, deleted, Bytes::new()).unwrap();
    assert_eq!(leaf.objects()[0].derived_bytes(), 0);
}
