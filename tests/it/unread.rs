//! Clients that do not read their answers: the memory that they hold and the time for which they hold it are bounded.

use std::time::Duration;

use kube_fanout::{sim::Sim, store::HistoryLimits};
use serde_json::json;

use crate::{
    delegated::Scene,
    harness::{Client, Route, Watch, World, passing, raw, skip, until, upstream::directly, within},
    reads::{definition, widget},
};

/// The lowest valid value of `limits.answerBytes`.
const ROOM: u64 = 16 << 20;
const OBJECT: usize = 1 << 20;
const ALL: &str = "/api/v1/configmaps?resourceVersion=0";
const SELECTED: &str = "/api/v1/configmaps?resourceVersion=0&labelSelector=!no-such-label";
const WATCH: &str = "/api/v1/configmaps?watch=1&resourceVersion=0";
const JANE: [(&str, &str); 1] = [("authorization", "Bearer jane-token")];
const ONE: &str = "/api/v1/namespaces/default/configmaps/large-0?resourceVersion=0";

fn create_large(sim: &Sim) {
    for number in 0..10 {
        let metadata = json!({"name": format!("large-{number}"), "namespace": "default"});
        let data = json!({"text": "x".repeat(OBJECT)});
        sim.create(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data})).unwrap();
    }
}

/// Ten objects of 1 MiB, and a limit of 16 MiB.
async fn world() -> World {
    let sim = Sim::new();
    create_large(&sim);
    let world = World::start_with(sim, |config| {
        config.limits.answer_bytes = ROOM;
        config.limits.answer_bytes_per_client = ROOM;
        config.limits.answer_timeout = Duration::from_secs(60);
    })
    .await;
    world.gateway.warm("/api/v1/configmaps").await;
    world
}

#[tokio::test]
async fn lists_that_are_not_read_hold_no_copies_of_their_objects() {
    let world = world().await;
    let client = world.client().taking_a_byte();
    let mut unread = Vec::new();
    for path in [ALL, SELECTED] {
        for _ in 0..20 {
            unread.push(client.watch(path).await);
        }
    }
    let (_, expected) = world.directly(SELECTED).await;
    let answer = world.client().get(SELECTED).await;
    assert_eq!((answer.route.clone(), answer.text() == expected), (Route::Served, true));
    drop(unread);
}

/// Data that was handed to an HTTP/2 stream is kept until the client takes it: small answers have a timeout, too.
#[tokio::test]
async fn small_unread_answers_are_given_up_after_their_time_limit() {
    let world = world().await;
    let metadata = json!({"name": "small", "namespace": "default"});
    let data = json!({"text": "x".repeat(8 << 10)});
    world.sim.create(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data})).unwrap();
    let path = format!("/api/v1/namespaces/default/configmaps/small?resourceVersion={}", world.sim.revision());
    assert_eq!(world.client().get(&path).await.route, Route::Served);
    let client = world.client().taking_a_byte();
    let mut unread = Vec::new();
    for _ in 0..20 {
        unread.push(client.watch(&path).await);
    }
    // The client's window is one byte; the whole answers wait in the gateway until it gives them up.
    skip(Duration::from_secs(61)).await;
    for answer in unread {
        assert!(passing(Duration::from_secs(1), answer.ends_broken()).await);
    }
}

/// The metadata of custom resources is encoded for each selected list and counts against the limit.
#[tokio::test]
async fn selected_lists_of_metadata_count_against_the_limit() {
    let world = world().await;
    world.sim.create(definition(".spec.size")).unwrap();
    for number in 0..10 {
        let mut widget = widget(&format!("w-{number}"), "1");
        widget["metadata"]["annotations"] = json!({"text": "x".repeat(OBJECT / 4)});
        world.sim.create(widget).unwrap();
    }
    world.gateway.warm("/apis/example.com/v1/widgets").await;
    let path = "/apis/example.com/v1/widgets?resourceVersion=0&labelSelector=!no-such-label";
    let metadata = [("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")];
    let client = world.client().taking_a_byte();
    let mut unread = Vec::new();
    let refused = loop {
        match client.open_with(path, &metadata).await {
            Ok(answer) => unread.push(answer),
            Err(refused) => break refused,
        }
        assert!(unread.len() < 20, "each holds more than two megabytes, of sixteen");
    };
    assert_eq!(refused.route, Route::Rejected("answer_bytes".to_owned()));
}

