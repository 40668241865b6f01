//! Single requests: an answer from memory equals the answer of the recorded server, and all other requests are
//! forwarded.
//!
//! `routes.tsv` contains the route of each case, so that a changed route fails the test.

use std::{collections::HashMap, fmt::Write, fs, path::Path};

use base64::Engine;
use bytes::Bytes;
use futures_util::future::join_all;
use kube_fanout::encode::protobuf::{BookmarkTemplate, FrameReader, ListBody, WatchEvent};
use serde_json::Value;

use super::recording::{recorded, recorded_bytes, still};
use crate::harness::{Answer, Gateway, Route, replay::NOT_RECORDED, until};

/// Higher than all versions that the cases name, except for the version in the far future.
const VERSION: u64 = 362;
/// The collections that the cases read from memory.
const COLLECTIONS: [&str; 5] = [
    "/api/v1/pods",
    "/api/v1/configmaps",
    "/api/v1/secrets",
    "/api/v1/namespaces",
    "/apis/diff.example.com/v1/widgets",
];

/// A request and the answer of a real server.
#[derive(serde::Deserialize)]
struct Case {
    name: String,
    method: String,
    path: String,
    headers: HashMap<String, String>,
    status: u16,
    content_type: Option<String>,
    /// The file with the body; `None` for requests that are never answered from memory.
    answer: Option<String>,
}

#[tokio::test]
async fn recorded_answers_come_from_memory_or_the_request_reaches_upstream() {
    let upstream = still(VERSION).await;
    let gateway = Gateway::start(&upstream.url).await;
    join_all(COLLECTIONS.map(|collection| reached(&gateway, collection, "application/json"))).await;
    reached(&gateway, "/api/v1/pods", "application/vnd.kubernetes.protobuf").await;
    // The gateway learns only by trying that custom resources have no protobuf.
    let look = async || {
        let headers = [("accept", "application/vnd.kubernetes.protobuf,application/json")];
        let answer = gateway.client.request("GET", COLLECTIONS[4], &headers, Bytes::new()).await;
        (answer.route == Route::Forwarded("most_recent".to_owned())).then_some(())
    };
    until("custom resources have no protobuf", look).await;
    upstream.forwarded();

    let cases = recorded("cases.jsonl");
    let cases: Vec<Case> = cases.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answers = join_all(cases.iter().map(|case| ask(&gateway, case))).await;

    let (mut routes, mut problems, forwarded) = (String::new(), Vec::new(), upstream.forwarded());
    for (case, answer) in cases.iter().zip(&answers) {
        writeln!(routes, "{}\t{}", case.name, answer.route).unwrap();
        let target = format!("{} {}", case.method, case.path);
        match answer.route {
            Route::Served => problems.extend(differs(case, answer)),
            Route::Forwarded(_) if forwarded.contains(&target) && answer.text() == NOT_RECORDED => {}
            Route::Forwarded(_) | Route::Rejected(_) => {
                problems.push(format!("{}: {target} did not reach upstream", case.name))
            }
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
    assert_routes(&routes);
}

/// Waits until the cache is complete up to [`VERSION`].
async fn reached(gateway: &Gateway, collection: &str, accept: &str) {
    let path = format!("{collection}?resourceVersion={VERSION}");
    let headers = [("accept", accept)];
    let look = async || {
        let answer = gateway.client.request("GET", &path, &headers, Bytes::new()).await;
        (answer.route == Route::Served).then_some(())
    };
    until("the cache is filled", look).await;
}

async fn ask(gateway: &Gateway, case: &Case) -> Answer {
    let headers: Vec<_> = case.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    gateway.client.request(&case.method, &case.path, &headers, Bytes::new()).await
}

/// Describes how an answer from memory differs from the recorded one; `None` if they are equal.
fn differs(case: &Case, answer: &Answer) -> Option<String> {
    let Some(file) = &case.answer else {
        return Some(format!("{}: served, but no answer is recorded", case.name));
    };
    if answer.status != case.status {
        return Some(format!("{}: status {} instead of {}", case.name, answer.status, case.status));
    }
    let content_type = answer.headers["content-type"].to_str().unwrap();
    if Some(content_type) != case.content_type.as_deref() {
        return Some(format!("{}: {content_type} instead of {:?}", case.name, case.content_type));
    }
    if file.ends_with(".pb") {
        let same = without_versions(&recorded_bytes(&format!("answers/{file}"))) == without_versions(&answer.body);
        return (!same).then(|| format!("{} ({}): other bytes than {file}", case.name, case.path));
    }
    let (expected, found) = (without_version(&recorded(&format!("answers/{file}"))), without_version(answer.text()));
    let at = expected.bytes().zip(found.bytes()).position(|(expected, found)| expected != found);
    if expected == found {
        return None;
    }
    let at = at.unwrap_or(expected.len().min(found.len())).saturating_sub(60);
    let piece = |text: &str| {
        String::from_utf8_lossy(&text.as_bytes()[at.min(text.len())..(at + 160).min(text.len())]).into_owned()
    };
    Some(format!("{} ({}):\n  recorded …{}…\n  served   …{}…", case.name, case.path, piece(&expected), piece(&found)))
}

/// Like [`without_version`], for protobuf: a list with its version replaced, or the events of a watch with the versions
/// of bookmarks replaced.
fn without_versions(body: &[u8]) -> Vec<Vec<u8>> {
    if body.starts_with(b"k8s\0") {
        let list = ListBody::parse(Bytes::copy_from_slice(body));
        let Ok(list) = list.map(|list| list.resource_version) else { return vec![body.to_vec()] };
        return vec![replaced(body, &list)];
    }
    let mut frames = FrameReader::default();
    frames.push(body);
    let frames = std::iter::from_fn(|| frames.next_frame().unwrap());
    let bare = |frame: Bytes| match WatchEvent::parse(&frame).unwrap() {
        event if event.r#type == "BOOKMARK" => {
            replaced(&frame, &BookmarkTemplate::record(&event).unwrap().version.to_string())
        }
        _ => frame.to_vec(),
    };
    frames.map(bare).collect()
}

/// Replaces the first occurrence of the digits by stars.
fn replaced(bytes: &[u8], digits: &str) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(at) = bytes.windows(digits.len()).position(|window| !digits.is_empty() && window == digits.as_bytes()) {
        bytes[at..at + digits.len()].fill(b'*');
    }
    bytes
}

