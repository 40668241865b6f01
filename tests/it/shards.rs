//! Shards of lists and watches (`shardSelector`): from memory, with upstream's own bytes, whatever upstream makes of
//! the parameter.

use std::time::Duration;

use http::StatusCode;
use kube_fanout::{
    config::{Config, Shards},
    sim::{Features, Refusal, Sim},
};
use serde_json::{Value, json};

use crate::{
    harness::{Route, World, forwarded, rejected, skip, until, upstream::pod},
    reads::definition,
    watches::assert_same_streams,
};

const PODS: &str = "/api/v1/pods";
const WIDGETS: &str = "/apis/example.com/v1/widgets";
/// Longer than upstream's answer is believed.
const ASKED_AGAIN: Duration = Duration::from_secs(700);

/// The parameters for the parts of a split by that field.
fn split(field: &str, parts: u128) -> Vec<String> {
    let end = |part: u128| format!("%270x{:016x}%27", (part << 64) / parts);
    let part = |part| format!("shardSelector=shardRange(object.metadata.{field},{},+{})", end(part), end(part + 1));
    (0..parts).map(part).collect()
}

/// Pods and widgets in some namespaces, in memory.
async fn world_with(has_shards: bool, change: impl FnOnce(&mut Config)) -> World {
    let sim = Sim::new();
    sim.set_features(Features { shards: has_shards, ..Features::default() });
    sim.create(definition(".spec.size")).unwrap();
    for namespace in ["a", "b", "c", "default"] {
        if namespace != "default" {
            sim.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).unwrap();
        }
        let number = if namespace == "default" { 20 } else { 3 };
        for name in (0..number).map(|number| format!("n-{number:02}")) {
            sim.create(pod(namespace, &name, "x")).unwrap();
            let metadata = json!({"name": name, "namespace": namespace});
            sim.create(json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata})).unwrap();
        }
    }
    let world = World::start_with(sim, change).await;
    world.gateway.warm(PODS).await;
    world.gateway.warm(WIDGETS).await;
    world
}

fn uids(list: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(list).unwrap();
    let uid = |item: &Value| item["metadata"]["uid"].as_str().unwrap().to_owned();
    list["items"].as_array().unwrap().iter().map(uid).collect()
}

#[tokio::test]
async fn every_split_equals_the_one_of_upstream() {
    let world = world_with(true, |_| {}).await;
    for collection in [PODS, WIDGETS] {
        let mut all = uids(&world.directly(collection).await.1);
        all.sort();
        for (field, parts) in [("uid", 2), ("uid", 3), ("uid", 16), ("namespace", 2), ("namespace", 3)] {
            let mut of_parts = Vec::new();
            for shard in split(field, parts) {
                let answer =
                    world.assert_same(&format!("{collection}?resourceVersion=0&{shard}"), &Route::Served).await;
                of_parts.extend(uids(answer.text()));
            }
            of_parts.sort();
            assert_eq!(of_parts, all, "{collection} in {parts} by {field}");
        }
        let [low, high] = &split("uid", 2)[..] else { unreachable!() };
        let version = world.sim.revision();
        for query in [
            format!("resourceVersion={version}&{low}"),
            format!("resourceVersion={version}&limit=3&{high}"),
            format!("resourceVersion=0&labelSelector=app%3Dx&{high}"),
            format!("resourceVersion=0&fieldSelector=metadata.name%3Dn-01&{high}"),
            format!("resourceVersion=0&{low}%7C%7C{}", high.trim_start_matches("shardSelector=")),
        ] {
            world.assert_same(&format!("{collection}?{query}"), &Route::Served).await;
        }
        world.assert_same(&format!("{collection}?resourceVersion=0&shardSelector="), &Route::Served).await;
    }
    let metadata = [("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")];
    let path = format!("{PODS}?resourceVersion=0&{}", split("uid", 2)[0]);
    let answer = world.client().request("GET", &path, &metadata, Default::default()).await;
    assert_eq!((answer.route, answer.body.windows(9).any(|word| word == b"shardInfo")), (Route::Served, false));
    // Of which this test has sent all but those of the fill, and one question.
    assert!(world.sim.counts().requests("list", "pods") <= 33 + 3, "{:?}", world.sim.counts());
}

