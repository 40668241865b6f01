//! What was recorded of a 1.36 server, as an upstream (`tests/data/golden`).

use std::{collections::HashMap, fs, path::PathBuf};

use serde_json::{Value, value::RawValue};

use crate::harness::replay::{Collection, Replay};

/// Recorded collections and their paths.
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
/// Recorded documents and their paths.
const DOCUMENTS: [(&str, &str); 2] = [("discovery-api", "/api"), ("discovery-apis", "/apis")];

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A file of the recording.
pub(super) fn recorded(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The collections as they were, then a bookmark: the server went on to this version and nothing happened to them.
pub(super) async fn still(version: u64) -> Replay {
    replay(|name| {
        let watch_list = recorded(&format!("upstream/{name}.watchlist.json"));
        let head = with_items(&recorded(&format!("upstream/{name}.list.json")), 1);
        Collection {
            head,
            watch_list: watch_list.clone() + &bookmark(&watch_list, version, false),
            ..Default::default()
        }
    })
    .await
}

/// Empty collections at a version, to which later happens what was recorded.
pub(super) async fn changing(version: u64, live: impl Fn(&str) -> String) -> Replay {
    replay(|name| {
        let watch_list = recorded(&format!("upstream/{name}.watchlist.json"));
        let head = with_items(&recorded(&format!("upstream/{name}.list.json")), 0);
        Collection { head, watch_list: bookmark(&watch_list, version, true), live: live(name) }
    })
    .await
}

async fn replay(collection: impl Fn(&str) -> Collection) -> Replay {
    let collections = COLLECTIONS.iter().map(|(name, path)| (path.to_string(), collection(name)));
    let documents = DOCUMENTS.iter().map(|(name, path)| (path.to_string(), recorded(&format!("upstream/{name}.json"))));
    let definition = definitions().into_iter();
    Replay::start(documents.chain(definition).collect(), collections.collect()).await
}

/// Definitions by their own paths.
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

/// The list with so many of its items, and its own bytes otherwise.
fn with_items(list: &str, count: usize) -> String {
    let members: HashMap<&str, &RawValue> = serde_json::from_str(list).unwrap();
    let all = members["items"].get();
    let items: Vec<&RawValue> = serde_json::from_str(all).unwrap();
    let kept: Vec<_> = items.iter().take(count).map(|item| item.get()).collect();
    list.replace(all, &format!("[{}]", kept.join(",")))
}

/// The watch-list's end bookmark under another version, as the end or as one in between.
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
