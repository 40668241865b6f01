//! A gateway whose caches are being filled: reads that memory will be able to answer wait, and upstream is sent one
//! fill.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use kube_fanout::{
    config::Config,
    lifecycle::Drained,
    sim::{Features, Refusal, Sim},
};
use tokio::join;

use crate::{
    golden::recording::still,
    harness::{Gateway, Informer, Route, Selection, World, forwarded, passing, skip, within},
    reads::{definition, widget},
};

const LIST: &str = "/api/v1/pods?resourceVersion=0";
const WATCH: &str = "/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=600";
const WATCH_LIST: &str = "/api/v1/pods?watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
                          &resourceVersionMatch=NotOlderThan&timeoutSeconds=600";
const WIDGETS: &str = "/apis/example.com/v1/widgets";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Longer than the first pause of the reflector after a failure.
const BACKOFF: Duration = Duration::from_secs(2);
/// The number of waiting clients of each kind.
const HERD: usize = 20;

/// A cold gateway, whose first fill stops at its watch request.
async fn held(features: Features) -> World {
    held_with(features, |_| {}).await
}

async fn held_with(features: Features, change: impl FnOnce(&mut Config)) -> World {
    let sim = Sim::new();
    sim.set_features(features);
    let world = World::start_with(sim, change).await;
    for name in ["a", "b", "c"] {
        world.create_pod("default", name, "x");
    }
    world.sim.hold_requests("watch", "pods");
    world
}

/// Waits until the fill has sent its watch request.
async fn fill_begun(world: &World) {
    within("the fill's watch", world.sim.until(|counts| counts.requests("watch", "pods") > 0)).await;
}

