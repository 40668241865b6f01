//! Watches that were forwarded because their cache was not ready: each ends between two events once memory can go on
//! with it, and its client, which resumes it, gets every change once.

use std::time::Duration;

use futures_util::future::join_all;
use http::Request;
use http_body_util::{BodyExt, Full};
use kube_fanout::sim::{Refusal, Sim};
use serde_json::Value;
use tokio::{join, time::Instant};

use crate::{
    delegated::{PODS, Scene, TTL},
    harness::{Route, Watch, World, forwarded, passing, skip, until, within},
    reads::{definition, widget},
};

/// Shorter than the time between the last bookmark and the end of a watch.
const STEP: Duration = Duration::from_millis(500);
/// A client takes a watch without events that ends sooner for an error.
const SHORT: Duration = Duration::from_secs(1);
/// Longer than a watch goes on that memory can resume.
const SETTLED: Duration = Duration::from_secs(30);
const JANE: [(&str, &str); 1] = [("authorization", "Bearer jane-token")];
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// A cold gateway whose fills stop at their first request, and whose reads do not wait for fills.
async fn cold() -> World {
    let world = World::start_with(Sim::new(), |config| config.reads.fill_wait = Duration::ZERO).await;
    world.create_pod("default", "a", "x");
    world.create_pod("kube-system", "b", "y");
    world.sim.hold_requests("list", "pods");
    world
}

/// Changes of every kind, with and without selectors; can be repeated.
fn change(world: &World) {
    world.label_pod("default/a", "y");
    world.create_pod("default", "c", "x");
    world.label_pod("default/a", "x");
    world.delete_pod("default/c");
}

/// An informer's watch from that version.
fn from(version: u64) -> String {
    format!("/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=600")
}

async fn filled(world: &World) {
    world.sim.release_requests();
    world.gateway.warm("/api/v1/pods").await;
}

/// Everything up to the end of a watch, which the gateway ends.
async fn ended(watch: Watch) -> (String, Route) {
    within("the end of the watch", passing(STEP, watch.rest())).await
}