/// Watches of all parts of a split: their streams, while objects come, change and go.
#[tokio::test]
async fn watches_of_shards_equal_those_of_upstream() {
    let world = world_with(true, |_| {}).await;
    let version = world.sim.revision();
    let paths: Vec<_> = [("uid", 3), ("namespace", 2)]
        .into_iter()
        .flat_map(|(field, parts)| split(field, parts))
        .flat_map(|shard| {
            let watch = format!("watch=1&timeoutSeconds=10&allowWatchBookmarks=true&{shard}");
            [
                format!("{PODS}?{watch}&resourceVersion={version}"),
                format!("{PODS}?{watch}"),
                format!("/api/v1/namespaces/default/pods?{watch}&resourceVersion=0&labelSelector=app%3Dx"),
            ]
        })
        .collect();
    let change = || {
        for number in 0..20 {
            let name = format!("n-{number:02}");
            let key = format!("default/{name}");
            world.label_pod(&key, "y");
            world.delete_pod(&key);
            world.create_pod("default", &name, "x");
        }
    };
    let events = assert_same_streams(&world, &paths, change).await;
    assert!(events > 200, "{events}");
}

#[tokio::test]
async fn where_upstream_ignores_the_selector_so_does_the_gateway() {
    let world = world_with(false, |_| {}).await;
    for collection in [PODS, WIDGETS] {
        for shard in split("uid", 2) {
            world.assert_same(&format!("{collection}?resourceVersion=0&{shard}"), &Route::Served).await;
        }
        // Which upstream ignores as well, but the gateway need not know.
        let invalid = format!("{collection}?resourceVersion=0&shardSelector=x");
        world.assert_same(&invalid, &forwarded("invalid_options")).await;
    }
    world.sim.set_features(Features { shards: true, ..Features::default() });
    skip(ASKED_AGAIN).await;
    for collection in [PODS, WIDGETS] {
        for shard in split("uid", 2) {
            world.assert_same(&format!("{collection}?resourceVersion=0&{shard}"), &Route::Served).await;
        }
        let invalid = format!("{collection}?resourceVersion=0&shardSelector=x");
        let answer = world.assert_same(&invalid, &forwarded("invalid_options")).await;
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    }
}

#[tokio::test]
async fn without_an_answer_of_upstream_shards_are_forwarded() {
    let world = world_with(true, |_| {}).await;
    for (collection, resource) in [(PODS, "pods"), (WIDGETS, "widgets.example.com")] {
        let shard = format!("{collection}?resourceVersion=0&{}", split("uid", 2)[0]);
        let unavailable =
            || Refusal { verb: Some("list"), resource: Some(resource.to_owned()), status: 503, ..Refusal::default() };
        world.sim.refuse(unavailable());
        assert_eq!(world.client().get(&shard).await.route, forwarded("unknown_shards"));
        world.sim.accept_all();
        skip(Duration::from_secs(10)).await;
        world.assert_same(&shard, &Route::Served).await;
    }
}

/// As a restart with another setting is seen.
#[tokio::test]
async fn upstream_is_asked_again_after_its_watches_broke() {
    let world = world_with(true, |_| {}).await;
    for (collection, resource) in [(PODS, "pods"), (WIDGETS, "widgets.example.com")] {
        world.sim.set_features(Features { shards: true, ..Features::default() });
        let shard = format!("{collection}?resourceVersion=0&{}", split("uid", 2)[0]);
        world.assert_same(&shard, &Route::Served).await;
        world.sim.set_features(Features::default());
        world.sim.cut_watches(Some(resource));
        let is_whole = async || (uids(world.client().get(&shard).await.text()).len() == 29).then_some(());
        until("the selector is ignored", is_whole).await;
        world.assert_same(&shard, &Route::Served).await;
    }
}

