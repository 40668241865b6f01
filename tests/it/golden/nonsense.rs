//! An upstream that sends what no API server would send: clients get the events before it, then the end of their watch,
//! and nothing that is made up.

use super::recording::{changing, recorded};
use crate::harness::{Gateway, Route, skip, within};

const VERSION: u64 = 368;
/// Longer than the first pause of the reflector after a failure.
const BACKOFF: std::time::Duration = std::time::Duration::from_secs(2);

/// The valid events that precede the invalid one.
fn sensible() -> Vec<String> {
    recorded("live/all.jsonl").split_inclusive('\n').take(2).map(str::to_owned).collect()
}

async fn assert_ends_watches(nonsense: &str) {
    let upstream = changing(VERSION, |name| match name {
        "configmaps" => sensible().concat() + nonsense,
        _ => String::new(),
    })
    .await;
    let gateway = Gateway::start(&upstream.url).await;
    gateway.warm("/api/v1/configmaps").await;
    let watch = gateway.client.watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={VERSION}")).await;
    upstream.go_on();
    let (events, route) = within("the end of the watch", watch.rest()).await;
    assert_eq!((events, route), (sensible().concat(), Route::Served), "{nonsense}");
    // Reads are still answered: from a new state, or forwarded until there is one.
    skip(BACKOFF).await;
    let list = gateway.client.get("/api/v1/configmaps?resourceVersion=0").await;
    assert!(list.status == 200 || list.route == Route::Forwarded("fill_failed".to_owned()), "{list:?}");
}

#[tokio::test]
async fn events_that_are_invalid_or_contradict_earlier_ones_end_watches() {
    let again = sensible().remove(0);
    let strange = again.replace("\"ADDED\"", "\"STRANGE\"");
    let nameless = again.replace("\"name\":\"live-0\",", "").replace("\"369\"", "\"400\"");
    let versionless = again.replace("\"resourceVersion\":\"369\",", "");
    let expired = concat!(
        r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
        r#""message":"too old resource version: 1 (2)","reason":"Expired","code":410}}"#,
        "\n"
    );
    for nonsense in
        ["nonsense\n", "{\"type\":\"ADDED\"}\n", &again, &strange, &nameless, &versionless, "\u{0}\n", expired]
    {
        assert_ends_watches(nonsense).await;
    }
}