/// Replaces the version of the collection, in its metadata, its continue token or its bookmarks: it depends on the
/// moment of the request.
fn without_version(text: &str) -> String {
    let is_stream = text.starts_with("{\"type\":");
    let text = if is_stream { text.lines().map(without_bookmark_version).collect() } else { text.to_owned() };
    let Ok(list) = serde_json::from_str::<Value>(&text) else { return text };
    if !list["items"].is_array() {
        return text;
    }
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let text = replace_collection_version(&text, version);
    match list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
        None => text,
        Some(token) => {
            let decoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token).unwrap();
            let decoded = String::from_utf8(decoded).unwrap().replace(&format!("\"rv\":{version}"), "\"rv\":*");
            text.replace(token, &decoded)
        }
    }
}

/// The metadata of a list precedes its items or, for custom resources, follows them.
fn replace_collection_version(text: &str, version: &str) -> String {
    let is_custom = text.trim_start_matches(['{', ' ', '\n']).starts_with("\"apiVersion\"");
    let at = if is_custom { text.rfind("\"resourceVersion\"") } else { text.find("\"resourceVersion\"") }.unwrap();
    let (before, behind) = text.split_at(at);
    format!("{before}{}", behind.replacen(version, "*", 1))
}

fn without_bookmark_version(line: &str) -> String {
    let event: Value = serde_json::from_str(line).unwrap();
    let version = event["object"]["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if event["type"] == "BOOKMARK" {
        line.replace(&format!("\"{version}\""), "*") + "\n"
    } else {
        line.to_owned() + "\n"
    }
}

/// Compares the routes with the recorded table. If they differ, writes the new table to a file and names it.
fn assert_routes(routes: &str) {
    let expected = recorded("routes.tsv");
    if expected == routes {
        return;
    }
    let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join("routes.tsv");
    fs::write(&new, routes).unwrap();
    let changed: Vec<_> = routes.lines().filter(|line| !expected.lines().any(|known| known == *line)).collect();
    panic!("routes have changed; the new table is {}\n{}", new.display(), changed.join("\n"));
}
