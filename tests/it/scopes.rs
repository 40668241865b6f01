//! A gateway that may not read whole resources: with a Role, each namespace is cached by itself.

use std::time::Duration;

use kube_fanout::{
    config::{CacheScope, Config},
    sim::{Refusal, Sim},
};

use serde_json::json;

use crate::{
    harness::{Informer, Route, Selection, World, passing, skip, within},
    reads::{definition, widget},
};

/// As long as it is known that the gateway may not read a collection.
const FORBIDDEN_FOR: Duration = Duration::from_secs(61);
/// As long as a store of the cluster has to be filled before those of namespaces end.
const COVERED_FOR: Duration = Duration::from_secs(100);
const STEP: Duration = Duration::from_secs(30);

fn list(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods?resourceVersion=0")
}

fn watch(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods?watch=1&allowWatchBookmarks=true&resourceVersion=0&timeoutSeconds=600")
}

fn forwarded(reason: &str) -> Route {
    Route::Forwarded(reason.to_owned())
}

/// A gateway whose rights end at these namespaces, which have a pod each.
async fn granted(namespaces: &[&str], change: impl FnOnce(&mut Config)) -> World {
    let sim = Sim::new();
    sim.grant_only(Some(namespaces));
    let world = World::start_with(sim, change).await;
    for namespace in ["a", "b", "c"] {
        world.sim.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).unwrap();
        world.create_pod(namespace, &format!("{namespace}-pod"), "x");
    }
    world
}

fn follower(world: &World, namespace: &str) -> Informer {
    world.informer(Selection::pods().in_namespace(namespace))
}

#[tokio::test]
async fn each_namespace_of_a_role_is_one_watch() {
    let world = granted(&["a", "b"], |_| {}).await;
    // Cold: these reads wait for one fill of each namespace.
    let (first, second) = (list("a"), list("b"));
    tokio::join!(world.assert_same(&first, &Route::Served), world.assert_same(&second, &Route::Served));
    let mut watches = Vec::new();
    for namespace in ["a", "b"] {
        for _ in 0..20 {
            watches.push(world.client().watch(&watch(namespace)).await);
        }
    }
    assert_eq!(world.sim.counts().open_watches("pods"), 2);
    for (watch, name) in
        watches.iter_mut().zip(std::iter::repeat_n("a-pod", 20).chain(std::iter::repeat_n("b-pod", 20)))
    {
        assert!(watch.line().await.unwrap().unwrap().contains(name));
    }
    world.create_pod("a", "new", "x");
    for watch in &mut watches[..20] {
        // The bookmark at the end of the initial events.
        watch.line().await.unwrap();
        assert!(watch.line().await.unwrap().unwrap().contains("\"new\""));
    }
    // The version of b's list may be older than that of a's: the two have no object in common.
    for path in [list("a"), "/api/v1/namespaces/b/pods/b-pod?resourceVersion=0".to_owned()] {
        world.assert_same(&path, &Route::Served).await;
    }
    // What the Role does not grant has upstream's own answer.
    for path in [list("c"), "/api/v1/pods?resourceVersion=0".to_owned(), "/api/v1/nodes?resourceVersion=0".to_owned()] {
        assert_eq!(world.assert_same(&path, &forwarded("gateway_forbidden")).await.status, 403);
    }
    assert_eq!(world.sim.counts().open_watches("pods"), 2);
}

#[tokio::test]
async fn informers_of_a_namespace_follow_it_through_a_restart() {
    let mut world = granted(&["a"], |_| {}).await;
    let mut informer = follower(&world, "a");
    informer.catch_up().await;
    for round in 0..3 {
        world.create_pod("a", &format!("new-{round}"), "x");
        world.create_pod("b", &format!("new-{round}"), "x");
        world.label_pod("a/a-pod", &format!("y{round}"));
        passing(STEP, informer.catch_up()).await;
        world.server.kill().await;
        world.server.start_again().await.unwrap();
        world.delete_pod(&format!("a/new-{round}"));
        passing(STEP, informer.catch_up()).await;
    }
    assert_eq!((informer.told.states, informer.told.expired), (1, 0), "{:?}", informer.told);
}

