//! `cache.scope: requested`: a gateway caches what its clients ask for, such as the pods of their node.

use std::time::Duration;

use kube_fanout::{
    config::{CacheScope, Config, Prewarm},
    sim::Sim,
};
use serde_json::json;

use crate::harness::{Route, Selection, World, passing, skip, until, upstream::pods, within};

/// Longer than a wider store has to be filled before those that it covers end.
const COVERED_FOR: Duration = Duration::from_secs(100);
const STEP: Duration = Duration::from_secs(30);
/// Shorter than the time limits of requests: in one step a busy machine may not answer, and each would be given up.
const RESTART_STEP: Duration = Duration::from_millis(500);
const WATCH: &str = "watch=1&allowWatchBookmarks=true&timeoutSeconds=600";

/// A gateway, and pods of two namespaces on two nodes and on none.
async fn world_with(change: impl FnOnce(&mut Config)) -> World {
    let world = World::start_with(Sim::new(), |config| {
        config.cache.scope = CacheScope::Requested;
        change(config);
    })
    .await;
    for namespace in ["a", "b"] {
        world.sim.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).unwrap();
    }
    for (namespace, name, node) in
        [("a", "one", "n1"), ("b", "two", "n1"), ("a", "three", "n2"), ("a", "unbound", ""), ("b", "four", "n2")]
    {
        create(&world, namespace, name, node);
    }
    world
}

fn create(world: &World, namespace: &str, name: &str, node: &str) {
    let metadata = json!({"namespace": namespace, "name": name, "labels": {"app": name}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}});
    world.sim.create(pod).unwrap();
}

fn bind(world: &World, key: &str, node: &str) {
    world.sim.modify(&pods(), key, |pod| pod["spec"]["nodeName"] = node.into()).unwrap();
}

fn of_node(node: &str, parameters: &str) -> String {
    format!("/api/v1/pods?{parameters}&fieldSelector=spec.nodeName%3D{node}")
}

#[tokio::test]
async fn the_agents_of_a_node_are_one_watch() {
    let world = world_with(|_| {}).await;
    let list = of_node("n1", "resourceVersion=0");
    // Cold, at once: one fill.
    let lists = (0..20).map(|_| world.assert_same(&list, &Route::Served));
    futures_util::future::join_all(lists).await;
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(world.client().watch(&of_node("n1", &format!("{WATCH}&resourceVersion=0"))).await);
    }
    assert_eq!(world.sim.counts().open_watches("pods"), 1);
    create(&world, "a", "elsewhere", "n2");
    create(&world, "a", "here", "n1");
    for watch in &mut watches {
        let mut told = String::new();
        while !told.contains("\"here\"") {
            told += &watch.line().await.unwrap().unwrap();
        }
        assert!(told.contains("\"one\"") && !told.contains("\"elsewhere\""), "{told}");
    }
    let version = world.sim.revision();
    for path in [
        of_node("n1", "resourceVersion=0"),
        of_node("n1", "resourceVersion=0&limit=1"),
        of_node("n1", "resourceVersion=0&labelSelector=app%3Dhere"),
        of_node("n1", &format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan")),
        of_node("n1", &format!("resourceVersion={version}&resourceVersionMatch=Exact")),
        of_node("n1,status.phase%21%3DFailed", "resourceVersion=0"),
        // Narrower than the cache.
        "/api/v1/namespaces/a/pods?resourceVersion=0&fieldSelector=spec.nodeName%3Dn1".to_owned(),
        "/api/v1/namespaces/a/pods?resourceVersion=0&fieldSelector=metadata.name%3Dhere,spec.nodeName%3Dn1".to_owned(),
    ] {
        world.assert_same(&path, &Route::Served).await;
    }
    assert_eq!(world.sim.counts().open_watches("pods"), 1);
}

#[tokio::test]
async fn pods_come_to_a_node_and_leave_it() {
    let world = world_with(|_| {}).await;
    let mut informers = ["n1", "n2"].map(|node| world.informer(Selection::pods().on_node(node)));
    for informer in &mut informers {
        informer.catch_up().await;
    }
    let from = world.sim.revision();
    bind(&world, "a/unbound", "n1");
    world.label_pod("a/unbound", "x");
    bind(&world, "b/two", "n2");
    world.delete_pod("a/one");
    for informer in &mut informers {
        informer.catch_up().await;
    }
    for node in ["n1", "n2"] {
        let path = of_node(node, &format!("watch=1&timeoutSeconds=1&resourceVersion={from}"));
        let (told, route) = world.client().watch(&path).await.rest().await;
        assert_eq!((told, route), (world.directly(&path).await.1, Route::Served), "{node}");
    }
    assert_eq!(world.sim.counts().open_watches("pods"), 2);
}

