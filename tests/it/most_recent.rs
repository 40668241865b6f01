//! Gets and lists of the most recent state, from memory after a proof (`reads.mostRecent`).

use std::time::Duration;

use futures_util::future::join_all;
use kube_fanout::{
    config::MostRecentReads,
    sim::{Features, Refusal, Sim},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    delegated::Scene,
    harness::{
        Answer, Client, Route, World, forwarded, passing, skip, until,
        upstream::{pod, pods},
    },
};

const LIST: &str = "/api/v1/pods";
const GET: &str = "/api/v1/namespaces/default/pods/a";
/// A number of pods whose list is not a small answer.
const LARGE: usize = 40;

async fn with_pods(most_recent: MostRecentReads, features: Features, count: usize) -> World {
    let sim = Sim::new();
    sim.set_features(features);
    for index in 0..count {
        let mut large = pod("default", &format!("large-{index:02}"), "x");
        large["metadata"]["annotations"] = json!({"filler": "x".repeat(8 << 10)});
        sim.create(large).unwrap();
    }
    for name in ["a", "b", "c"] {
        sim.create(pod("default", name, name)).unwrap();
    }
    let world = World::start_with(sim, |config| config.reads.most_recent = most_recent).await;
    world.gateway.warm(LIST).await;
    world
}

async fn proving() -> World {
    with_pods(MostRecentReads::Prove, Features::default(), 0).await
}

/// The answer to a get of the path, advancing the clock meanwhile.
async fn asked(world: &World, path: &str) -> Answer {
    passing(Duration::from_millis(500), world.client().get(path)).await
}

#[tokio::test]
async fn memory_that_is_proven_gives_upstream_s_own_bytes() {
    let world = proving().await;
    for path in [
        LIST,
        GET,
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/none/pods",
        "/api/v1/namespaces/default/pods/none",
        "/api/v1/pods?labelSelector=app%3Db",
        "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-b",
        "/api/v1/namespaces/default/pods?fieldSelector=metadata.name%3Da",
        "/api/v1/pods?limit=2",
        "/api/v1/pods?limit=1&labelSelector=app+in+(a,c)",
    ] {
        world.assert_same(path, &Route::Served).await;
    }
    // Only a progress probe learns that other resources have increased the version.
    world.sim.skip_revisions(10);
    let answer = asked(&world, LIST).await;
    assert_eq!((version(&answer), answer.route), (world.sim.revision(), Route::Served));
}