/// Indentation makes them 200 times as long, which is more than the limit. They are made in pieces, so that little is
/// held of them.
#[tokio::test]
async fn deeply_nested_objects_are_indented_in_pieces() {
    const DEPTH: usize = 100;
    let world = world().await;
    world.sim.create(definition(".spec.size")).unwrap();
    let mut widget = widget("nested", "1");
    widget["spec"]["tree"] = (0..DEPTH).fold(json!(vec![1; 100_000]), |tree, _| json!([tree]));
    world.sim.create(widget).unwrap();
    world.gateway.warm("/apis/example.com/v1/widgets").await;
    let version = world.sim.revision();
    let parameters = format!("resourceVersion={version}&pretty=true");
    let one = format!("/apis/example.com/v1/namespaces/default/widgets/nested?{parameters}");
    let all = format!("/apis/example.com/v1/widgets?{parameters}");
    let selected = format!("{all}&labelSelector=!no-such-label");
    let mut unread = Vec::new();
    let client = world.client().taking_a_byte();
    for path in [&one, &all, &selected] {
        for _ in 0..5 {
            unread.push(client.watch(path).await);
        }
        let (_, expected) = world.directly(path).await;
        assert!(expected.len() as u64 > ROOM, "{path}: {}", expected.len());
        let answer = world.client().get(path).await;
        assert_eq!((answer.route.clone(), answer.text() == expected), (Route::Served, true), "{path}");
    }
}

async fn gets_until_refused(client: &Client) -> Vec<Watch> {
    let mut unread = Vec::new();
    loop {
        match client.open(ONE).await {
            Ok(answer) => unread.push(answer),
            Err(refused) => {
                assert_eq!(refused.status.as_u16(), 429);
                assert_eq!(refused.route, Route::Rejected("answer_bytes".to_owned()));
                assert!(refused.text().contains("limits.answerBytes"), "{}", refused.text());
                return unread;
            }
        }
        assert!(unread.len() < 17, "there is room for sixteen");
    }
}

#[tokio::test]
async fn copies_that_are_not_read_are_bounded_and_given_back() {
    let world = world().await;
    let client = world.client().taking_a_byte();
    let mut unread = gets_until_refused(&client).await;
    assert!(unread.len() > 10, "{}", unread.len());
    // A client that closes an answer may send the next request.
    unread.pop();
    let again = async || client.open(ONE).await.ok();
    drop(until("room that was given back", again).await);
}

#[tokio::test]
async fn unread_answers_are_given_up_after_their_time_limit() {
    let world = world().await;
    let client = world.client().taking_a_byte();
    let unread = gets_until_refused(&client).await;
    skip(Duration::from_secs(61)).await;
    let again = async || world.client().open(ONE).await.ok();
    drop(passing(Duration::from_secs(1), until("room that was taken away", again)).await);
    for answer in unread {
        assert!(passing(Duration::from_secs(1), answer.ends_broken()).await);
    }
}