/// With a Role, the gateway cannot read definitions.
#[tokio::test]
async fn custom_resources_of_trusted_groups_have_shards() {
    let sim = Sim::new();
    sim.set_features(Features { shards: true, ..Features::default() });
    sim.create(definition(".spec.size")).unwrap();
    for number in 0..20 {
        let metadata = json!({"name": format!("n-{number}"), "namespace": "default"});
        sim.create(json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata})).unwrap();
    }
    sim.grant_only(Some(&["default"]));
    let world = World::start_with(sim, |config| config.cache.trusted_groups = vec!["example.com".to_owned()]).await;
    for shard in split("uid", 2) {
        let list = format!("/apis/example.com/v1/namespaces/default/widgets?resourceVersion=0&{shard}");
        let answer = world.assert_same(&list, &Route::Served).await;
        assert!(uids(answer.text()).len() < 20);
    }
}

/// `reads.shards: always`, with an upstream that ignores the selector.
#[tokio::test]
async fn the_gateway_s_own_shards_come_from_memory_or_not_at_all() {
    let world = world_with(false, |config| config.reads.shards = Shards::Always).await;
    for collection in [PODS, WIDGETS] {
        let mut all = uids(&world.directly(collection).await.1);
        // Most-recent lists, and watches: proven, since upstream could not answer them.
        let mut of_parts = Vec::new();
        for shard in split("uid", 3) {
            let answer = world.client().get(&format!("{collection}?{shard}")).await;
            assert_eq!(answer.route, Route::Served);
            of_parts.extend(uids(answer.text()));
        }
        all.sort();
        of_parts.sort();
        assert_eq!(of_parts, all, "{collection}");
        // Unsharded requests are forwarded as ever.
        world.assert_same(collection, &forwarded("most_recent")).await;
        world.assert_same(&format!("{collection}?shardSelector="), &forwarded("most_recent")).await;
        let answer = world.client().get(&format!("{collection}?shardSelector=shardRange()")).await;
        assert_eq!((answer.status, &answer.route), (StatusCode::BAD_REQUEST, &rejected("invalid_shards")));
        assert!(
            answer.text().contains("invalid shard selector: allowed is shardRange(object.metadata.uid,"),
            "{}",
            answer.text()
        );
    }
    let shard = &split("uid", 2)[0];
    // A cold cache is waited for.
    assert_eq!(world.client().get(&format!("/api/v1/configmaps?{shard}")).await.route, Route::Served);
    // After 410 clients list again, which memory answers.
    for (path, status) in [
        (format!("{PODS}?resourceVersion=1&resourceVersionMatch=Exact&{shard}"), StatusCode::GONE),
        (format!("{PODS}?watch=1&resourceVersion=1&timeoutSeconds=60&{shard}"), StatusCode::GONE),
        (format!("/api/v1/events?watch=1&timeoutSeconds=60&{shard}"), StatusCode::SERVICE_UNAVAILABLE),
        (format!("/api/v1/events?{shard}"), StatusCode::SERVICE_UNAVAILABLE),
        (format!("{PODS}?{shard}&a=%zz"), StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let answer = world.client().get(&path).await;
        assert_eq!((answer.status, &answer.route), (status, &rejected("no_shards")), "{path}");
        assert!(answer.text().contains("reads.shards is always"), "{}", answer.text());
    }
    let deleted = format!("/api/v1/namespaces/a/pods?{shard}");
    let answer = world.client().request("DELETE", &deleted, &[], Default::default()).await;
    assert_eq!((answer.status, &answer.route), (StatusCode::BAD_REQUEST, &rejected("sharded_delete")));
    let odd = world.client().request("DELETE", &format!("{deleted}&a=%zz"), &[], Default::default()).await;
    assert_eq!(odd.route, rejected("sharded_delete"));
    assert_eq!(uids(&world.directly("/api/v1/namespaces/a/pods").await.1).len(), 3, "nothing was deleted");
    // Errors of upstream are those of the request.
    let answer = world.client().get(&format!("/apis/example.com/v1/nothings?{shard}")).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}
