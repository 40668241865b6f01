//! The recording of a Kubernetes 1.36 API server as an upstream (`tests/data/golden`).

use std::{collections::HashMap, fs, path::PathBuf};

use bytes::Bytes;
use kube_fanout::apimachinery::{Encoding, ResourceVersion};
use kube_fanout::encode::protobuf::{BookmarkTemplate, FrameReader, WatchEvent};
use memchr::memmem;
use serde_json::{Value, value::RawValue};

use crate::harness::replay::{Collection, Replay};

/// The recorded collections and their paths.
const COLLECTIONS: [(&str, &str); 8] = [
    ("configmaps", "/api/v1/configmaps"),
    ("pods", "/api/v1/pods"),
    ("secrets", "/api/v1/secrets"),
    ("services", "/api/v1/services"),
    ("namespaces", "/api/v1/namespaces"),
    ("nodes", "/api/v1/nodes"),
    ("deployments", "/apis/apps/v1/deployments"),
    ("widgets", "/apis/diff.example.com/v1/widgets"),
];
/// The recorded discovery documents and their paths.
const DOCUMENTS: [(&str, &str); 2] = [("discovery-api", "/api"), ("discovery-apis", "/apis")];

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A text file of the recording.
pub(super) fn recorded(name: &str) -> String {
    String::from_utf8(recorded_bytes(name)).unwrap()
}

/// A binary file of the recording.
pub(super) fn recorded_bytes(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The recorded collections, then a bookmark with `version`, as if other resources had changed up to this version.
pub(crate) async fn still(version: u64) -> Replay {
    let collections = in_json(|name| {
        let watch_list = recorded(&format!("upstream/{name}.watchlist.json"));
        let head = with_items(&recorded(&format!("upstream/{name}.list.json")), 1);
        let watch_list = watch_list.clone() + &bookmark(&watch_list, version, false);
        Collection { head: head.into(), watch_list: watch_list.into(), ..Default::default() }
    })
    .chain([still_protobuf("pods", "/api/v1/pods", version)]);
    start(collections).await
}

/// Like [`still`], for one collection in protobuf.
fn still_protobuf(name: &str, path: &str, version: u64) -> ((String, Encoding), Collection) {
    let bytes = |suffix: &str| Bytes::from(recorded_bytes(&format!("upstream/{name}.{suffix}.pb")));
    let later = end_bookmark(name).event(ResourceVersion::new(version).unwrap());
    let watch_list = [&*bytes("watchlist"), &*later].concat().into();
    ((path.to_owned(), Encoding::Protobuf), Collection { head: bytes("list"), watch_list, ..Default::default() })
}

/// Empty collections at a version, followed by the recorded changes.
pub(super) async fn changing(version: u64, live: impl Fn(&str) -> String) -> Replay {
    let collections = in_json(|name| {
        let watch_list = recorded(&format!("upstream/{name}.watchlist.json"));
        let list = recorded(&format!("upstream/{name}.list.json"));
        let head = at_version(&with_items(&list, 0), version);
        let watch_list = bookmark(&watch_list, version, true).into();
        Collection { head: head.into(), watch_list, live: live(name).into() }
    });
    let in_protobuf = [("configmaps", "/api/v1/configmaps", "all.pb"), ("pods", "/api/v1/pods", "all-pods.pb")];
    start(collections.chain(in_protobuf.map(|(name, path, live)| changing_protobuf(name, path, live, version)))).await
}

/// Like [`changing`], for one collection in protobuf.
fn changing_protobuf(name: &str, path: &str, live: &str, version: u64) -> ((String, Encoding), Collection) {
    let watch_list = end_bookmark(name).initial_events_end(ResourceVersion::new(version).unwrap());
    let mut head = recorded_bytes(&format!("upstream/{name}.list.pb"));
    // The first of the versions is that of the list, which has three digits like this one.
    let at = memmem::find(&head, b"\x12\x03").unwrap() + 2;
    head.splice(at..at + 3, version.to_string().into_bytes());
    let head = head.into();
    let live = recorded_bytes(&format!("live/{live}")).into();
    ((path.to_owned(), Encoding::Protobuf), Collection { head, watch_list, live })
}

/// The bookmark at the end of a recorded watch-list, with a replaceable version.
fn end_bookmark(name: &str) -> BookmarkTemplate {
    let mut frames = FrameReader::default();
    frames.push(&recorded_bytes(&format!("upstream/{name}.watchlist.pb")));
    let last = std::iter::from_fn(|| frames.next_frame().unwrap()).last().unwrap();
    BookmarkTemplate::record(&WatchEvent::parse(&last).unwrap()).unwrap().template
}

fn in_json(collection: impl Fn(&str) -> Collection) -> impl Iterator<Item = ((String, Encoding), Collection)> {
    COLLECTIONS.iter().map(move |(name, path)| ((path.to_string(), Encoding::Json), collection(name)))
}

async fn start(collections: impl Iterator<Item = ((String, Encoding), Collection)>) -> Replay {
    let documents = DOCUMENTS.iter().map(|(name, path)| (path.to_string(), recorded(&format!("upstream/{name}.json"))));
    let definition = definitions().into_iter();
    Replay::start(documents.chain(definition).collect(), collections.collect()).await
}

/// Each custom resource definition by its path.
fn definitions() -> HashMap<String, String> {
    let list = recorded("upstream/crds.list.json");
    let list: HashMap<String, Box<RawValue>> = serde_json::from_str(&list).unwrap();
    let items: Vec<&RawValue> = serde_json::from_str(list["items"].get()).unwrap();
    let path = |item: &RawValue| {
        let item: Value = serde_json::from_str(item.get()).unwrap();
        format!("{DEFINITIONS}/{}", item["metadata"]["name"].as_str().unwrap())
    };
    items.into_iter().map(|item| (path(item), item.get().to_owned())).collect()
}

/// The list with only its first `count` items; all other bytes are unchanged.
fn with_items(list: &str, count: usize) -> String {
    let members: HashMap<&str, &RawValue> = serde_json::from_str(list).unwrap();
    let all = members["items"].get();
    let items: Vec<&RawValue> = serde_json::from_str(all).unwrap();
    let kept: Vec<_> = items.iter().take(count).map(|item| item.get()).collect();
    list.replace(all, &format!("[{}]", kept.join(",")))
}

/// The list with another version of the collection, which is the first one in it.
fn at_version(list: &str, version: u64) -> String {
    let (before, from) = list.split_once("\"resourceVersion\":\"").unwrap();
    let (_, after) = from.split_once('"').unwrap();
    format!("{before}\"resourceVersion\":\"{version}\"{after}")
}

/// The bookmark at the end of a recorded watch-list with another version; without the annotation of the end of the
/// initial events unless `is_end`.
fn bookmark(watch_list: &str, version: u64, is_end: bool) -> String {
    let line = watch_list.lines().last().unwrap();
    let event: Value = serde_json::from_str(line).unwrap();
    let recorded = event["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    let line =
        line.replace(&format!("\"resourceVersion\":\"{recorded}\""), &format!("\"resourceVersion\":\"{version}\""));
    let end = "\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}";
    let line = if is_end { line } else { line.replace(&format!(",{end}"), "").replace(&format!("{end},"), "") };
    line + "\n"
}