/// The version of the last event.
fn last_version(events: &str) -> Option<u64> {
    let event: Value = serde_json::from_str(events.lines().last()?).unwrap();
    event["object"]["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

fn without_bookmarks(events: &str) -> Vec<&str> {
    events.lines().filter(|event| !event.starts_with(r#"{"type":"BOOKMARK""#)).collect()
}

#[tokio::test]
async fn a_client_that_resumes_gets_each_change_once() {
    const WATCH_LIST: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    for (collection, start, selector, accept) in [
        ("pods", WATCH_LIST, "", "application/json"),
        ("pods", WATCH_LIST, "", METADATA),
        ("pods", "resourceVersion=0", "&labelSelector=app%3Dx", "application/json"),
        ("pods", "resourceVersion=0", "&fieldSelector=spec.nodeName%3Dnode-x", METADATA),
        ("namespaces/default/pods", "resourceVersion={before}", "", "application/json"),
        ("watch/pods", "resourceVersion=0", "", "application/json"),
    ] {
        let world = cold().await;
        let before = world.sim.revision();
        let path = |start: &str| {
            format!("/api/v1/{collection}?watch=1&allowWatchBookmarks=true&timeoutSeconds=120{selector}&{start}")
        };
        let first = path(&start.replace("{before}", &before.to_string()));
        let request = Request::get(&first).header("accept", accept).body(Full::default()).unwrap();
        let direct = world.sim.handle(request).await.into_body().collect();
        let watch = world.client().watch_as(&first, accept).await;
        change(&world);
        filled(&world).await;
        let (told, route) = ended(watch).await;
        assert_eq!(route, Route::Forwarded("cache_filling".to_owned()), "{first}");
        let version = last_version(&told).unwrap();
        let resumed = world.client().watch_as(&path(&format!("resourceVersion={version}")), accept).await;
        change(&world);
        let ((rest, route), direct) = passing(STEP, async { join!(resumed.rest(), direct) }).await;
        assert_eq!(route, Route::Served, "{first}");
        let both = without_bookmarks(&told).into_iter().chain(without_bookmarks(&rest)).collect::<Vec<_>>();
        let direct = direct.unwrap().to_bytes();
        assert_eq!(both, without_bookmarks(str::from_utf8(&direct).unwrap()), "{first}");
        assert!(both.len() > 4, "{first}: {both:?}");
    }
}

#[tokio::test]
async fn a_watch_that_the_fill_covers_ends_though_nothing_happens() {
    let world = cold().await;
    let (watch, began) = (world.client().watch(&from(world.sim.revision())).await, Instant::now());
    filled(&world).await;
    assert_eq!(ended(watch).await, (String::new(), Route::Forwarded("cache_filling".to_owned())));
    assert!(began.elapsed() > SHORT, "{:?}", began.elapsed());
    assert_eq!(world.sim.counts().open_watches("pods"), 1, "the cache's own");
}

#[tokio::test]
async fn a_watch_from_before_the_fill_ends_once_its_client_has_caught_up() {
    let world = cold().await;
    let before = world.sim.revision();
    world.label_pod("default/a", "z");
    filled(&world).await;
    let (events, route) = ended(world.client().watch(&from(before)).await).await;
    assert!(events.starts_with(r#"{"type":"MODIFIED""#) && events.lines().count() == 1, "{events}");
    assert_eq!(route, Route::Forwarded("before_fill".to_owned()));
    let mut resumed = world.client().watch(&from(last_version(&events).unwrap())).await;
    world.create_pod("default", "c", "x");
    assert!(resumed.line().await.unwrap().unwrap().contains(r#""name":"c""#));
}

#[tokio::test]
async fn a_quiet_watch_from_before_the_fill_ends_after_its_bookmark() {
    let world = cold().await;
    let before = world.sim.revision();
    // Other resources increase the version: the fill has a later one, which the client's watch learns by a bookmark.
    world.sim.skip_revisions(10);
    let watch = world.client().watch(&from(before)).await;
    filled(&world).await;
    let (events, _) = ended(watch).await;
    assert!(events.starts_with(r#"{"type":"BOOKMARK""#) && events.lines().count() == 1, "{events}");
}

#[tokio::test]
async fn a_client_that_reads_slowly_gets_whole_events() {
    let world = cold().await;
    let mut watch = world.client().taking_a_byte().watch(&from(world.sim.revision())).await;
    world.create_pod("default", "c", "x");
    assert_eq!(watch.bytes(1).await, "{");
    world.create_pod("default", "d", "x");
    filled(&world).await;
    skip(SETTLED).await;
    let (events, _) = ended(watch).await;
    assert!(events.starts_with(r#""type":"ADDED""#) && events.ends_with("}\n"), "{events}");
}

#[tokio::test]
async fn many_watches_do_not_end_all_at_once() {
    let world = cold().await;
    let path = from(world.sim.revision());
    let watches = join_all((0..50).map(|_| world.client().watch(&path))).await;
    filled(&world).await;
    let ends = watches.into_iter().map(async |watch| {
        watch.rest().await;
        Instant::now()
    });
    let ends = within("the ends", passing(STEP, join_all(ends))).await;
    let (first, last) = (ends.iter().min().unwrap(), ends.iter().max().unwrap());
    assert!(*last - *first > SHORT, "{:?}", *last - *first);
}

#[tokio::test]
async fn a_watch_of_an_undiscovered_resource_ends_once_it_is_known() {
    let sim = Sim::new();
    let services = Some("apiservices.apiregistration.k8s.io".to_owned());
    sim.refuse(Refusal { resource: services, status: 503, ..Refusal::default() });
    let world = World::start_with(sim, |_| {}).await;
    world.create_pod("default", "a", "x");
    world.gateway.until_forwarded("/api/v1/pods?resourceVersion=0", "undiscovered").await;
    let watch = world.client().watch(&from(world.sim.revision())).await;
    assert_eq!(world.sim.counts().requests("watch", "pods"), 1, "forwarded, and no cache");
    world.sim.accept_all();
    assert_eq!(ended(watch).await.0, "");
}

#[tokio::test]
async fn a_watch_of_a_new_resource_ends_once_its_cache_is_filled() {
    let world = World::start().await;
    let collection = "/apis/example.com/v1/widgets";
    world.gateway.until_forwarded(&format!("{collection}?resourceVersion=0"), "unknown_resource").await;
    world.sim.create(definition(".spec.size")).unwrap();
    let path = |version: u64| from(version).replace("/api/v1/pods", collection);
    let watch = world.client().watch(&path(world.sim.revision())).await;
    world.sim.create(widget("one", "1")).unwrap();
    let (events, route) = ended(watch).await;
    assert!(events.contains(r#""name":"one""#) && events.lines().count() == 1, "{events}");
    assert_eq!(route, Route::Forwarded("unknown_resource".to_owned()));
    let (_, route) = passing(STEP, world.client().watch(&path(last_version(&events).unwrap())).await.rest()).await;
    assert_eq!(route, Route::Served);
}

/// Ending it would send its client's next request to the same review.
#[tokio::test]
async fn a_watch_that_was_forwarded_for_want_of_a_review_stays_upstream() {
    let scene = Scene::start().await;
    skip(TTL + Duration::from_secs(1)).await;
    scene.upstream.stop_reviews();
    let watch = scene.gateway.client.watch_with(&from(scene.sim.revision()), &JANE).await;
    scene.upstream.start_reviews();
    let served = until("memory", async || (scene.get("jane-token", PODS).await.route == Route::Served).then_some(()));
    served.await;
    skip(SETTLED * 10).await;
    assert_eq!(scene.sim.counts().open_watches("pods"), 2);
    let (_, route) = passing(SETTLED, watch.rest()).await;
    assert_eq!(route, forwarded("no_verdict"));
}

/// `kubectl get --watch -o json` is over when its watch is.
#[tokio::test]
async fn a_watch_of_a_client_that_may_not_resume_stays_upstream() {
    let world = cold().await;
    let mut watch = world.client().watch(&from(world.sim.revision()).replace("allowWatchBookmarks=true&", "")).await;
    filled(&world).await;
    skip(SETTLED).await;
    world.create_pod("default", "c", "x");
    assert!(watch.line().await.unwrap().unwrap().contains(r#""name":"c""#));
    skip(SETTLED).await;
    world.create_pod("default", "d", "x");
    assert!(watch.line().await.unwrap().unwrap().contains(r#""name":"d""#));
    assert_eq!(world.sim.counts().open_watches("pods"), 2);
}

/// Memory refuses it where history has a gap, which only an answer shows.
#[tokio::test]
async fn a_watch_of_another_gateway_stays_upstream() {
    let world = cold().await;
    let via = [("via", "1.1 kube-fanout-00000000000000000000000000000000")];
    let _watch = world.client().watch_with(&from(world.sim.revision()), &via).await;
    filled(&world).await;
    skip(SETTLED).await;
    world.gateway.warm("/api/v1/pods").await;
    assert_eq!(world.sim.counts().open_watches("pods"), 2);
}

#[tokio::test]
async fn watches_that_memory_cannot_serve_stay_upstream() {
    let world = World::start().await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let _table = world.client().watch_as("/api/v1/pods?watch=1&resourceVersion=1&timeoutSeconds=600", table).await;
    let _events = world.client().watch("/api/v1/events?watch=1&timeoutSeconds=600").await;
    world.gateway.warm("/api/v1/pods").await;
    skip(SETTLED).await;
    world.create_pod("default", "a", "x");
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    let counts = world.sim.counts();
    assert_eq!((counts.open_watches("pods"), counts.open_watches("events")), (2, 1));
}
