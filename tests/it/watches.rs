//! Watches from memory: each stream equals the one of upstream, for any number of watchers and however slowly they
//! read.

use std::time::Duration;

use futures_util::future::join_all;
use http::Request;
use http_body_util::{BodyExt, Full};
use kube_fanout::{
    sim::{Features, Sim},
    store::HistoryLimits,
};
use serde_json::json;

use crate::harness::{Route, World, passing, raw, skip, upstream::pod, within};

/// Shorter than the time between the last bookmark and the end of a watch.
const STEP: Duration = Duration::from_millis(500);

/// A world with changes in its history, and the version before them.
async fn with_history() -> (World, u64) {
    let world = World::start().await;
    world.create_pod("default", "a", "x");
    world.create_pod("default", "b", "y");
    world.gateway.warm("/api/v1/pods").await;
    let before = world.sim.revision();
    change(&world);
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    (world, before)
}

/// Changes of every kind; can be repeated.
fn change(world: &World) {
    world.label_pod("default/a", "y");
    world.create_pod("kube-system", "c", "x");
    world.label_pod("default/a", "x");
    world.delete_pod("kube-system/c");
}

/// Opens each watch of pods at upstream and at the gateway, makes changes until all watches end, and compares all
/// bytes. Returns the number of events.
pub(crate) async fn assert_same_streams(world: &World, paths: &[String], change: impl FnOnce()) -> usize {
    let open = async |path: &String| {
        let request = Request::get(path).body(Full::default()).unwrap();
        let direct = world.sim.handle(request).await.into_body();
        (world.client().watch(path).await, direct)
    };
    let opened = join_all(paths.iter().map(open)).await;
    change();
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    let mut events = 0;
    let ended = join_all(opened.into_iter().map(async |(watch, direct)| tokio::join!(watch.rest(), direct.collect())));
    for (path, ((served, route), direct)) in paths.iter().zip(passing(STEP, ended).await) {
        let direct = direct.unwrap().to_bytes();
        assert_eq!(served, str::from_utf8(&direct).unwrap(), "{path}");
        assert_eq!(route, Route::Served, "{path}");
        events += served.lines().count();
    }
    events
}

#[tokio::test]
async fn streams_are_upstreams_own_wherever_they_start() {
    let (world, before) = with_history().await;
    let watch = "watch=1&timeoutSeconds=10";
    let paths = [
        format!("/api/v1/pods?{watch}&resourceVersion={before}"),
        format!("/api/v1/pods?{watch}&resourceVersion=0"),
        format!("/api/v1/pods?{watch}&resourceVersion=0&allowWatchBookmarks=true"),
        format!("/api/v1/pods?{watch}"),
        format!("/api/v1/pods?{watch}&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"),
        format!(
            "/api/v1/pods?{watch}&resourceVersion={before}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
             &allowWatchBookmarks=true"
        ),
        format!("/api/v1/pods?{watch}&resourceVersion={before}&allowWatchBookmarks=true&labelSelector=app%3Dx"),
        format!("/api/v1/pods?{watch}&resourceVersion={before}&fieldSelector=spec.nodeName%3Dnode-x"),
        format!("/api/v1/namespaces/default/pods?{watch}&resourceVersion={before}"),
        format!("/api/v1/namespaces/kube-system/pods?{watch}&resourceVersion=0&allowWatchBookmarks=true"),
        format!("/api/v1/namespaces/default/pods?{watch}&resourceVersion={before}&fieldSelector=metadata.name%3Da"),
        format!("/api/v1/watch/pods?{watch}&resourceVersion={before}"),
        "/api/v1/watch/namespaces/default/pods?resourceVersion=0&timeoutSeconds=10".to_owned(),
        format!("/api/v1/pods?{watch}&resourceVersion={}", world.sim.revision() + 1_000_000),
    ];
    assert_same_streams(&world, &paths, || change(&world)).await;
}

