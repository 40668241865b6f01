//! Watches of the most recent state: memory answers once it is proven to contain everything that upstream has
//! acknowledged.

use std::time::Duration;

use futures_util::future::join_all;
use kube_fanout::{
    config::MostRecentReads,
    sim::{Features, Refusal, Sim},
};
use serde_json::json;

use crate::{
    harness::{Answer, Route, World, passing, skip, until, within},
    reads::definition,
};

/// A watch-list as client-go sends it; ends after the initial events.
const WATCH_LIST: &str = "/api/v1/pods?watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
                          &resourceVersionMatch=NotOlderThan&timeoutSeconds=1";

async fn with_a_pod(features: Features) -> World {
    let sim = Sim::new();
    sim.set_features(features);
    let world = World::start_with(sim, |config| config.reads.most_recent = MostRecentReads::Prove).await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    world
}

/// The answer to a watch-list, advancing the clock meanwhile.
async fn watched(world: &World) -> Answer {
    passing(Duration::from_millis(500), world.client().get(WATCH_LIST)).await
}

fn unproven() -> Route {
    Route::Forwarded("unproven".to_owned())
}

#[tokio::test]
async fn a_proven_watch_is_answered_from_memory() {
    let world = with_a_pod(Features::default()).await;
    world.create_pod("default", "b", "x");
    // Other resources increase the version as well: the watch of this resource learns it only from a bookmark.
    world.sim.skip_revisions(10);
    let answer = watched(&world).await;
    assert_eq!(answer.route, Route::Served);
    assert!(answer.text().contains(r#""name":"b""#), "{}", answer.text());
    let end =
        format!(r#""resourceVersion":"{}","annotations":{{"k8s.io/initial-events-end":"true"}}"#, world.sim.revision());
    assert!(answer.text().contains(&end), "{}", answer.text());
}

#[tokio::test]
async fn a_lagging_store_is_not_read() {
    let world = with_a_pod(Features::default()).await;
    world.sim.delay_events(Duration::from_secs(3600));
    world.create_pod("default", "b", "x");
    let answer = watched(&world).await;
    assert_eq!(answer.route, unproven());
    assert!(answer.text().contains(r#""name":"b""#), "{}", answer.text());
    world.sim.delay_events(Duration::ZERO);
    // The proof is repeated after a further change.
    world.create_pod("default", "c", "x");
    assert_eq!(watched(&world).await.route, Route::Served);
}

#[tokio::test]
async fn a_watch_that_lacks_a_change_of_another_one_is_opened_again() {
    let world = with_a_pod(Features::default()).await;
    world.sim.hold_watches(Some("pods"));
    world.create_pod("default", "b", "x");
    drop(watched(&world).await);
    // The first watch is still held: another one has replaced it.
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    assert_eq!(watched(&world).await.route, Route::Served);
}

#[tokio::test]
async fn an_unanswered_head_request_is_given_up() {
    let world = with_a_pod(Features::default()).await;
    let heads = Refusal { verb: Some("list"), resource: Some("pods".to_owned()), times: None, status: 0 };
    world.sim.swallow(heads);
    assert_eq!(watched(&world).await.route, unproven());
}

#[tokio::test]
async fn bookmarks_that_prove_nothing_are_not_enough() {
    for features in
        [Features { progress: false, ..Features::default() }, Features { bookmarks: false, ..Features::default() }]
    {
        let world = with_a_pod(features).await;
        world.sim.skip_revisions(10);
        assert_eq!(watched(&world).await.route, unproven(), "{features:?}");
        // No bookmark is needed if memory has the newest version of all.
        world.create_pod("default", "b", "x");
        world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
        assert_eq!(watched(&world).await.route, Route::Served, "{features:?}");
    }
}

/// Lets the reflector's requests fail until it waits half a minute between two attempts.
async fn put_to_sleep(world: &World) {
    for verb in ["list", "watch"] {
        let refusal = Refusal { verb: Some(verb), resource: Some("pods".to_owned()), times: None, status: 503 };
        world.sim.refuse(refusal);
    }
    world.sim.cut_watches(Some("pods"));
    for _ in 0..8 {
        let asked = world.sim.counts().requests("list", "pods");
        let again = world.sim.until(|counts| counts.requests("list", "pods") > asked);
        // In steps that are shorter than a request's timeout: a request that times out is no attempt.
        within("the next look", passing(Duration::from_secs(2), again)).await;
    }
}

#[tokio::test]
async fn a_head_behind_the_store_proves_no_watch() {
    assert_never_proven(WATCH_LIST).await;
}

#[tokio::test]
async fn a_head_behind_the_store_proves_no_list() {
    assert_never_proven("/api/v1/pods").await;
}

#[tokio::test]
async fn a_head_behind_the_store_proves_no_get() {
    assert_never_proven("/api/v1/namespaces/default/pods/ghost").await;
}

/// Upstream is restored to a version before a pod while the reflector waits for its next attempt.
async fn assert_never_proven(path: &str) {
    let world = with_a_pod(Features::default()).await;
    let backup = world.sim.revision();
    world.create_pod("default", "ghost", "x");
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    put_to_sleep(&world).await;
    world.sim.rewind(backup).unwrap();
    world.sim.accept_all();
    let answer = passing(Duration::from_millis(500), world.client().get(path)).await;
    assert!(!answer.text().contains("node-x") || !answer.text().contains("ghost"), "{}", answer.text());
    assert_eq!(answer.route, unproven(), "{path}");
    // The reflector stops waiting, and its old state is no longer read.
    let given_up = async || {
        let answer = world.client().get("/api/v1/pods?resourceVersion=0").await;
        (!answer.text().contains("ghost")).then_some(())
    };
    until("the end of the cache", given_up).await;
    world.gateway.warm("/api/v1/pods").await;
    world.assert_same("/api/v1/pods?resourceVersion=0", &Route::Served).await;
}

#[tokio::test]
async fn compacted_versions_and_tokens_are_forwarded() {
    let world = with_a_pod(Features::default()).await;
    world.create_pod("default", "b", "x");
    let version = world.sim.revision();
    world.gateway.reach("/api/v1/pods", version).await;
    let exact = format!("/api/v1/pods?resourceVersion={version}&resourceVersionMatch=Exact");
    let page = world.assert_same(&format!("{exact}&limit=1"), &Route::Served).await;
    let page: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
    let following = format!("/api/v1/pods?limit=1&continue={}", page["metadata"]["continue"].as_str().unwrap());
    world.assert_same(&following, &Route::Served).await;
    world.create_pod("default", "c", "x");
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    // The default of `cache.history.age`, which is also the API server's compaction interval.
    skip(Duration::from_secs(5 * 60 + 10)).await;
    world.sim.compact();
    for path in [exact, following] {
        let answer = world.client().get(&path).await;
        let outside = Route::Forwarded("outside_history".to_owned());
        assert_eq!((answer.status.as_u16(), answer.route), (410, outside), "{path}");
    }
}

#[tokio::test]
async fn a_version_from_elsewhere_is_proven_to_be_reached() {
    let world = with_a_pod(Features::default()).await;
    let list = "/api/v1/pods?resourceVersionMatch=NotOlderThan";
    let get = "/api/v1/namespaces/default/pods/a?";
    for path in [list, get, WATCH_LIST] {
        // Another gateway has got this version from its own proof.
        world.sim.skip_revisions(10);
        let path = format!("{path}&resourceVersion={}", world.sim.revision());
        let answer = passing(Duration::from_millis(500), world.client().get(&path)).await;
        assert_eq!((answer.status.as_u16(), answer.route), (200, Route::Served), "{path}");
    }
}

#[tokio::test]
async fn a_version_that_upstream_has_not_reached_is_forwarded() {
    let world = with_a_pod(Features::default()).await;
    let before = world.sim.counts();
    let path = format!("/api/v1/pods?resourceVersion={}&resourceVersionMatch=NotOlderThan", world.sim.revision() + 50);
    let answer = passing(Duration::from_millis(500), world.client().get(&path)).await;
    assert_eq!((answer.status.as_u16(), answer.route), (504, Route::Forwarded("not_reached".to_owned())));
    let after = world.sim.counts();
    assert_eq!(after.requests("watch", "pods"), before.requests("watch", "pods"), "there is nothing to watch for");
}

#[tokio::test]
async fn one_proof_serves_all_that_wait_for_it() {
    let world = with_a_pod(Features::default()).await;
    world.sim.skip_revisions(10);
    let before = world.sim.counts();
    let watches = join_all((0..50).map(|_| world.client().get(WATCH_LIST)));
    let answers = passing(Duration::from_millis(500), watches).await;
    assert!(answers.iter().all(|answer| answer.route == Route::Served));
    let after = world.sim.counts();
    let asked = |verb| after.requests(verb, "pods") - before.requests(verb, "pods");
    assert!(asked("list") <= 3 && asked("watch") <= 2, "{} lists, {} watches", asked("list"), asked("watch"));
}

const OLDER: &str = "/apis/example.com/v1beta1/widgets";
const NEWER: &str = "/apis/example.com/v1/widgets";

/// A custom resource in two versions of its API, each in its own cache.
async fn in_two_versions() -> World {
    let world = World::start().await;
    let mut widgets = definition(".spec.size");
    let versions = widgets["spec"]["versions"].as_array_mut().unwrap();
    let mut older = versions[0].clone();
    (older["name"], older["storage"]) = ("v1beta1".into(), false.into());
    versions.push(older);
    world.sim.create(widgets).unwrap();
    world.gateway.warm(OLDER).await;
    // Holds only the watch of the older version.
    world.sim.hold_watches(Some("widgets.example.com"));
    world.gateway.warm(NEWER).await;
    world
}

fn widget(name: &str) -> serde_json::Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "namespace": "default"}})
}

async fn version_of_list(world: &World, collection: &str) -> (u64, Route) {
    let answer = world.client().get(&format!("{collection}?resourceVersion=0")).await;
    let list: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    (list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap(), answer.route)
}

#[tokio::test]
async fn time_does_not_run_backwards_between_versions_of_the_api() {
    let world = in_two_versions().await;
    world.sim.create(widget("a")).unwrap();
    world.gateway.reach(NEWER, world.sim.revision()).await;
    let (told, route) = version_of_list(&world, NEWER).await;
    assert_eq!(route, Route::Served);
    let (then, _) = version_of_list(&world, OLDER).await;
    assert!(then >= told, "{then} after {told}");
    let watch = format!("{OLDER}?watch=1&resourceVersion=0&timeoutSeconds=1");
    let answer = passing(Duration::from_millis(500), world.client().get(&watch)).await;
    assert!(answer.text().contains(r#""name":"a""#), "{}", answer.text());
}

#[tokio::test]
async fn caches_of_one_resource_share_their_progress() {
    let world = in_two_versions().await;
    world.sim.skip_revisions(10);
    let newest = format!(
        "{NEWER}?watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
                          &resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
    );
    let proven = passing(Duration::from_millis(500), world.client().get(&newest)).await;
    assert_eq!(proven.route, Route::Served);
    let before = world.sim.counts();
    assert_eq!(version_of_list(&world, OLDER).await, (world.sim.revision(), Route::Served));
    let asked =
        |verb| world.sim.counts().requests(verb, "widgets.example.com") - before.requests(verb, "widgets.example.com");
    assert_eq!((asked("list"), asked("watch")), (0, 0), "it is known here");
}

#[tokio::test]
async fn a_discarded_store_that_a_watch_still_holds_is_not_compared() {
    let world = with_a_pod(Features::default()).await;
    let backup = world.sim.revision();
    world.create_pod("default", "ghost", "x");
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    // The client never reads, so that its watch does not learn that the store is gone.
    let held = world.client().that_does_not_read();
    let _watch = held.head("/api/v1/pods?watch=1&resourceVersion=0", &[]).await;
    world.sim.rewind(backup).unwrap();
    world.sim.cut_watches(Some("pods"));
    let anew = async || {
        skip(Duration::from_secs(1)).await;
        let answer = world.client().get("/api/v1/pods?resourceVersion=0").await;
        (answer.route == Route::Served && !answer.text().contains("ghost")).then_some(())
    };
    until("reads from the new store", anew).await;
}

#[tokio::test]
async fn a_version_of_the_api_that_is_not_followed_is_not_older_than_one_that_is() {
    const COLLECTIONS: [&str; 2] = ["/apis/example.com/v1/widgets", "/apis/example.com/v1beta1/widgets"];
    let mut definition = definition(".spec.color");
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    versions.push(json!({"name": "v1beta1", "served": true, "storage": false}));
    let world = World::start().await;
    world.sim.create(definition).unwrap();
    world.sim.create(widget("a")).unwrap();
    for collection in COLLECTIONS {
        world.gateway.warm(collection).await;
    }
    // Both lose their watch, and one of them is refused another.
    let widgets = Some("widgets.example.com".to_owned());
    let refusal = |times| Refusal { verb: Some("watch"), resource: widgets.clone(), times, status: 503 };
    world.sim.refuse(refusal(Some(1)));
    let opened = world.sim.counts().requests("watch", "widgets.example.com");
    world.sim.cut_watches(Some("widgets.example.com"));
    let tried = world.sim.until(|counts| {
        counts.requests("watch", "widgets.example.com") >= opened + 2 && counts.open_watches("widgets.example.com") == 1
    });
    within("the one that is followed", passing(Duration::from_millis(200), tried)).await;
    world.sim.refuse(refusal(None));
    world.sim.create(widget("b")).unwrap();
    let version = world.sim.revision();

    let read = async |collection: &str| {
        let answer = world.client().get(&format!("{collection}?resourceVersion=0")).await;
        let list: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        let read: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        (answer.route, read)
    };
    let followed = until("the change in memory", async || {
        for (at, collection) in COLLECTIONS.into_iter().enumerate() {
            if read(collection).await == (Route::Served, version) {
                return Some(at);
            }
        }
        None
    });
    let other = 1 - passing(Duration::from_millis(200), followed).await;
    let (route, found) = passing(Duration::from_millis(200), read(COLLECTIONS[other])).await;
    assert!(found >= version, "{route}: {found}, while another version of the API has shown {version}");
}
