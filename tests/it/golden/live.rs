//! One recorded series of changes, seen by many watches: the gateway reads the recording of a watch like its own, and
//! each client's watch gets the bytes that the server sent to the same watch.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::join_all;

use super::recording::{changing, recorded, recorded_bytes};
use crate::harness::{Gateway, Route, Watch, until, within};

/// The version at which all watches start.
const VERSION: u64 = 368;
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const COLLECTIONS: [&str; 3] = ["/api/v1/configmaps", "/api/v1/pods", "/apis/diff.example.com/v1/widgets"];

/// A watch and the file that contains the recorded stream.
#[derive(serde::Deserialize)]
struct Recorded {
    path: String,
    #[serde(default = "json")]
    accept: String,
    file: String,
}

fn json() -> String {
    "application/json".to_owned()
}

/// The recorded changes of a collection.
fn live(collection: &str) -> String {
    match collection {
        "configmaps" => recorded("live/all.jsonl"),
        "pods" => recorded("live/all-pods.jsonl"),
        "widgets" => recorded("live/widgets.jsonl"),
        _ => String::new(),
    }
}

#[tokio::test]
async fn watches_of_recorded_changes_get_the_recorded_bytes() {
    let upstream = changing(VERSION, live).await;
    let gateway = Gateway::start(&upstream.url).await;
    join_all(COLLECTIONS.map(|collection| gateway.warm(collection))).await;
    let watches: BTreeMap<String, Recorded> = serde_json::from_str(&recorded("live/index.json")).unwrap();

    // Each watch is opened twice: before the changes, and afterwards, to read them from history.
    let open =
        async || join_all(watches.values().map(|watch| gateway.client.watch_as(&watch.path, &watch.accept))).await;
    let early = open().await;
    upstream.go_on();
    let mut opened = early.into_iter().zip(watches.values()).collect::<Vec<_>>();
    join_all(opened.iter_mut().map(|(watch, recorded)| assert_gets(watch, recorded))).await;
    let mut late = open().await.into_iter().zip(watches.values()).collect::<Vec<_>>();
    join_all(late.iter_mut().map(|(watch, recorded)| assert_gets(watch, recorded))).await;

    // No watch gets anything beyond the recorded events.
    let mut stopping = gateway.stop();
    let rests = join_all(opened.into_iter().chain(late).map(|(watch, _)| watch.rest()));
    let (rests, _) = within("the end of all watches", async { tokio::join!(rests, stopping.drained()) }).await;
    assert!(rests.iter().all(|(rest, route)| rest.is_empty() && *route == Route::Served), "{rests:?}");
}

/// The streams `pb`, `upstream-configmaps-pb` and `upstream-pods-pb`.
#[tokio::test]
async fn watches_of_recorded_changes_get_the_recorded_protobuf() {
    let upstream = changing(VERSION, live).await;
    let gateway = Gateway::start(&upstream.url).await;
    let rows = [
        ("/api/v1/namespaces/diff-live/configmaps?watch=1&resourceVersion=368", "live/all.pb"),
        ("/api/v1/configmaps?watch=1&resourceVersion=368&allowWatchBookmarks=true", "live/all.pb"),
        ("/api/v1/pods?watch=1&resourceVersion=368", "live/all-pods.pb"),
    ];
    for collection in ["/api/v1/configmaps", "/api/v1/pods"] {
        let path = format!("{collection}?resourceVersion=0");
        let look = async || {
            let answer = gateway.client.request("GET", &path, &[("accept", PROTOBUF)], Bytes::new()).await;
            (answer.route == Route::Served).then_some(())
        };
        until("the cache is filled", look).await;
    }
    let open = async || join_all(rows.iter().map(|(path, _)| gateway.client.watch_as(path, PROTOBUF))).await;
    let early = open().await;
    upstream.go_on();
    let mut watches: Vec<_> = early.into_iter().zip(&rows).collect();
    for (watch, (path, file)) in &mut watches {
        let expected = recorded_bytes(file);
        assert!(watch.bytes(expected.len()).await == expected, "{path} as it happens");
    }
    // The same events from history.
    let mut late = Vec::new();
    for (mut watch, (path, file)) in open().await.into_iter().zip(&rows) {
        let expected = recorded_bytes(file);
        assert!(watch.bytes(expected.len()).await == expected, "{path} from history");
        late.push(watch);
    }
    let mut stopping = gateway.stop();
    let rests = join_all(watches.into_iter().map(|(watch, _)| watch).chain(late).map(Watch::rest));
    let (rests, _) = within("the end of all watches", async { tokio::join!(rests, stopping.drained()) }).await;
    assert!(rests.iter().all(|(rest, route)| rest.is_empty() && *route == Route::Served), "{rests:?}");
}

async fn assert_gets(watch: &mut Watch, Recorded { path, file, .. }: &Recorded) {
    for expected in recorded(&format!("live/{file}")).split_inclusive('\n') {
        let line = watch.line().await.expect("a proper stream");
        assert_eq!(line.as_deref(), Some(expected), "{path}");
    }
}