fn version(answer: &Answer) -> u64 {
    let list: Value = serde_json::from_slice(&answer.body).unwrap();
    list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn token(answer: &Answer) -> Option<String> {
    let list: Value = serde_json::from_slice(&answer.body).unwrap();
    list["metadata"]["continue"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn later_pages_are_of_the_first_one_s_state() {
    let world = proving().await;
    let first = world.assert_same("/api/v1/pods?limit=1", &Route::Served).await;
    world.delete_pod("default/b");
    world.create_pod("default", "d", "x");
    world.gateway.reach(LIST, world.sim.revision()).await;
    let second = format!("/api/v1/pods?limit=1&continue={}", token(&first).unwrap());
    let second = world.assert_same(&second, &Route::Served).await;
    assert_eq!((version(&second), second.text().contains(r#""name":"b""#)), (version(&first), true));
    // The token of the answer to an expired token: "continue with the most recent state".
    let latest =
        "/api/v1/pods?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiL2RlZmF1bHQvYVx1MDAwMCJ9";
    let latest = world.assert_same(latest, &Route::Served).await;
    assert_eq!((version(&latest), latest.text().contains(r#""name":"c""#)), (world.sim.revision(), true));
}

#[tokio::test]
async fn reads_are_forwarded_by_default() {
    let world = with_pods(MostRecentReads::Forward, Features::default(), LARGE).await;
    for path in [LIST, GET, "/api/v1/pods?limit=2"] {
        world.assert_same(path, &forwarded("most_recent")).await;
    }
}

#[tokio::test]
async fn reads_that_cannot_be_proven_are_forwarded() {
    let world = with_pods(MostRecentReads::Prove, Features { progress: false, ..Features::default() }, 0).await;
    world.sim.skip_revisions(10);
    for path in [LIST, GET] {
        assert_eq!(asked(&world, path).await.route, forwarded("unproven"), "{path}");
    }
    // A cache is not proven either if upstream does not answer with its head version.
    let world = proving().await;
    let heads = Refusal { verb: Some("list"), resource: Some("pods".to_owned()), times: Some(1), status: 503 };
    world.sim.refuse(heads);
    world.assert_same(LIST, &forwarded("unproven")).await;
    world.assert_same(LIST, &Route::Served).await;
}

#[tokio::test]
async fn one_head_version_serves_all_that_wait() {
    let world = proving().await;
    let before = world.sim.counts().requests("list", "pods");
    world.sim.hold_requests("list", "pods");
    let lists = join_all((0..50).map(|_| world.client().get(LIST)));
    let released = async {
        world.sim.until(|counts| counts.requests("list", "pods") > before).await;
        world.sim.release_requests();
    };
    let (answers, ()) = tokio::join!(lists, released);
    assert!(answers.iter().all(|answer| answer.route == Route::Served));
    // One request serves all lists that arrived before it was sent; lists that arrived while it was under way need
    // further requests.
    let asked = world.sim.counts().requests("list", "pods") - before;
    assert!(asked < 25, "{asked} lists upstream for 50");
}

#[tokio::test]
async fn reads_wait_for_a_fill_whose_cache_can_be_proven() {
    let world = World::start_with(Sim::new(), |config| config.reads.most_recent = MostRecentReads::Prove).await;
    world.create_pod("default", "a", "x");
    world.sim.hold_requests("watch", "pods");
    let released = async {
        world.sim.until(|counts| counts.requests("watch", "pods") > 0).await;
        world.sim.release_requests();
    };
    let (answer, ()) = tokio::join!(world.client().get(LIST), released);
    assert_eq!((answer.status.as_u16(), answer.route), (200, Route::Served));
}

#[tokio::test]
async fn auto_forwards_reads_that_upstream_answers_quickly() {
    let world = with_pods(MostRecentReads::Auto, Features::default(), 0).await;
    let before = world.sim.counts();
    for path in [LIST, GET] {
        assert_eq!(world.client().get(path).await.route, forwarded("most_recent_small"), "{path}");
    }
    let asked = world.sim.counts().requests("list", "pods") - before.requests("list", "pods");
    assert_eq!(asked, 1, "the list itself, and nothing for a proof");
    let world = with_pods(MostRecentReads::Auto, Features::default(), LARGE).await;
    for path in ["/api/v1/pods?labelSelector=app%3Db", "/api/v1/pods?limit=5", GET] {
        world.assert_same(path, &forwarded("most_recent_small")).await;
    }
}

#[tokio::test]
async fn auto_proves_reads_if_that_is_quick_and_forwards_the_rest() {
    let world = with_pods(MostRecentReads::Auto, Features { bookmarks: false, ..Features::default() }, LARGE).await;
    // Nothing else has changed: memory has the head version, as the first attempt shows.
    until("a proof", async || (world.client().get(LIST).await.route == Route::Served).then_some(())).await;
    world.sim.skip_revisions(10);
    let quiet = async || (world.client().get(LIST).await.route == forwarded("most_recent_quiet")).then_some(());
    until("the choice to forward", quiet).await;
    // The proof is tried again later.
    world.create_pod("default", "d", "x");
    world.gateway.reach(LIST, world.sim.revision()).await;
    skip(Duration::from_secs(10)).await;
    until("another proof", async || (world.client().get(LIST).await.route == Route::Served).then_some(())).await;
}

#[tokio::test]
async fn clients_with_rights_of_their_own_are_answered_if_they_may() {
    let scene = Scene::start_with(|config| config.reads.most_recent = MostRecentReads::Prove).await;
    for path in [LIST, GET, "/api/v1/pods?limit=1"] {
        for (token, status, route) in [("jane-token", 200, Route::Served), ("john-token", 403, forwarded("denied"))] {
            let answer = scene.get(token, path).await;
            assert_eq!((answer.status.as_u16(), answer.route), (status, route), "{token} {path}");
        }
    }
}

#[tokio::test]
async fn reads_that_are_forwarded_in_any_case_cause_no_reviews() {
    let scene = Scene::start_with(|config| config.reads.most_recent = MostRecentReads::Auto).await;
    let reviews = scene.upstream.reviews();
    for path in [LIST, GET] {
        let answer = scene.get("john-token", path).await;
        assert_eq!((answer.status.as_u16(), answer.route), (403, forwarded("most_recent_small")), "{path}");
    }
    assert_eq!(scene.upstream.reviews(), reviews);
}

/// The number of rounds in which a writer writes and reads its own write, while upstream is disturbed.
const ROUNDS: u64 = 80;

#[tokio::test]
async fn clients_always_read_their_own_writes() {
    for features in [Features::default(), Features::old()] {
        let world = with_pods(MostRecentReads::Prove, features, 0).await;
        let writers = join_all((0..4).map(|writer| write_and_read(&world, writer)));
        tokio::select! {
            served = writers => {
                let served: u64 = served.iter().sum();
                // With fewer reads from memory the test would prove nothing.
                assert!(served > 2 * ROUNDS, "{features:?}: {served} of {} from memory", 8 * ROUNDS);
            }
            () = disturb(&world) => unreachable!("disturbances do not end"),
        }
    }
}

/// Returns the number of reads that were answered from memory.
async fn write_and_read(world: &World, writer: usize) -> u64 {
    let name = format!("own-{writer}");
    world.sim.create(pod("default", &name, "x")).unwrap();
    let client = world.client().over_http2();
    let mut served = 0;
    for round in 0..ROUNDS {
        let key = format!("default/{name}");
        let written =
            world.sim.modify(&pods(), &key, |pod| pod["metadata"]["labels"]["round"] = json!(round.to_string()));
        let written = written.unwrap();
        let list = if round % 2 == 0 { LIST.to_owned() } else { format!("{LIST}?limit=500") };
        for path in [list, format!("/api/v1/namespaces/default/pods/{name}")] {
            let Some(answer) = answered(&client, &path).await else { continue };
            served += u64::from(answer.route == Route::Served);
            let found = format!(r#""round":"{round}""#);
            let own = answer.text().split(&format!(r#""name":"{name}""#)).nth(1).unwrap();
            assert!(own.contains(&found), "{path} after the write of {written}: {:?} {own}", answer.route);
        }
    }
    served
}

/// `None` if upstream could not be reached.
async fn answered(client: &Client, path: &str) -> Option<Answer> {
    let answer = client.get(path).await;
    (answer.status == 200).then_some(answer)
}

/// Breaks and delays upstream's watches without end.
async fn disturb(world: &World) {
    for round in 0_u64.. {
        let delay = Duration::from_millis(round % 3 * 20);
        world.sim.delay_events(delay);
        match round % 4 {
            0 => world.sim.cut_watches(None),
            1 => world.sim.end_watches(Some("pods")),
            2 => world.sim.skip_revisions(3),
            _ => world.sim.forget_history(),
        }
        if round % 5 == 0 {
            world.sim.refuse(Refusal { status: 503, times: Some(2), ..Refusal::default() });
        }
        sleep(Duration::from_millis(20)).await;
        // Longer than any pause of the reflector, in steps that leave HTTP/2 time for the answers to its pings.
        for _ in 0..4 {
            skip(Duration::from_secs(10)).await;
            sleep(Duration::from_millis(50)).await;
        }
    }
}
