//! Watches that were forwarded and that memory takes over while they are open: the client sees no difference.

use std::{path::PathBuf, time::Duration};

use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use http::Request;
use http_body_util::{BodyExt, Full};
use kube_fanout::{
    config::{ClientsConfig, Config},
    sim::{Counts, Features, Refusal, Sim},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    join,
    time::{Instant, timeout},
};

use crate::{
    delegated::{PODS, Scene, TTL, WATCH_INTERVAL, events, forwarded},
    harness::{Route, Watch, World, passing, skip, until, upstream::pod, within},
    reads::{definition, widget},
};

/// Shorter than the time between the last bookmark and the end of a watch.
const STEP: Duration = Duration::from_millis(500);
/// Longer than the first pause of the reflector after a failure.
const BACKOFF: Duration = Duration::from_secs(2);
/// What a client's answers may hold, where that is little: a small list from memory takes most of it.
const ROOM: u64 = 150_000;
const JANE: [(&str, &str); 1] = [("authorization", "Bearer jane-token")];
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// A cold gateway whose fills stop at their first request, and whose reads do not wait for fills.
async fn cold() -> World {
    cold_with(Features::default()).await
}

async fn cold_with(features: Features) -> World {
    let sim = Sim::new();
    sim.set_features(features);
    let world = World::start_with(sim, |config| config.reads.fill_wait = Duration::ZERO).await;
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

/// Cuts all upstream watches and checks that the client gets every later change.
async fn goes_on_without_upstream(world: &World, watch: &mut Watch) {
    world.sim.cut_watches(Some("pods"));
    skip(BACKOFF).await;
    change(world);
    for kind in ["MODIFIED", "ADDED", "MODIFIED", "DELETED"] {
        let event = watch.line().await.unwrap().unwrap();
        assert!(event.starts_with(&format!(r#"{{"type":"{kind}""#)), "{kind}: {event}");
    }
}

/// Lets the cache be filled, and waits until `left` watches of clients are left at upstream.
async fn taken_over(world: &World, left: usize) {
    world.sim.release_requests();
    let opened = world.sim.counts().requests("watch", "pods");
    let is_over =
        world.sim.until(|counts| counts.requests("watch", "pods") > opened && counts.open_watches("pods") == left + 1);
    within("the takeover", passing(STEP / 5, is_over)).await;
}

#[tokio::test]
async fn the_stream_is_the_one_that_upstream_would_have_sent() {
    const WATCH_LIST: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for (collection, query, accept) in [
        ("pods", WATCH_LIST, "application/json"),
        ("pods", WATCH_LIST, METADATA),
        ("pods", "resourceVersion=0&labelSelector=app%3Dx", "application/json"),
        ("pods", "resourceVersion=0&allowWatchBookmarks=true&fieldSelector=spec.nodeName%3Dnode-x", "application/json"),
        ("namespaces/default/pods", "resourceVersion={before}&allowWatchBookmarks=true", "application/json"),
        ("pods", "resourceVersion={before}&labelSelector=app%3Dx", METADATA),
        ("watch/pods", "resourceVersion=0", "application/json"),
    ] {
        let world = cold().await;
        let before = world.sim.revision().to_string();
        let path = format!("/api/v1/{collection}?watch=1&timeoutSeconds=30&{}", query.replace("{before}", &before));
        let request = Request::get(&path).header("accept", accept).body(Full::default()).unwrap();
        let direct = world.sim.handle(request).await.into_body().collect();
        let watch = world.client().watch_as(&path, accept).await;
        change(&world);
        taken_over(&world, 1).await;
        change(&world);
        let ((events, route), direct) = passing(STEP, async { join!(watch.rest(), direct) }).await;
        assert_eq!(events, str::from_utf8(&direct.unwrap().to_bytes()).unwrap(), "{path}");
        assert!(events.lines().count() > 4, "{path}: {events}");
        assert_eq!(route, Route::Forwarded("cache_filling".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn a_resume_that_the_fill_covers_is_taken_over_before_anything_happens() {
    let world = cold().await;
    let path = format!("/api/v1/pods?watch=1&resourceVersion={}&timeoutSeconds=600", world.sim.revision());
    let mut watch = world.client().watch(&path).await;
    taken_over(&world, 0).await;
    // The end of upstream's watches no longer affects the client.
    world.sim.cut_watches(Some("pods"));
    skip(BACKOFF).await;
    world.create_pod("default", "c", "x");
    let event = watch.line().await.unwrap().unwrap();
    assert!(event.starts_with(r#"{"type":"ADDED""#) && event.contains(r#""name":"c""#), "{event}");
}

#[tokio::test]
async fn a_watch_from_before_the_fill_catches_up_upstream_and_is_taken_over() {
    let world = cold().await;
    let path = format!("/api/v1/pods?watch=1&resourceVersion={}&timeoutSeconds=600", world.sim.revision());
    world.label_pod("default/a", "z");
    world.sim.release_requests();
    world.gateway.warm("/api/v1/pods").await;
    let mut watch = world.client().watch(&path).await;
    let first = watch.line().await.unwrap().unwrap();
    assert!(first.starts_with(r#"{"type":"MODIFIED""#), "{first}");
    let is_over = world.sim.until(|counts| counts.open_watches("pods") == 1);
    within("the takeover", is_over).await;
    goes_on_without_upstream(&world, &mut watch).await;
}

#[tokio::test]
async fn a_quiet_resource_is_asked_for_a_version() {
    let world = cold().await;
    let path = format!("/api/v1/pods?watch=1&resourceVersion={}&timeoutSeconds=600", world.sim.revision());
    // Other resources increase the version: the fill has a later one, which the client's watch does not learn.
    world.sim.skip_revisions(10);
    let mut watch = world.client().watch(&path).await;
    world.sim.release_requests();
    world.gateway.warm("/api/v1/pods").await;
    let small = world.sim.until(|counts| counts.requests("watch", "pods") == 3 && counts.open_watches("pods") == 1);
    within("the takeover", passing(STEP / 5, small)).await;
    goes_on_without_upstream(&world, &mut watch).await;
}

#[tokio::test]
async fn a_herd_of_resumes_on_a_quiet_resource_shares_small_watches() {
    const HERD: usize = 100;
    let world = cold().await;
    // The clients have different versions, after which this resource has not changed.
    let first = world.sim.revision();
    world.sim.skip_revisions(HERD as u64);
    let resume = async |version: u64| {
        let path = format!("/api/v1/pods?watch=1&resourceVersion={version}&timeoutSeconds=600");
        world.client().watch(&path).await
    };
    let watches = join_all((first..first + HERD as u64).map(resume)).await;
    world.sim.release_requests();
    world.gateway.warm("/api/v1/pods").await;
    none_is_left(&world).await;
    let small = world.sim.counts().requests("watch", "pods") - HERD as u64 - 1;
    assert!((1..=3).contains(&small), "{small} small watches for {HERD} resumes");
    all_continue(&world, watches).await;
}

#[tokio::test]
async fn changes_before_the_fill_are_not_missed() {
    let world = cold().await;
    let path = format!(
        "/api/v1/pods?watch=1&resourceVersion={}&timeoutSeconds=600&labelSelector=app%3Dy",
        world.sim.revision()
    );
    world.create_pod("default", "c", "x");
    let mut watch = world.client().watch(&path).await;
    world.sim.release_requests();
    world.gateway.warm("/api/v1/pods").await;
    let asked = world.sim.until(|counts| counts.requests("watch", "pods") == 3);
    within("the small watch", passing(STEP / 5, asked)).await;
    skip(Duration::from_secs(5)).await;
    world.label_pod("default/c", "y");
    let event = watch.line().await.unwrap().unwrap();
    assert!(event.starts_with(r#"{"type":"ADDED""#) && event.contains(r#""name":"c""#), "{event}");
}

/// The versions of clients, of which each opens a watch, while an old upstream's gateway is cold; then the fill.
async fn resumes_at_an_old_upstream(world: &World, versions: impl IntoIterator<Item = u64>) -> Vec<Watch> {
    let resume = async |version: u64| {
        // Upstream sends no bookmark, though the client allows them.
        let path =
            format!("/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=600");
        world.client().watch(&path).await
    };
    let watches = join_all(versions.into_iter().map(resume)).await;
    world.sim.release_requests();
    world.gateway.warm("/api/v1/pods").await;
    watches
}

/// Waits until the gateway's own watch is the only one.
async fn none_is_left(world: &World) {
    let over = world.sim.until(|counts| counts.open_watches("pods") == 1);
    within("the takeovers", passing(STEP / 5, over)).await;
}

/// The watches get what happens after the gateway has lost its own and opened the next one.
async fn all_continue(world: &World, mut watches: Vec<Watch>) {
    world.sim.cut_watches(Some("pods"));
    skip(BACKOFF).await;
    world.create_pod("default", "c", "x");
    for event in join_all(watches.iter_mut().map(Watch::line)).await {
        assert!(event.unwrap().unwrap().contains(r#""name":"c""#));
    }
}

#[tokio::test]
async fn an_upstream_that_sends_no_bookmarks_is_asked_for_the_number_of_objects() {
    const HERD: u64 = 100;
    let world = cold_with(Features::old()).await;
    let first = world.sim.revision();
    world.sim.skip_revisions(3);
    // Each of three versions is that of many clients.
    let watches = resumes_at_an_old_upstream(&world, (0..HERD).map(|number| first + number % 3)).await;
    let before = world.sim.counts();
    none_is_left(&world).await;
    let asked = |verb| world.sim.counts().requests(verb, "pods") - before.requests(verb, "pods");
    assert!(asked("list") <= HERD && asked("watch") == 0, "{} lists, {} watches", asked("list"), asked("watch"));
    all_continue(&world, watches).await;
}

#[tokio::test]
async fn a_watch_stays_upstream_while_the_cached_state_differs_from_the_clients() {
    let changes: [fn(&World); 3] = [
        |world| world.delete_pod("kube-system/b"),
        |world| world.label_pod("kube-system/b", "z"),
        // As many objects as before.
        |world| {
            world.delete_pod("kube-system/b");
            world.create_pod("kube-system", "b", "y");
        },
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let world = cold_with(Features::old()).await;
        let path = format!(
            "/api/v1/namespaces/default/pods?watch=1&resourceVersion={}&timeoutSeconds=600",
            world.sim.revision()
        );
        change(&world);
        // None of these changes concern this client.
        let mut watch = world.client().watch(&path).await;
        world.sim.release_requests();
        world.gateway.warm("/api/v1/pods").await;
        skip(Duration::from_secs(10)).await;
        assert_eq!(world.sim.counts().open_watches("pods"), 2, "change {at}");
        world.create_pod("default", "c", "x");
        let event = watch.line().await.unwrap().unwrap();
        assert!(event.starts_with(r#"{"type":"ADDED""#) && event.contains(r#""name":"c""#), "{event}");
        none_is_left(&world).await;
    }
}

#[tokio::test]
async fn a_version_that_an_old_upstream_has_compacted_stays_upstreams_until_something_happens() {
    let world = cold_with(Features::old()).await;
    let first = world.sim.revision();
    world.sim.skip_revisions(3);
    world.sim.compact();
    let mut watches = resumes_at_an_old_upstream(&world, [first, first]).await;
    skip(Duration::from_secs(10)).await;
    assert_eq!(world.sim.counts().open_watches("pods"), 3);
    world.create_pod("default", "c", "x");
    for watch in &mut watches {
        assert!(watch.line().await.unwrap().unwrap().contains(r#""name":"c""#));
    }
    none_is_left(&world).await;
}

#[tokio::test]
async fn a_watch_of_an_undiscovered_resource_is_taken_over_once_it_is_known() {
    let sim = Sim::new();
    let services = Some("apiservices.apiregistration.k8s.io".to_owned());
    sim.refuse(Refusal { resource: services, status: 503, ..Refusal::default() });
    let world = World::start_with(sim, |_| {}).await;
    world.create_pod("default", "a", "x");
    world.gateway.until_forwarded("/api/v1/pods?resourceVersion=0", "undiscovered").await;
    let path = format!("/api/v1/pods?watch=1&resourceVersion={}&timeoutSeconds=600", world.sim.revision());
    let mut watch = world.client().watch(&path).await;
    assert_eq!(world.sim.counts().requests("watch", "pods"), 1, "forwarded, and no cache");
    world.sim.accept_all();
    let is_over = |counts: &Counts| counts.requests("watch", "pods") > 1 && counts.open_watches("pods") == 1;
    within("the takeover", passing(STEP, world.sim.until(is_over))).await;
    goes_on_without_upstream(&world, &mut watch).await;
}

#[tokio::test]
async fn a_watch_of_a_new_resource_is_taken_over() {
    let world = World::start().await;
    let collection = "/apis/example.com/v1/widgets";
    world.gateway.until_forwarded(&format!("{collection}?resourceVersion=0"), "unknown_resource").await;
    world.sim.create(definition(".spec.size")).unwrap();
    let path = format!("{collection}?watch=1&resourceVersion={}&timeoutSeconds=600", world.sim.revision());
    let mut watch = world.client().watch(&path).await;
    let resource = "widgets.example.com";
    assert_eq!(world.sim.counts().requests("watch", resource), 1, "forwarded, and no cache");
    let is_over = |counts: &Counts| counts.requests("watch", resource) > 1 && counts.open_watches(resource) == 1;
    within("the takeover", passing(STEP, world.sim.until(is_over))).await;
    world.sim.cut_watches(Some(resource));
    skip(BACKOFF).await;
    world.sim.create(widget("one", "1")).unwrap();
    let event = watch.line().await.unwrap().unwrap();
    assert!(event.starts_with(r#"{"type":"ADDED""#) && event.contains(r#""name":"one""#), "{event}");
}

/// Requests do not wait for a cache, and jane may watch config maps.
async fn scene_with_little_room() -> Scene {
    let scene = Scene::start_with(|config| {
        config.reads.fill_wait = Duration::ZERO;
        config.limits.answer_bytes_per_client = ROOM;
    })
    .await;
    for verb in ["list", "watch"] {
        scene.upstream.grant("jane", verb, "configmaps");
    }
    scene
}

fn create_config_map(scene: &Scene, name: &str) {
    let metadata = json!({"name": name, "namespace": "default"});
    scene.sim.create(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})).unwrap();
}

/// An API server ignores what follows the token.
#[tokio::test]
async fn a_watch_with_more_credentials_than_there_is_room_for_stays_upstream() {
    let scene = scene_with_little_room().await;
    scene.sim.hold_requests("list", "configmaps");
    let path = format!("/api/v1/configmaps?watch=1&resourceVersion={}&timeoutSeconds=1800", scene.sim.revision());
    let long = format!("Bearer jane-token {}", "x".repeat(200 << 10));
    let _long = scene.gateway.client.watch_with(&path, &[("authorization", &long)]).await;
    let _usual = scene.gateway.client.watch_with(&path, &JANE).await;
    scene.sim.release_requests();
    let one_is_left =
        |counts: &Counts| counts.requests("watch", "configmaps") > 2 && counts.open_watches("configmaps") == 2;
    within("the takeover", passing(STEP / 5, scene.sim.until(one_is_left))).await;
    for _ in 0..5 {
        skip(STEP).await;
        assert_eq!(scene.get("jane-token", "/version").await.route, Route::Forwarded("non_resource_path".to_owned()));
    }
    assert_eq!(scene.sim.counts().open_watches("configmaps"), 2);
}

/// What is kept of a request for a takeover counts for its client. Here there is room for that of one watch.
#[tokio::test]
async fn a_takeover_that_is_given_up_makes_room_for_another() {
    let long = "x".repeat(100 << 10);
    let headers = [JANE[0], ("x-real-ip", long.as_str())];
    let scene = scene_with_little_room().await;
    scene.sim.hold_requests("list", "configmaps");
    let path = format!("/api/v1/configmaps?watch=1&resourceVersion={}&timeoutSeconds=1800", scene.sim.revision());
    let mut given_up = scene.gateway.client.watch_with(&path, &headers).await;
    create_config_map(&scene, "a");
    assert!(given_up.line().await.unwrap().unwrap().contains(r#""name":"a""#));
    // The client is reviewed when the cache is filled, and may not watch any more.
    scene.upstream.revoke("jane", "watch", "configmaps");
    skip(TTL + Duration::from_secs(1)).await;
    let (_, reviews) = scene.upstream.reviews();
    scene.sim.release_requests();
    let reviewed = until("a review", async || (scene.upstream.reviews().1 > reviews).then_some(()));
    passing(STEP / 5, reviewed).await;
    scene.upstream.grant("jane", "watch", "configmaps");
    skip(TTL + Duration::from_secs(1)).await;
    // Also from before the fill: forwarded, and taken over as soon as it has caught up. The room may not be free at
    // once.
    let another = async || {
        let mut watch = scene.gateway.client.watch_with(&path, &headers).await;
        assert!(watch.line().await.unwrap().unwrap().contains(r#""name":"a""#));
        let is_over = scene.sim.until(|counts| counts.open_watches("configmaps") == 2);
        timeout(STEP, is_over).await.is_ok().then_some(watch)
    };
    let mut taken_over = until("another takeover", another).await;
    create_config_map(&scene, "b");
    for watch in [&mut given_up, &mut taken_over] {
        assert!(watch.line().await.unwrap().unwrap().contains(r#""name":"b""#));
    }
}

/// At most this much later a client that could not be reviewed is reviewed again.
const REVIEW_AGAIN: Duration = Duration::from_secs(300);

/// No cache stops, and no watch ends, while a test waits for a review.
const LONG: Duration = Duration::from_secs(50_000);

/// A watch of Jane's that is forwarded because she could not be reviewed.
struct Unreviewed {
    watch: Watch,
    path: String,
    audit: PathBuf,
    _folder: TempDir,
}

impl Unreviewed {
    /// The scene, and the audit log of the watch that is to come.
    async fn scene(change: impl FnOnce(&mut Config)) -> (Scene, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::start_with(|config| {
            config.audit.path = Some(folder.path().join("audit.log"));
            config.cache.idle_timeout = LONG;
            change(config);
        });
        (scene.await, folder)
    }

    async fn open(scene: &Scene, folder: TempDir) -> Self {
        let revision = scene.sim.revision();
        let path = format!("/api/v1/pods?watch=1&resourceVersion={revision}&timeoutSeconds={}", LONG.as_secs());
        let watch = scene.gateway.client.watch_with(&path, &JANE).await;
        Self { watch, path, audit: folder.path().join("audit.log"), _folder: folder }
    }

    fn is_taken_over(&self) -> bool {
        events(&self.audit).iter().any(|event| event["requestURI"] == self.path)
    }

    /// Waits for the takeover, and checks that the watch goes on, and ends with its right.
    async fn ends_with_the_right_of_jane(mut self, scene: &Scene) {
        let is_over = until("the takeover", async || self.is_taken_over().then_some(()));
        passing(STEP * 2, is_over).await;
        scene.sim.create(pod("default", "b", "x")).unwrap();
        assert!(self.watch.line().await.unwrap().unwrap().contains(r#""name":"b""#));
        scene.upstream.revoke("jane", "watch", "pods");
        let revoked = Instant::now();
        let (rest, route) = passing(WATCH_INTERVAL / 4, self.watch.rest()).await;
        assert_eq!(rest, "");
        assert!(revoked.elapsed() < LONG / 2, "long before its time is over");
        assert!(route == forwarded("no_verdict") || route == forwarded("too_many_reviews"), "{route:?}");
    }
}

#[tokio::test]
async fn a_watch_without_a_verdict_is_taken_over_once_there_is_one() {
    let (scene, folder) = Unreviewed::scene(|_| {}).await;
    skip(TTL + Duration::from_secs(1)).await;
    scene.upstream.stop_reviews();
    let unreviewed = Unreviewed::open(&scene, folder).await;
    // Also after a further review that fails.
    for _ in 0..=REVIEW_AGAIN.as_secs() / 10 {
        skip(Duration::from_secs(10)).await;
        assert_eq!(scene.get("jane-token", "/version").await.route, forwarded("non_resource_path"));
    }
    assert!(!unreviewed.is_taken_over(), "upstream allows what the gateway may not");
    scene.upstream.start_reviews();
    unreviewed.ends_with_the_right_of_jane(&scene).await;
}

#[tokio::test]
async fn a_watch_without_room_for_its_review_is_taken_over_once_there_is_some() {
    const REVIEWS: usize = 250;
    let (scene, folder) = Unreviewed::scene(|config| match &mut config.clients {
        // Only reviews of access are held.
        ClientsConfig::Delegated(delegated) => delegated.authentication.success_ttl = LONG,
        ClientsConfig::Trusted(_) => unreachable!("the scene's clients are delegated"),
    })
    .await;
    scene.upstream.hold_reviews(true);
    let paths: Vec<_> = (0..=REVIEWS).map(|number| format!("{PODS}&labelSelector=a%3D{number}")).collect();
    let mut lists: FuturesUnordered<_> = paths.iter().map(|path| scene.get("jane-token", path)).collect();
    // All others wait for their reviews.
    assert_eq!(lists.next().await.unwrap().route, forwarded("too_many_reviews"));
    let unreviewed = Unreviewed::open(&scene, folder).await;
    drop(lists);
    scene.upstream.hold_reviews(false);
    unreviewed.ends_with_the_right_of_jane(&scene).await;
}

/// What permitted a takeover may be gone by the time at which the client reads on.
#[tokio::test]
async fn a_client_that_reads_on_late_is_authorized_again() {
    for may_watch in [false, true] {
        let scene = scene_with_little_room().await;
        scene.sim.hold_requests("list", "configmaps");
        let path = format!("/api/v1/configmaps?watch=1&resourceVersion={}&timeoutSeconds=1800", scene.sim.revision());
        let mut watch = scene.gateway.client.taking_a_byte().watch_with(&path, &JANE).await;
        // What permitted the request is forgotten.
        skip(TTL + Duration::from_secs(1)).await;
        let ((_, before), arrived) = (scene.upstream.reviews(), scene.upstream.arrived_reviews());
        scene.upstream.hold_reviews(true);
        scene.sim.release_requests();
        let is_asking = async || (scene.upstream.arrived_reviews() > arrived).then_some(());
        passing(STEP / 5, until("the takeover's review", is_asking)).await;
        // The rest of the first event waits in the HTTP/2 stream, and the second one for the first, so that the watch
        // cannot be taken over before its client reads on.
        create_config_map(&scene, "a");
        assert_eq!(watch.bytes(1).await, "{");
        create_config_map(&scene, "b");
        for _ in 0..20 {
            assert_eq!(scene.get("jane-token", "/version").await.route, forwarded("non_resource_path"));
        }
        scene.upstream.hold_reviews(false);
        // Asks the same, and so is answered when the takeover has its verdict, or later.
        let same = until("a watch from memory", async || {
            let watch = scene.gateway.client.watch_with(&path, &JANE).await;
            (scene.sim.counts().open_watches("configmaps") == 2).then_some(watch)
        });
        drop(same.await);
        assert_eq!(scene.upstream.reviews().1, before + 1);

        if !may_watch {
            scene.upstream.revoke("jane", "watch", "configmaps");
        }
        skip(TTL + Duration::from_secs(1)).await;
        assert!(watch.line().await.unwrap().unwrap().contains(r#""name":"a""#));
        let again = until("a further review", async || (scene.upstream.reviews().1 == before + 2).then_some(()));
        passing(STEP / 5, again).await;
        if may_watch {
            let is_over = scene.sim.until(|counts| counts.open_watches("configmaps") == 1);
            within("the takeover", passing(STEP / 5, is_over)).await;
        } else {
            for _ in 0..5 {
                skip(STEP).await;
                assert_eq!(scene.get("jane-token", "/version").await.route, forwarded("non_resource_path"));
            }
            assert_eq!(scene.sim.counts().open_watches("configmaps"), 2);
        }
        create_config_map(&scene, "c");
        for name in ["b", "c"] {
            assert!(watch.line().await.unwrap().unwrap().contains(&format!(r#""name":"{name}""#)));
        }
    }
}

#[tokio::test]
async fn watches_that_memory_cannot_serve_stay_upstream() {
    let world = World::start().await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let _table = world.client().watch_as("/api/v1/pods?watch=1&resourceVersion=1&timeoutSeconds=600", table).await;
    let _events = world.client().watch("/api/v1/events?watch=1&timeoutSeconds=600").await;
    world.gateway.warm("/api/v1/pods").await;
    skip(Duration::from_secs(30)).await;
    world.create_pod("default", "a", "x");
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    let counts = world.sim.counts();
    assert_eq!((counts.open_watches("pods"), counts.open_watches("events")), (2, 1));
}
