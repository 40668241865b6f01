//! One collection in JSON and in protobuf, each in its own cache with its own watch upstream: a version that was read
//! in one encoding is not missing in the other.

use bytes::Bytes;
use kube_fanout::apimachinery::Encoding;

use memchr::memmem;

use super::recording::{changing, recorded};
use crate::harness::{Answer, Gateway, Route, until};

/// The version before the changes.
const VERSION: u64 = 368;
const COLLECTION: &str = "/api/v1/pods";

fn accept(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Json => "application/json",
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
    }
}

async fn read(gateway: &Gateway, path: &str, encoding: Encoding) -> Answer {
    gateway.client.request("GET", path, &[("accept", accept(encoding))], Bytes::new()).await
}

/// Whether memory answers `path`, at that version of the collection; without objects nothing else has the version.
async fn is_served_at(gateway: &Gateway, path: &str, encoding: Encoding, version: u64) -> Option<()> {
    let answer = read(gateway, path, encoding).await;
    let metadata = match encoding {
        Encoding::Json => format!(r#""resourceVersion":"{version}""#).into_bytes(),
        Encoding::Protobuf => [b"\x12\x03", version.to_string().as_bytes()].concat(),
    };
    (answer.route == Route::Served && memmem::find(&answer.body, &metadata).is_some()).then_some(())
}

#[tokio::test]
async fn a_version_that_one_encoding_has_shown_is_the_oldest_that_the_other_shows() {
    // At the end the recorded pods are gone again.
    const LAST: u64 = 421;
    for (ahead, behind) in [(Encoding::Json, Encoding::Protobuf), (Encoding::Protobuf, Encoding::Json)] {
        let upstream = changing(VERSION, |name| match name {
            "pods" => recorded("live/all-pods.jsonl"),
            _ => String::new(),
        })
        .await;
        let gateway = Gateway::start(&upstream.url).await;
        let any = format!("{COLLECTION}?resourceVersion=0");
        for encoding in [ahead, behind] {
            until("the fill", async || is_served_at(&gateway, &any, encoding, VERSION).await).await;
        }
        upstream.go_on_in(ahead);
        until("the changes", async || is_served_at(&gateway, &any, ahead, LAST).await).await;

        let not_older = format!("{COLLECTION}?resourceVersion={VERSION}&resourceVersionMatch=NotOlderThan");
        let get = format!("/api/v1/namespaces/diff-live/pods/lp-0?resourceVersion={VERSION}");
        let watch = format!("{COLLECTION}?watch=1&resourceVersion=0");
        for path in [&any, &not_older, &get, &watch] {
            let answer = read(&gateway, path, behind).await;
            assert_eq!(answer.route, Route::Forwarded("not_reached".to_owned()), "{path} in {behind:?}");
        }
        upstream.go_on_in(behind);
        for path in [&any, &not_older] {
            until("both encodings", async || is_served_at(&gateway, path, behind, LAST).await).await;
        }
    }
}