#[tokio::test]
async fn watches_go_on_in_the_cache_of_the_cluster_once_the_gateway_may_have_it() {
    let world = granted(&["a", "b"], |_| {}).await;
    let mut informers = [follower(&world, "a"), follower(&world, "b")];
    for informer in &mut informers {
        informer.catch_up().await;
    }
    world.sim.grant_only(None);
    skip(FORBIDDEN_FOR).await;
    // The next read tries the cluster again, and has its answer from the namespace.
    world.assert_same(&list("a"), &Route::Served).await;
    within("the cluster's watch", world.sim.until(|counts| counts.open_watches("pods") == 3)).await;
    for _ in 0..10 {
        skip(COVERED_FOR / 10).await;
        for informer in &mut informers {
            passing(STEP, informer.catch_up()).await;
        }
    }
    within("one watch", world.sim.until(|counts| counts.open_watches("pods") == 1)).await;
    world.create_pod("a", "new", "x");
    world.create_pod("b", "new", "x");
    for informer in &mut informers {
        passing(STEP, informer.catch_up()).await;
        assert_eq!((informer.told.states, informer.told.expired), (1, 0), "{:?}", informer.told);
    }
    world.assert_same("/api/v1/pods?resourceVersion=0", &Route::Served).await;
}

#[tokio::test]
async fn a_role_that_is_withdrawn_ends_its_namespace_alone() {
    let world = granted(&["a", "b"], |_| {}).await;
    for namespace in ["a", "b"] {
        world.assert_same(&list(namespace), &Route::Served).await;
    }
    world.sim.grant_only(Some(&["b"]));
    world.sim.end_watches(Some("pods"));
    for _ in 0..12 {
        skip(Duration::from_secs(10)).await;
        world.client().get("/api/v1/namespaces/a/configmaps").await;
    }
    let answer = world.gateway.until_forwarded(&list("a"), "gateway_forbidden").await;
    assert_eq!(answer.status, 403);
    world.assert_same(&list("b"), &Route::Served).await;
    world.sim.grant_only(Some(&["a", "b"]));
    skip(FORBIDDEN_FOR).await;
    world.assert_same(&list("a"), &Route::Served).await;
}

#[tokio::test]
async fn refusals_of_an_api_server_that_has_just_started_cost_no_cache() {
    let world = granted(&["a"], |_| {}).await;
    let mut informer = follower(&world, "a");
    informer.catch_up().await;
    world.sim.refuse(Refusal { verb: Some("watch"), resource: Some("pods".to_owned()), times: Some(3), status: 403 });
    world.sim.end_watches(Some("pods"));
    world.create_pod("a", "new", "x");
    passing(STEP, informer.catch_up()).await;
    assert_eq!((informer.told.states, informer.told.expired), (1, 0), "{:?}", informer.told);
}

#[tokio::test]
async fn the_namespaces_of_one_resource_are_bounded() {
    let world = granted(&["a", "b", "c"], |config| config.cache.scopes_per_resource = 2).await;
    for namespace in ["a", "b"] {
        world.assert_same(&list(namespace), &Route::Served).await;
    }
    world.assert_same(&list("c"), &forwarded("too_many_scopes")).await;
}

#[tokio::test]
async fn with_the_scope_of_the_cluster_no_namespace_is_cached() {
    let world = granted(&["a"], |config| config.cache.scope = CacheScope::Cluster).await;
    world.gateway.until_forwarded(&list("a"), "fill_failed").await;
    assert_eq!(world.sim.counts().open_watches("pods"), 0);
}

#[tokio::test]
async fn groups_that_the_operator_trusts_are_cached_with_a_role() {
    let trusted = ["apps", "example.com"].map(str::to_owned).to_vec();
    let deployments = "/apis/apps/v1/namespaces/default/deployments?resourceVersion=0";
    let widgets = "/apis/example.com/v1/namespaces/default/widgets?resourceVersion=0";
    for (trusted, route) in [(Vec::new(), forwarded("undiscovered")), (trusted, Route::Served)] {
        let sim = Sim::new();
        sim.create(definition(".spec.color")).unwrap();
        sim.create(widget("one", "small")).unwrap();
        sim.grant_only(Some(&["default"]));
        let world = World::start_with(sim, |config| config.cache.trusted_groups = trusted).await;
        for path in [deployments, widgets] {
            world.assert_same(path, &route).await;
        }
    }
}