#[tokio::test]
async fn a_herd_at_a_cold_gateway_costs_one_list_and_one_watch() {
    let world = held(Features::default()).await;
    let client = world.client();
    let lists = join_all((0..HERD).map(|_| client.get(LIST)));
    let watches = join_all((0..HERD).map(|_| client.watch(WATCH)));
    let watch_lists = join_all((0..HERD).map(|_| client.watch(WATCH_LIST)));
    let released = async {
        fill_begun(&world).await;
        world.sim.release_requests();
    };
    let (lists, watches, watch_lists, ()) = join!(lists, watches, watch_lists, released);
    let counts = world.sim.counts();
    for list in lists {
        assert_eq!((list.text().matches(r#""uid":"#).count(), list.route), (3, Route::Served));
    }
    let rests = watches.into_iter().chain(watch_lists).map(|watch| watch.rest());
    for (events, route) in passing(Duration::from_secs(60), join_all(rests)).await {
        assert_eq!((route, events.matches(r#""uid":"#).count()), (Route::Served, 3), "{events}");
    }
    // The lists of a fill, and the head version of a proof that serves all watch-lists.
    assert!(counts.requests("list", "pods") <= 5, "{counts:?}");
    assert_eq!((counts.requests("watch", "pods"), counts.open_watches("pods")), (1, 1));
}

#[tokio::test]
async fn a_herd_at_an_api_server_that_starts_after_the_gateway_costs_one_list_and_one_watch() {
    let mut world = World::start().await;
    world.server.kill().await;
    for status in join_all((0..HERD).map(|_| world.client().get(LIST))).await.iter().map(|answer| answer.status) {
        assert_eq!(status.as_u16(), 503);
    }
    world.create_pod("default", "a", "x");
    world.server.start_again().await.unwrap();
    let client = world.client();
    let (lists, watch_lists) =
        join!(join_all((0..HERD).map(|_| client.get(LIST))), join_all((0..HERD).map(|_| client.watch(WATCH_LIST))));
    assert!(lists.iter().all(|list| list.route == Route::Served), "{lists:?}");
    let counts = world.sim.counts();
    assert!(counts.requests("list", "pods") <= 5, "{counts:?}");
    assert_eq!((counts.requests("watch", "pods"), counts.open_watches("pods")), (1, 1));
    drop(watch_lists);
}

#[tokio::test]
async fn a_server_whose_storage_cannot_serve_a_watch_list_is_listed() {
    let sim = Sim::new();
    sim.set_features(Features { progress_requests: false, ..Features::default() });
    let world = World::start_with(sim, |_| {}).await;
    world.create_pod("default", "a", "x");
    let list = world.client().get(LIST).await;
    assert_eq!((list.text().matches(r#""uid":"#).count(), list.route), (1, Route::Served));
    assert_eq!(world.sim.counts().open_watches("pods"), 1);
}

/// Agents, proxies and aggregated servers leave out bookmarks, and what depends on them.
#[tokio::test]
async fn a_server_that_never_ends_initial_events_is_listed_within_five_seconds() {
    let sim = Sim::new();
    sim.set_features(Features { initial_events_end: false, bookmarks: false, ..Features::default() });
    let world = World::start_with(sim, |config| config.reads.fill_wait = Duration::from_secs(5)).await;
    world.create_pod("default", "a", "x");
    let list = passing(Duration::from_millis(100), world.client().get(LIST)).await;
    assert_eq!((list.text().matches(r#""uid":"#).count(), list.route), (1, Route::Served));
    world.create_pod("default", "b", "x");
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    world.assert_same(LIST, &Route::Served).await;
    // It is known from now on: the next fill asks for no watch-list.
    let asked = world.sim.counts().requests("watch", "pods");
    world.sim.forget_history();
    world.create_pod("default", "c", "x");
    world.sim.cut_watches(None);
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    world.assert_same(LIST, &Route::Served).await;
    assert!(world.sim.counts().requests("watch", "pods") <= asked + 2, "{:?}", world.sim.counts());
}

#[tokio::test]
async fn made_up_names_take_no_place_of_a_resource_that_comes_later() {
    let world = World::start().await;
    world.create_pod("default", "a", "x");
    let client = world.client();
    let made_up: Vec<_> = (0..1000).map(|name| format!("/apis/x.io/v1/made-up-{name}?resourceVersion=0")).collect();
    for some in made_up.chunks(100) {
        for answer in join_all(some.iter().map(|path| client.get(path))).await {
            assert_eq!((answer.status.as_u16(), answer.route), (404, forwarded("unknown_resource")));
        }
    }
    assert_eq!(client.get(LIST).await.route, Route::Served);
}

#[tokio::test]
async fn invented_groups_and_versions_cost_no_definitions() {
    let world = World::start().await;
    world.sim.create(definition(".spec.size")).unwrap();
    world.sim.create(widget("one", "1")).unwrap();
    world.gateway.warm_skipping(WIDGETS).await;
    let before = world.sim.counts();
    let client = world.client();
    let invented: Vec<_> = (3..303)
        .map(|number| match number % 3 {
            0 => format!("/apis/made-up-{number}.example.com/v1/widgets?resourceVersion=0"),
            1 => format!("/apis/example.com/v{number}/widgets?resourceVersion=0"),
            _ => format!("/apis/example.com/v1/made-up-{number}?resourceVersion=0"),
        })
        .collect();
    for some in invented.chunks(100) {
        for answer in join_all(some.iter().map(|path| client.get(path))).await {
            assert_eq!((answer.status.as_u16(), answer.route), (404, forwarded("unknown_resource")));
        }
    }
    let after = world.sim.counts();
    assert_eq!(after.requests("get", DEFINITIONS), before.requests("get", DEFINITIONS));
    let discovered = after.requests("get", "/apis") - before.requests("get", "/apis");
    assert!(discovered <= 3, "{discovered}: once in five seconds");
}

#[tokio::test]
async fn a_herd_at_a_definition_that_cannot_be_read_requests_it_once() {
    let world = World::start().await;
    world.sim.create(definition(".spec.size")).unwrap();
    world.sim.create(widget("one", "1")).unwrap();
    world.sim.refuse(Refusal { verb: Some("get"), resource: Some(DEFINITIONS.to_owned()), times: None, status: 500 });
    let client = world.client();
    let path = format!("{WIDGETS}?resourceVersion=0");
    let lists = join_all((0..HERD).map(|_| client.get(&path))).await;
    assert!(lists.iter().all(|list| list.route == forwarded("undiscovered")), "{lists:?}");
    assert_eq!(client.get(&path).await.route, forwarded("undiscovered"));
    assert_eq!(world.sim.counts().requests("get", DEFINITIONS), 1);
    world.sim.accept_all();
    skip(BACKOFF).await;
    assert_eq!(client.get(&path).await.route, Route::Served);
}

#[tokio::test]
async fn a_herd_waits_for_the_definition_of_an_api_server_that_starts() {
    let mut world = World::start().await;
    world.sim.create(definition(".spec.size")).unwrap();
    world.sim.create(widget("one", "1")).unwrap();
    // Discovery is known, the definition is not.
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    world.server.kill().await;
    let client = world.client().clone();
    let path = format!("{WIDGETS}?resourceVersion=0");
    for list in join_all((0..HERD).map(|_| client.get(&path))).await {
        assert_eq!(list.status.as_u16(), 503);
    }
    world.server.start_again().await.unwrap();
    let lists = join_all((0..HERD).map(|_| client.get(&path))).await;
    assert!(lists.iter().all(|list| list.route == Route::Served), "{lists:?}");
}

#[tokio::test]
async fn informers_at_a_cold_gateway_share_one_fill() {
    for features in [Features::default(), Features::old()] {
        let world = held(features).await;
        let mut informers: Vec<Informer> = (0..HERD).map(|_| world.informer(Selection::pods())).collect();
        let caught_up = join_all(informers.iter_mut().map(Informer::catch_up));
        let released = async {
            fill_begun(&world).await;
            world.sim.release_requests();
        };
        join!(caught_up, released);
        let counts = world.sim.counts();
        assert_eq!(counts.open_watches("pods"), 1, "{features:?}");
        assert!(informers.iter().all(|informer| informer.told.states == 1));
    }
}

#[tokio::test]
async fn a_herd_that_takes_protobuf_is_served_by_one_fill() {
    let upstream = still(362).await;
    let gateway = Gateway::start(&upstream.url).await;
    let headers = [("accept", "application/vnd.kubernetes.protobuf")];
    let answers = join_all((0..HERD).map(|_| gateway.client.request("GET", LIST, &headers, Bytes::new()))).await;
    for answer in &answers {
        assert_eq!((&answer.route, &answer.body[..4]), (&Route::Served, &b"k8s\0"[..]));
    }
    assert_eq!(upstream.forwarded(), [""; 0]);
}

#[tokio::test]
async fn a_fill_that_is_slower_than_the_wait_leaves_reads_to_upstream() {
    // Shorter than the time that the fill itself waits for upstream.
    let world = held_with(Features::default(), |config| config.reads.fill_wait = Duration::from_secs(10)).await;
    let answer = passing(Duration::from_secs(5), world.client().get(LIST)).await;
    assert_eq!((answer.status.as_u16(), answer.route), (200, forwarded("cache_filling")));
    // Later reads each wait for the fill again.
    let (answer, ()) = join!(world.client().get(LIST), async { world.sim.release_requests() });
    assert_eq!(answer.route, Route::Served);
}

#[tokio::test]
async fn with_no_fill_wait_reads_do_not_wait() {
    let sim = Sim::new();
    sim.hold_requests("watch", "pods");
    let world = World::start_with(sim, |config| config.reads.fill_wait = Duration::ZERO).await;
    world.assert_same(LIST, &forwarded("cache_filling")).await;
}

#[tokio::test]
async fn a_fill_that_fails_leaves_reads_to_upstream_at_once() {
    let world = held(Features::default()).await;
    let failed = async {
        fill_begun(&world).await;
        let refusal = Refusal { verb: Some("watch"), resource: Some("pods".to_owned()), times: Some(1), status: 503 };
        world.sim.refuse(refusal);
        world.sim.release_requests();
    };
    let (lists, ()) = join!(join_all((0..HERD).map(|_| world.client().get(LIST))), failed);
    assert!(lists.iter().all(|list| list.route == forwarded("fill_failed")), "{lists:?}");
    // Reads do not wait during the pause after the failure; then the cache is filled again.
    world.assert_same(LIST, &forwarded("fill_failed")).await;
    skip(BACKOFF).await;
    world.gateway.warm("/api/v1/pods").await;
}

#[tokio::test]
async fn an_upstream_that_dies_during_the_fill_holds_nothing_up() {
    let mut world = held(Features::default()).await;
    let client = world.client().clone();
    let killed = async {
        fill_begun(&world).await;
        world.server.kill().await;
    };
    let (list, ()) = join!(client.get(LIST), killed);
    assert_eq!(list.status.as_u16(), 503);
    world.sim.release_requests();
    world.server.start_again().await.unwrap();
    skip(BACKOFF).await;
    world.gateway.warm("/api/v1/pods").await;
}

#[tokio::test]
async fn reads_of_uncacheable_resources_do_not_wait() {
    let world = World::start().await;
    for (path, reason) in [
        ("/api/v1/events?resourceVersion=0", "excluded"),
        ("/api/v1/made-ups?resourceVersion=0", "unknown_resource"),
        ("/api/v1/made-ups?resourceVersion=0", "unknown_resource"),
    ] {
        world.assert_same(path, &forwarded(reason)).await;
    }
}

#[tokio::test]
async fn reads_that_memory_will_not_answer_do_not_wait() {
    let world = held(Features::default()).await;
    assert_eq!(world.client().get("/api/v1/pods").await.route, forwarded("cache_filling"));
    let one = world.client().get("/api/v1/namespaces/default/pods/a?resourceVersion=0").await;
    assert_eq!((one.status.as_u16(), one.route), (200, forwarded("cache_filling")));
    let exact = format!("/api/v1/pods?resourceVersion={}&resourceVersionMatch=Exact", world.sim.revision());
    assert_eq!(world.client().get(&exact).await.route, forwarded("cache_filling"));
}

#[tokio::test]
async fn a_resumed_watch_is_forwarded_while_the_cache_is_filled() {
    let world = World::start().await;
    world.create_pod("default", "a", "x");
    let version = world.sim.revision();
    world.create_pod("default", "b", "x");
    // The fill does not get past the head version.
    world.sim.hold_requests("list", "pods");
    let resumed = format!("/api/v1/pods?watch=1&resourceVersion={version}&timeoutSeconds=600");
    let mut watch = world.client().watch(&resumed).await;
    assert!(watch.line().await.unwrap().unwrap().contains(r#""name":"b""#));
}

#[tokio::test]
async fn a_drain_ends_the_wait() {
    let world = held(Features::default()).await;
    let client = world.client().clone();
    let watch = client.open(WATCH_LIST);
    let list = client.get(LIST);
    let World { sim, gateway, server: _server } = world;
    let drained = async {
        within("the fill's watch", sim.until(|counts| counts.requests("watch", "pods") > 0)).await;
        gateway.stop().drained().await
    };
    let (watch, list, drained) = join!(watch, list, drained);
    let refused = watch.unwrap_err();
    assert_eq!((refused.status.as_u16(), &refused.headers["retry-after"]), (503, &"1".parse().unwrap()));
    assert_eq!(refused.route, Route::Rejected("draining".to_owned()));
    assert_eq!((list.status.as_u16(), list.route), (200, forwarded("draining")));
    assert_eq!(drained, Drained::All);
}
