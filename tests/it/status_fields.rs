//! The fields of `/status.json`: programs read them, and the manual is what their authors go by.

use std::collections::BTreeSet;

use kube_fanout::status::{
    API_VERSION, Cache, CheckStatus, ClientStatus, Forwarded, Gateway, GatewayStatus, KIND, LastHour, Limit, Peer,
    Reload, Resource, Restart, Server, Setting, SlowWatcher, Trouble, Upstream,
};
use serde_json::Value;

use crate::admin::Scene;

const CHAPTER: &str = include_str!("../../src/manual/status.md");

/// A status with one element in each list.
fn one_of_each() -> GatewayStatus {
    GatewayStatus {
        gateway: Gateway { checks: vec![CheckStatus::default()], ..Gateway::default() },
        upstream: Upstream {
            servers: vec![Server::default()],
            troubles: vec![Trouble::default()],
            ..Upstream::default()
        },
        peers: vec![Peer::default()],
        last_hour: LastHour {
            step_seconds: 10,
            served: vec![0],
            forwarded: vec![0],
            events_sent: vec![0],
            cpu_cores: vec![0.0],
        },
        caches: vec![Cache { lacks: vec![String::new()], last_restart: Some(Restart::default()), ..Cache::default() }],
        resources: vec![Resource::default()],
        forwarded: vec![Forwarded::default()],
        limits: vec![Limit::default()],
        clients: vec![ClientStatus::default()],
        slowest_watchers: vec![SlowWatcher::default()],
        configuration: vec![Setting::default()],
        reload: Reload { needs_restart: vec![String::new()], ..Reload::default() },
        ..GatewayStatus::default()
    }
}

/// The paths of all fields below a value, as the manual writes them. Counts by name, of which any may be there, are one
/// field.
fn paths(value: &Value, at: &str, counts: &[&str], found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if !counts.contains(&at) => {
            for (name, value) in fields {
                let dot = if at.is_empty() { "" } else { "." };
                paths(value, &format!("{at}{dot}{name}"), counts, found);
            }
        }
        Value::Array(elements) if elements.iter().any(Value::is_object) => {
            for element in elements {
                paths(element, &format!("{at}[]"), counts, found);
            }
        }
        Value::Object(_) | Value::Array(_) | Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {
            found.insert(at.to_owned());
        }
    }
}

/// The fields of the chapter's table; `.b` after `x.a` is `x.b`.
fn documented() -> BTreeSet<String> {
    let from = CHAPTER.find("\n## The fields\n").unwrap();
    let to = CHAPTER.find("\n## Trouble with").unwrap();
    let rows = CHAPTER[from..to].lines().filter_map(|line| line.strip_prefix("| `"));
    let mut found = BTreeSet::new();
    for cell in rows.map(|row| row.split(" | ").next().unwrap()) {
        let names: Vec<_> = cell.trim_end_matches('`').split("`, `").collect();
        let parent = names[0].rsplit_once('.').map_or("", |(parent, _)| parent);
        for name in names {
            let path = if name.starts_with('.') { format!("{parent}{name}") } else { name.to_owned() };
            assert!(found.insert(path), "{name} of {cell} is there twice");
        }
    }
    found
}

const COUNTS: [&str; 3] = ["caches[].proofs", "caches[].restarts", "resources[].reasons"];

#[test]
fn the_manual_has_every_field_of_the_status_and_no_other() {
    let status = serde_json::to_value(one_of_each()).unwrap();
    let mut fields = BTreeSet::new();
    paths(&status, "", &COUNTS, &mut fields);
    // An empty list would hide the fields of its elements.
    assert!(!status.to_string().contains("[]"), "{status}");
    let documented = documented();
    let differ: Vec<_> = fields.symmetric_difference(&documented).collect();
    assert!(differ.is_empty(), "in /status.json or in src/manual/status.md alone: {differ:?}");
}

#[tokio::test]
async fn the_answer_has_the_documented_fields_in_the_documented_version() {
    let scene = Scene::start(|_| {}).await;
    let (code, text) = scene.get("/status.json", None).await;
    let status: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code.as_u16(), &status["apiVersion"], &status["kind"]), (200, &API_VERSION.into(), &KIND.into()));
    // Programs ask for these; a field that changes its meaning needs another version.
    assert_eq!((API_VERSION, KIND), ("kube-fanout.io/v1alpha1", "GatewayStatus"));
    assert!(CHAPTER.contains(&format!("`apiVersion: {API_VERSION}`, `kind: {KIND}`.")));
    let (mut found, documented) = (BTreeSet::new(), documented());
    paths(&status, "", &COUNTS, &mut found);
    let lists: Vec<_> = documented.iter().filter_map(|path| path.split_once("[]")).map(|(list, _)| list).collect();
    let unknown: Vec<_> =
        found.iter().filter(|path| !documented.contains(*path) && !lists.contains(&path.as_str())).collect();
    assert!(unknown.is_empty(), "not in src/manual/status.md: {unknown:?}");
    let missing: Vec<_> = documented.iter().filter(|path| !path.contains("[]") && !found.contains(*path)).collect();
    assert!(missing.is_empty(), "not in the answer: {missing:?}");
    // A list without elements is there, too.
    assert!(
        lists.iter().all(|list| status.pointer(&format!("/{}", list.replace('.', "/"))).is_some_and(Value::is_array))
    );
}