#[tokio::test]
async fn a_watch_from_a_forgotten_version_is_forwarded_until_its_client_has_caught_up() {
    const CHANGES: usize = HistoryLimits::COUNT_MIN + 10;
    const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let age = Duration::from_secs(10);
    let world = World::start_with(Sim::new(), |config| config.cache.history.age = age).await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    let filled = world.sim.revision();
    (0..CHANGES).for_each(|label| world.label_pod("default/a", &format!("l{label}")));
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    skip(age * 2).await;
    world.label_pod("default/a", "x");
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    let lost = Route::Forwarded("outside_history".to_owned());
    let resumed = format!("/api/v1/pods?watch=1&resourceVersion={filled}");
    for accept in ["application/json", METADATA] {
        let watch =
            world.client().watch_as(&format!("{resumed}&allowWatchBookmarks=true&timeoutSeconds=600"), accept).await;
        let (events, route) = within("its end", passing(STEP, watch.rest())).await;
        assert!(events.lines().all(|event| event.starts_with(r#"{"type":"MODIFIED""#)), "{events}");
        assert_eq!((events.lines().count(), &route), (CHANGES + 1, &lost));
    }
    // If upstream has forgotten the version as well, its own error is forwarded.
    world.sim.forget_history();
    let (_, told) = world.directly(&resumed).await;
    assert!(told.contains(r#""reason":"Expired","code":410}}"#), "{told}");
    assert_eq!(world.client().watch(&resumed).await.rest().await, (told, lost));
}

#[tokio::test]
async fn a_version_before_the_fill_is_forwarded() {
    let (world, _) = with_history().await;
    let path = "/api/v1/pods?watch=1&resourceVersion=1&timeoutSeconds=10";
    let request = Request::get(path).body(Full::default()).unwrap();
    let direct = world.sim.handle(request).await.into_body().collect();
    let watch = world.client().watch(path).await;
    let ((events, route), direct) = passing(STEP, async { tokio::join!(watch.rest(), direct) }).await;
    assert_eq!(events.as_bytes(), direct.unwrap().to_bytes());
    assert!(events.lines().count() > 4, "{events}");
    assert_eq!(route, Route::Forwarded("before_fill".to_owned()));
    // If upstream has forgotten the version as well, its own error is forwarded.
    world.sim.forget_history();
    let (events, route) = world.client().watch(path).await.rest().await;
    assert!(events.contains(r#""reason":"Expired","code":410}}"#), "{events}");
    assert_eq!(route, Route::Forwarded("before_fill".to_owned()));
}

#[tokio::test]
async fn bookmarks_come_every_minute_once_something_is_new() {
    let (world, _) = with_history().await;
    let path = format!("/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion={}", world.sim.revision());
    let mut watch = world.client().watch(&path).await;
    skip(Duration::from_secs(61)).await;
    world.label_pod("default/a", "new");
    let event = watch.line().await.unwrap().unwrap();
    assert!(event.starts_with(r#"{"type":"MODIFIED""#), "nothing was new: {event}");
    skip(Duration::from_secs(61)).await;
    let event = watch.line().await.unwrap().unwrap();
    let expected = format!(r#""metadata":{{"resourceVersion":"{}"}}"#, world.sim.revision());
    assert!(event.starts_with(r#"{"type":"BOOKMARK""#) && event.contains(&expected), "{event}");
}

#[tokio::test]
async fn a_watch_from_before_upstream_s_first_bookmark_gets_bookmarks_all_the_same() {
    // Lists show no form of bookmarks.
    let world = World::start_lacking(Features::old()).await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    let forms = ["application/json", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"];
    let path = format!(
        "/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds=600",
        world.sim.revision()
    );
    let watches = join_all(forms.map(|form| world.client().watch_as(&path, form))).await;
    world.label_pod("default/a", "y");
    let bookmark = format!(r#""metadata":{{"resourceVersion":"{}"}}"#, world.sim.revision());
    for (mut watch, kind) in watches.into_iter().zip(["Pod", "PartialObjectMetadata"]) {
        let event = watch.line().await.unwrap().unwrap();
        assert!(event.starts_with(r#"{"type":"MODIFIED""#), "{event}");
        let event = passing(Duration::from_secs(10), watch.line()).await.unwrap().unwrap();
        assert!(event.starts_with(r#"{"type":"BOOKMARK""#) && event.contains(&bookmark), "{event}");
        assert!(event.contains(&format!(r#""kind":"{kind}""#)), "{event}");
    }
}

#[tokio::test]
async fn two_hundred_watchers_are_one_watch_upstream() {
    let world = World::start().await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    let path = format!("/api/v1/pods?watch=1&resourceVersion={}", world.sim.revision());
    let mut watches = join_all((0..200).map(|_| world.client().watch(&path))).await;
    let mut expected = world.client().watch(&path).await;
    change(&world);
    let mut lines = Vec::new();
    for _ in 0..4 {
        lines.push(expected.line().await.unwrap());
    }
    let seen = join_all(watches.iter_mut().map(async |watch| {
        for line in &lines {
            assert_eq!(&watch.line().await.unwrap(), line);
        }
    }))
    .await;
    assert_eq!(seen.len(), 200);
    let counts = world.sim.counts();
    assert_eq!((counts.open_watches("pods"), counts.requests("watch", "pods")), (1, 1));
}

#[tokio::test]
async fn all_streams_may_share_one_connection() {
    let (world, before) = with_history().await;
    let client = world.client().over_http2();
    let path = format!("/api/v1/pods?watch=1&resourceVersion={before}");
    let mut watches = join_all((0..20).map(|_| client.watch(&path))).await;
    for watch in &mut watches {
        for kind in ["MODIFIED", "ADDED", "MODIFIED", "DELETED"] {
            let line = watch.line().await.unwrap().unwrap();
            assert!(line.contains(kind), "{line}");
        }
    }
    assert_eq!(client.get("/api/v1/pods?resourceVersion=0").await.route, Route::Served);
}

#[tokio::test]
async fn a_watcher_that_never_reads_delays_no_other_and_ends_cleanly() {
    // More bytes than the socket buffers and the connection hold, and more changes than the history keeps at least.
    const CHANGES: usize = 200;
    const BYTES: usize = 100_000;
    let sim = Sim::with_history(10 * CHANGES);
    let world = World::start_with(sim, |config| config.cache.history.bytes = 1 << 20).await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    let path = format!("/api/v1/pods?watch=1&resourceVersion={}", world.sim.revision());
    let mut slow = raw::Connection::open(world.client(), &path).await;
    let mut fast = world.client().watch(&path).await;

    for change in 0..CHANGES {
        let mut pod = pod("default", "a", &format!("x{change}"));
        pod["metadata"]["annotations"] = json!({"large": "x".repeat(BYTES)});
        world.sim.update(pod).unwrap();
        let line = fast.line().await.unwrap().unwrap();
        assert!(line.contains(&format!("\"app\":\"x{change}\"")));
    }
    let stream = within("the end of what is left", slow.rest()).await;
    assert!(stream.ends_with("\r\n0\r\n\r\n"), "no proper end");
    let events = stream.matches(r#"{"type":"MODIFIED""#).count();
    assert!((1..CHANGES).contains(&events), "{events} of {CHANGES}");
}

#[tokio::test]
async fn an_upstream_without_bookmarks_has_the_same_streams() {
    let world = World::start_lacking(Features { bookmarks: false, ..Features::old() }).await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    let path = "/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=10";
    let paths = [path.to_owned(), format!("{path}&allowWatchBookmarks=true")];
    assert_same_streams(&world, &paths, || change(&world)).await;
}
