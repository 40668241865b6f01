//! A gateway that may not read whole resources: with a Role, each namespace is cached by itself.

use std::time::Duration;

use kube_fanout::{
    apimachinery::GroupResource,
    config::{CacheScope, Config, Prewarm},
    sim::{Refusal, Sim},
};

use serde_json::json;

use crate::{
    harness::{Informer, Route, Selection, World, forwarded, passing, skip, until, upstream::pods, within},
    reads::{definition, widget},
};

/// As long after a first refusal it is asked once more.
const FORBIDDEN_AGAIN: Duration = Duration::from_secs(6);
/// As long as it is known that the gateway may not read a collection, from the first refusal.
const FORBIDDEN_FOR: Duration = Duration::from_secs(67);
/// As long as a store of the cluster has to be filled before those of namespaces end.
const COVERED_FOR: Duration = Duration::from_secs(100);
const STEP: Duration = Duration::from_secs(30);
/// Shorter than the delay between two requests that upstream refuses.
const SHORT_STEP: Duration = Duration::from_secs(3);

fn list(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods?resourceVersion=0")
}

fn watch(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods?watch=1&allowWatchBookmarks=true&resourceVersion=0&timeoutSeconds=600")
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

async fn until_served(world: &World, path: &str) {
    let is_served = async || (world.client().get(path).await.route == Route::Served).then_some(());
    until("an answer from memory", is_served).await;
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
        passing(SHORT_STEP, informer.catch_up()).await;
        world.server.kill().await;
        world.server.start_again().await.unwrap();
        world.delete_pod(&format!("a/new-{round}"));
        passing(SHORT_STEP, informer.catch_up()).await;
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
    passing(SHORT_STEP, within("one watch", world.sim.until(|counts| counts.open_watches("pods") == 1))).await;
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
    let answer = passing(SHORT_STEP, world.gateway.until_forwarded(&list("a"), "gateway_forbidden")).await;
    assert_eq!(answer.status, 403);
    world.assert_same(&list("b"), &Route::Served).await;
    world.sim.grant_only(Some(&["a", "b"]));
    passing(STEP, until_served(&world, &list("a"))).await;
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
async fn rights_that_an_api_server_knows_a_moment_after_its_start_are_found_within_seconds() {
    let world = granted(&["none"], |_| {}).await;
    world.assert_same(&list("a"), &forwarded("gateway_forbidden")).await;
    world.sim.grant_only(None);
    world.assert_same(&list("a"), &forwarded("gateway_forbidden")).await;
    skip(FORBIDDEN_AGAIN).await;
    until_served(&world, &list("a")).await;
    world.assert_same("/api/v1/pods?resourceVersion=0", &Route::Served).await;
}

#[tokio::test]
async fn the_namespaces_of_one_resource_are_bounded() {
    let world = granted(&["a", "b", "c"], |config| config.cache.scopes_per_resource = 2).await;
    // Namespaces that are invented keep no place.
    for invented in ["x", "y", "z"] {
        world.assert_same(&list(invented), &forwarded("gateway_forbidden")).await;
    }
    for namespace in ["a", "b"] {
        world.assert_same(&list(namespace), &Route::Served).await;
    }
    world.assert_same(&list("c"), &forwarded("too_many_scopes")).await;
}

#[tokio::test]
async fn namespaces_are_prewarmed_with_a_role() {
    let configmaps = GroupResource { group: "".into(), resource: "configmaps".into() };
    let world = granted(&["a", "b"], |config| {
        config.cache.prewarm = vec![
            Prewarm { resource: pods(), namespaces: ["a", "b"].map(str::to_owned).to_vec() },
            Prewarm { resource: configmaps, namespaces: vec!["c".to_owned()] },
        ];
        config.cache.idle_timeout = Duration::from_secs(60);
    })
    .await;
    within("two watches", world.sim.until(|counts| counts.open_watches("pods") == 2)).await;
    let is_told = async || {
        let (status, lines) = world.gateway.verbose_readyz().await;
        let has = |line: &str| lines.contains(line);
        let is_right = has("[+]cache/pods of a ok") && has("[+]cache/pods of b ok") && has("[-]cache/configmaps of c");
        (status == 500 && is_right && has("the gateway may not list and watch it there")).then_some(())
    };
    until("the reason", is_told).await;
    world.sim.grant_only(Some(&["a", "b", "c"]));
    let is_ready = async || (world.gateway.readyz().await.0 == 200).then_some(());
    passing(STEP, until("readiness", is_ready)).await;
    // Each may be between two watches.
    within("two watches", world.sim.until(|counts| counts.open_watches("pods") == 2)).await;
    // The cluster's store takes their place, and is kept as well.
    world.sim.grant_only(None);
    for _ in 0..8 {
        skip(Duration::from_secs(31)).await;
        world.client().get(&list("a")).await;
    }
    passing(SHORT_STEP, within("one watch", world.sim.until(|counts| counts.open_watches("pods") == 1))).await;
    for _ in 0..5 {
        skip(Duration::from_secs(31)).await;
    }
    within("one watch", world.sim.until(|counts| counts.open_watches("pods") == 1)).await;
    assert_eq!(world.gateway.readyz().await.0, 200);
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

#[tokio::test]
async fn a_custom_resource_whose_rights_are_withdrawn_is_given_up_too() {
    let sim = Sim::new();
    sim.create(definition(".spec.color")).unwrap();
    sim.create(widget("one", "small")).unwrap();
    let world = World::start_with(sim, |_| {}).await;
    world.gateway.warm("/apis/example.com/v1/widgets").await;
    world.sim.grant_only(Some(&["none"]));
    world.sim.end_watches(None);
    let path = "/apis/example.com/v1/widgets?resourceVersion=0";
    let answer = passing(SHORT_STEP, world.gateway.until_forwarded(path, "gateway_forbidden")).await;
    assert_eq!(answer.status, 403);
}

#[tokio::test]
async fn a_wider_cache_that_is_behind_does_not_take_over() {
    let world = granted(&["a", "b"], |_| {}).await;
    let mut watch = world.client().watch(&watch("a")).await;
    watch.line().await.unwrap();
    world.sim.grant_only(None);
    skip(FORBIDDEN_FOR).await;
    world.assert_same(&list("a"), &Route::Served).await;
    within("the cluster's watch", world.sim.until(|counts| counts.open_watches("pods") == 2)).await;
    let passes = async |seconds| {
        skip(Duration::from_secs(seconds)).await;
        for _ in 0..5 {
            world.client().get("/api/v1/namespaces/a/configmaps").await;
        }
    };
    for _ in 0..7 {
        passes(10).await;
    }
    // From here on only the namespaces are followed; the cluster's cache is there for another minute.
    world.sim.grant_only(Some(&["a", "b"]));
    world.sim.end_watches(Some("pods"));
    passes(2).await;
    within("the namespace's watch", world.sim.until(|counts| counts.open_watches("pods") == 1)).await;
    world.create_pod("a", "late", "x");
    let is_seen = async || world.client().get(&list("a")).await.text().contains("\"late\"").then_some(());
    until("the new pod", is_seen).await;
    for _ in 0..12 {
        let list = world.client().get(&list("a")).await;
        assert!(list.text().contains("\"late\""), "{:?} {}", list.route, list.text());
        passes(5).await;
    }
}

#[tokio::test]
async fn of_several_caches_that_are_ahead_a_followed_one_counts() {
    let world = granted(&["a", "b"], |_| {}).await;
    for namespace in ["a", "b"] {
        world.assert_same(&list(namespace), &Route::Served).await;
    }
    world.sim.grant_only(None);
    skip(FORBIDDEN_FOR).await;
    world.client().get(&list("a")).await;
    within("the cluster's watch", world.sim.until(|counts| counts.open_watches("pods") == 3)).await;
    let open = async |namespaces: &[&str]| {
        world.sim.grant_only(Some(namespaces));
        world.sim.end_watches(Some("pods"));
        skip(Duration::from_secs(2)).await;
        within("the watches", world.sim.until(|counts| counts.open_watches("pods") == namespaces.len())).await;
    };
    let has = async |namespace: &str, name: &str| {
        let name = format!("\"{name}\"");
        until("the new pod", async || world.client().get(&list(namespace)).await.text().contains(&name).then_some(()))
            .await;
    };
    // The cache of the cluster learns neither of these, that of b only the second one, and is not followed after it.
    open(&["a", "b"]).await;
    world.create_pod("a", "second", "x");
    has("a", "second").await;
    world.create_pod("b", "third", "x");
    has("b", "third").await;
    open(&["a"]).await;
    let list = world.client().get(&list("a")).await;
    assert!(list.text().contains("\"second\""), "{:?} {}", list.route, list.text());
}