/// A client that reads its initial events slowly, but steadily, must not keep the state of its start for as long as it
/// likes.
#[tokio::test]
async fn a_watch_whose_initial_events_take_longer_than_history_reaches_back_ends_cleanly() {
    // More bytes than the buffers of both sockets take.
    const OBJECTS: usize = 20;
    const LAST: &str = "\"data\":{\"text\":\"\"}}}\n\r\n";
    let world = World::start_with(Sim::new(), |config| config.cache.history.bytes = 1 << 16).await;
    let create = |name: String, bytes| {
        let metadata = json!({"name": name, "namespace": "default"});
        let data = json!({"text": "x".repeat(bytes)});
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data})
    };
    for number in 0..OBJECTS {
        world.sim.create(create(format!("large-{number}"), OBJECT)).unwrap();
    }
    world.sim.create(create("small".to_owned(), 0)).unwrap();
    world.gateway.warm("/api/v1/configmaps").await;
    for changes in [0, 2 * HistoryLimits::COUNT_MIN] {
        let mut slow = raw::Connection::open(world.client(), WATCH).await;
        let begun = slow.some().await;
        assert!(begun.starts_with("HTTP/1.1 200 OK"), "{begun}");
        for change in 0..changes {
            world.sim.update(create("small".to_owned(), change)).unwrap();
        }
        world.gateway.reach("/api/v1/configmaps", world.sim.revision()).await;
        skip(Duration::from_secs(61)).await;
        if changes == 0 {
            let events = begun + &within("all initial events", slow.until(LAST)).await;
            assert_eq!(events.matches("\"ADDED\"").count(), OBJECTS + 1);
        } else {
            let events = within("the end of what is left", slow.rest()).await;
            assert!(events.ends_with("\r\n0\r\n\r\n"), "no proper end");
            let events = events.matches("\"ADDED\"").count();
            assert!((1..OBJECTS).contains(&events), "{events} of {OBJECTS}");
        }
    }
    // The client begins anew, and gets the present state.
    let mut watch = world.client().watch(WATCH).await;
    for _ in 0..=OBJECTS {
        assert!(watch.line().await.unwrap().unwrap().starts_with(r#"{"type":"ADDED""#));
    }
}

/// The pieces in which initial events are sent are copies, of an object at least.
#[tokio::test]
async fn initial_events_that_are_not_read_are_bounded_and_given_back() {
    let world = world().await;
    let client = world.client().taking_a_byte();
    let mut unread = Vec::new();
    for _ in 0..20 {
        unread.push(client.watch(WATCH).await);
    }
    // All answers share the limit: it is used up.
    let refused = until("a limit that is reached", async || client.open(ONE).await.err()).await;
    assert_eq!(refused.route, Route::Rejected("answer_bytes".to_owned()));
    let mut watch = world.client().watch(WATCH).await;
    drop(unread);
    // A watch that had to wait misses nothing.
    for number in 0..10 {
        let event = watch.line().await.unwrap().unwrap();
        assert!(event.contains(&format!(r#""name":"large-{number}""#)), "event {number}");
    }
}

#[tokio::test]
async fn watches_count_the_selectors_that_they_hold() {
    let world = world().await;
    let values: Vec<_> = (0..1000).map(|number| format!("v-{number:048}")).collect();
    let path = format!("/api/v1/configmaps?watch=1&resourceVersion=0&labelSelector=a+in+({})", values.join(","));
    let mut open = Vec::new();
    let refused = loop {
        match world.client().open(&path).await {
            Ok(watch) => open.push(watch),
            Err(refused) => break refused,
        }
        assert!(open.len() < 250, "each holds about 80,000 bytes, of sixteen megabytes");
    };
    assert_eq!((refused.status.as_u16(), refused.route), (429, Route::Rejected("answer_bytes".to_owned())));
    assert!(open.len() > 50, "{}", open.len());
    open.pop();
    drop(until("room that was given back", async || world.client().open(&path).await.ok()).await);
}

/// A gateway with ten objects of 1 MiB, and its users. Five of them read nothing: each holds a quarter of the room, and
/// waits for more, so that all that is shared is used up. Before that, jane opens her watches.
async fn beside_five_that_do_not_read(watches: &[String]) -> (Scene, Vec<Watch>) {
    let scene = Scene::start_with(|config| {
        config.limits.answer_bytes = 4 * ROOM;
        config.limits.answer_bytes_per_client = ROOM;
    })
    .await;
    create_large(&scene.sim);
    let hostile = [("a-token", "a"), ("b-token", "b"), ("c-token", "c"), ("d-token", "d"), ("e-token", "e")];
    for (token, user) in hostile.into_iter().chain([("jane-token", "jane")]) {
        scene.upstream.add_user(token, user);
        for verb in ["get", "list", "watch"] {
            scene.upstream.grant(user, verb, "configmaps");
        }
    }
    until("the cache is filled", async || (scene.get("jane-token", ALL).await.route == Route::Served).then_some(()))
        .await;
    let mut open = Vec::new();
    for path in watches {
        open.push(scene.gateway.client.watch_with(path, &JANE).await);
    }
    for (token, _) in hostile {
        let client = scene.gateway.client.taking_a_byte();
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", authorization.as_str())];
        for _ in 0..20 {
            open.push(client.watch_with(WATCH, &headers).await);
        }
        let refused = until("no more room", async || client.open_with(ONE, &headers).await.err()).await;
        assert_eq!(refused.route, Route::Rejected("answer_bytes".to_owned()));
    }
    (scene, open)
}

async fn jane_reads(scene: &Scene) {
    for path in [ALL, SELECTED, ONE] {
        let answer = scene.get("jane-token", path).await;
        assert_eq!((answer.status.as_u16(), answer.route), (200, Route::Served), "{path}");
        let (_, expected) = directly(&scene.sim, path).await;
        assert!(answer.body == expected, "{path}");
    }
    let watch_list = format!("{WATCH}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1");
    for (path, ends) in [(WATCH, false), (&watch_list, true)] {
        let mut watch = scene.gateway.client.watch_with(path, &JANE).await;
        for number in 0..10 {
            let event = watch.line().await.unwrap().unwrap();
            assert!(event.contains(&format!(r#""name":"large-{number}""#)), "event {number} of {path}");
        }
        if ends {
            let event = watch.line().await.unwrap().unwrap();
            assert!(event.contains(r#""k8s.io/initial-events-end":"true""#), "{event}");
        }
    }
}

#[tokio::test]
async fn a_client_that_reads_goes_on_beside_five_that_do_not() {
    let (scene, _open) = beside_five_that_do_not_read(&[]).await;
    jane_reads(&scene).await;
}

/// A service account of a DaemonSet has watches on each node. What they hold is no reason to refuse its reads.
#[tokio::test]
async fn a_client_with_many_watches_reads_and_opens_more_beside_five_that_do_not_read() {
    let values: Vec<_> = (0..800).map(|number| format!("v-{number:08}")).collect();
    let path = |number| {
        let selector = format!("labelSelector=a-{number}+in+({})", values.join(","));
        format!("/api/v1/configmaps?watch=1&resourceVersion=0&{selector}")
    };
    // Together more than a megabyte, as 3,500 watches by kube-proxy's selector.
    let watches: Vec<_> = (0..30).map(path).collect();
    let (scene, _open) = beside_five_that_do_not_read(&watches).await;
    jane_reads(&scene).await;
    for number in 30..60 {
        let watch = scene.gateway.client.open_with(&path(number), &JANE).await;
        assert!(watch.is_ok(), "{number}: {:?}", watch.err());
    }
}