#[tokio::test]
async fn informers_of_a_node_follow_it_through_restarts_and_a_forgotten_history() {
    let mut world = world_with(|_| {}).await;
    let mut informer = world.informer(Selection::pods().on_node("n1"));
    informer.catch_up().await;
    for round in 0..3 {
        create(&world, "a", &format!("new-{round}"), "n1");
        create(&world, "a", &format!("other-{round}"), "n2");
        passing(RESTART_STEP, informer.catch_up()).await;
        world.server.kill().await;
        bind(&world, "b/two", if round % 2 == 0 { "n2" } else { "n1" });
        world.delete_pod(&format!("a/new-{round}"));
        if round == 1 {
            world.sim.forget_history();
        }
        world.server.start_again().await.unwrap();
        passing(RESTART_STEP, informer.catch_up()).await;
    }
    assert_eq!((informer.told.states, informer.told.expired), (1, 0), "{:?}", informer.told);
    assert_eq!(world.sim.counts().open_watches("pods"), 1);
}

#[tokio::test]
async fn a_wider_cache_takes_the_watches_over() {
    let world = world_with(|_| {}).await;
    let selections = [
        Selection::pods().on_node("n1"),
        Selection::pods().in_namespace("a"),
        Selection::pods().in_namespace("a").on_node("n1"),
    ];
    let mut informers = selections.map(|selection| world.informer(selection));
    // The last one lies within the first.
    for (informer, watches) in informers.iter_mut().zip([1, 2, 2]) {
        informer.catch_up().await;
        assert_eq!(world.sim.counts().open_watches("pods"), watches);
    }
    world.assert_same("/api/v1/pods?resourceVersion=0", &Route::Served).await;
    assert_eq!(world.sim.counts().open_watches("pods"), 3);
    for _ in 0..10 {
        skip(COVERED_FOR / 10).await;
        for informer in &mut informers {
            passing(STEP, informer.catch_up()).await;
        }
    }
    within("one watch", world.sim.until(|counts| counts.open_watches("pods") == 1)).await;
    create(&world, "a", "new", "n1");
    for informer in &mut informers {
        passing(STEP, informer.catch_up()).await;
        assert_eq!((informer.told.states, informer.told.expired), (1, 0), "{:?}", informer.told);
    }
}

#[tokio::test]
async fn a_list_is_never_older_than_one_of_a_wider_or_narrower_cache() {
    let world = world_with(|_| {}).await;
    let (node, namespace) = (of_node("n1", "resourceVersion=0"), "/api/v1/namespaces/a/pods?resourceVersion=0");
    for path in [&*node, namespace] {
        world.assert_same(path, &Route::Served).await;
    }
    // The cache of the node learns nothing of these.
    for round in 0..3 {
        create(&world, "a", &format!("new-{round}"), "n2");
        world.gateway.reach("/api/v1/namespaces/a/pods", world.sim.revision()).await;
        let version = |list: &str| {
            let list: serde_json::Value = serde_json::from_str(list).unwrap();
            list["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap()
        };
        let of_namespace = version(world.client().get(namespace).await.text());
        let of_node = version(world.client().get(&node).await.text());
        assert!(of_node >= of_namespace, "{of_node} after {of_namespace}");
    }
}

#[tokio::test]
async fn reads_of_single_objects_start_no_cache() {
    let world = world_with(|_| {}).await;
    let single = Route::Forwarded("single_object".to_owned());
    let paths = [
        "/api/v1/namespaces/a/pods/one?resourceVersion=0",
        "/api/v1/namespaces/a/pods?resourceVersion=0&fieldSelector=metadata.name%3Done",
        "/api/v1/namespaces/A/pods?resourceVersion=0",
    ];
    for path in paths {
        world.assert_same(path, &single).await;
    }
    assert_eq!(world.sim.counts().open_watches("pods"), 0);
    world.assert_same("/api/v1/namespaces/a/pods?resourceVersion=0", &Route::Served).await;
    for path in &paths[..2] {
        world.assert_same(path, &Route::Served).await;
    }
    world.assert_same("/api/v1/namespaces/b/pods/two?resourceVersion=0", &single).await;
}

#[tokio::test]
async fn beyond_the_number_of_scopes_the_cluster_is_cached() {
    let world = world_with(|config| config.cache.scopes_per_resource = 1).await;
    world.assert_same(&of_node("n1", "resourceVersion=0"), &Route::Served).await;
    world.assert_same(&of_node("n2", "resourceVersion=0"), &Route::Served).await;
    world.assert_same("/api/v1/namespaces/b/pods?resourceVersion=0", &Route::Served).await;
    assert_eq!(world.sim.counts().open_watches("pods"), 2);
    for _ in 0..10 {
        skip(COVERED_FOR / 10).await;
    }
    within("one watch", world.sim.until(|counts| counts.open_watches("pods") == 1)).await;
    // Where the rights do not suffice for that, the others are forwarded.
    world.sim.grant_only(Some(&["a", "b"]));
    let services = |namespace: &str| format!("/api/v1/namespaces/{namespace}/services?resourceVersion=0");
    world.assert_same(&services("a"), &Route::Served).await;
    world.assert_same(&services("b"), &Route::Forwarded("too_many_scopes".to_owned())).await;
}

#[tokio::test]
async fn a_full_page_of_a_selection_has_the_servers_token() {
    let world = world_with(|_| {}).await;
    world.assert_same(&of_node("n1", "resourceVersion=0"), &Route::Served).await;
    let version = world.sim.revision();
    let page = |limit: u32| {
        of_node("n1", &format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan&limit={limit}"))
    };
    // Two pods are on the node, and others follow them.
    world.assert_same(&page(1), &Route::Served).await;
    world.assert_same(&page(2), &Route::Forwarded("unsupported_field".to_owned())).await;
    world.assert_same(&page(3), &Route::Served).await;
}

#[tokio::test]
async fn what_no_node_can_be_called_starts_no_cache() {
    let world = world_with(|_| {}).await;
    let long = "n".repeat(300);
    for name in ["N1", "n%0Aline", "n%2Fm", "%1B%5B31m", &long] {
        world.assert_same(&of_node(name, "resourceVersion=0"), &Route::Forwarded("single_object".to_owned())).await;
    }
    assert_eq!(world.sim.counts().open_watches("pods"), 0);
    world.assert_same(&of_node("", "resourceVersion=0"), &Route::Served).await;
}

/// The pod of a StatefulSet is made again under its name.
#[tokio::test]
async fn a_pod_that_is_on_another_node_now_is_not_on_the_first_one_later() {
    let world = world_with(|_| {}).await;
    world.assert_same(&of_node("n1", "resourceVersion=0"), &Route::Served).await;
    world.sim.hold_watches(Some("pods"));
    world.assert_same(&of_node("n2", "resourceVersion=0"), &Route::Served).await;
    world.delete_pod("a/one");
    create(&world, "a", "one", "n2");
    let list = async |node| world.client().get(&of_node(node, "resourceVersion=0")).await.text().to_owned();
    until("the pod on its new node", async || list("n2").await.contains("\"one\"").then_some(())).await;
    assert!(!list("n1").await.contains("\"one\""));
}

#[tokio::test]
async fn a_watch_without_bookmarks_lasts_beside_a_wider_cache() {
    let world = world_with(|_| {}).await;
    let mut lasting = world.client().watch(&of_node("n1", "watch=1&timeoutSeconds=3000&resourceVersion=0")).await;
    for _ in 0..2 {
        lasting.line().await.unwrap();
    }
    world.assert_same("/api/v1/pods?resourceVersion=0", &Route::Served).await;
    for _ in 0..20 {
        skip(COVERED_FOR / 10).await;
        world.client().get("/api/v1/namespaces/a/configmaps").await;
    }
    create(&world, "a", "new", "n1");
    assert!(lasting.line().await.unwrap().unwrap().contains("\"new\""));
    drop(lasting);
    passing(STEP, within("one watch", world.sim.until(|counts| counts.open_watches("pods") == 1))).await;
}

#[tokio::test]
async fn what_is_prewarmed_stays_beside_a_wider_cache() {
    let world = world_with(|config| {
        config.cache.prewarm = vec![Prewarm { resource: pods(), namespaces: vec!["a".to_owned()] }];
    })
    .await;
    until("readiness", async || (world.gateway.readyz().await.0 == 200).then_some(())).await;
    world.assert_same("/api/v1/pods?resourceVersion=0", &Route::Served).await;
    for _ in 0..20 {
        skip(COVERED_FOR / 10).await;
        world.client().get("/api/v1/namespaces/a/configmaps").await;
        assert_eq!(world.gateway.readyz().await.0, 200);
    }
    within("two watches", world.sim.until(|counts| counts.open_watches("pods") == 2)).await;
}
