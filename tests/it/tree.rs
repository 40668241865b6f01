//! A gateway behind a gateway, which is a process of its own: one process would refuse its own requests as a loop.

use std::{path::PathBuf, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use kube_fanout::{config::FallbackConfig, sim::Sim, telemetry};
use serde_json::json;
use tempfile::TempDir;
use tokio::{process::Child, task::JoinSet};

use crate::harness::{
    Gateway, Informer, Route, Selection, World, metrics, passing,
    process::{Process, ask, in_front_of, relay},
    until,
    upstream::{directly, pod, pods},
    within,
};

const WATCH_LIST: &str = "/api/v1/pods?watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
                          &resourceVersionMatch=NotOlderThan&timeoutSeconds=600";
/// The number of clients that begin at once.
const HERD: usize = 20;
const LAYERS: u64 = 3;

/// Three gateways in a row in front of an API server.
struct Layers {
    upper: Process,
    middle: (Child, PathBuf, TempDir),
    lower: Gateway,
    _relays: JoinSet<()>,
}

impl Layers {
    async fn start(sim: &Sim) -> Self {
        let upper = Process::in_front_of(sim.clone(), "").await;
        let mut relays = JoinSet::new();
        let middle = in_front_of(&relay(&mut relays, upper.client.clone()).await).await;
        let lower = Gateway::start(&relay(&mut relays, middle.2.path().join("client.sock")).await).await;
        Self { upper, middle, lower, _relays: relays }
    }
}

/// client-go starts informers so since 1.35: with a most-recent watch-list.
#[tokio::test]
async fn most_recent_watch_lists_are_answered_by_the_lowest_gateway() {
    let sim = Sim::new();
    let Layers { lower, upper: _upper, middle: _middle, _relays } = Layers::start(&sim).await;
    lower.warm("/api/v1/pods").await;
    // What no watch of pods shows: the versions in memory are behind upstream's.
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": "default"}});
    sim.create(other).unwrap();
    let before = sim.counts();
    let mut watches = join_all((0..HERD).map(|_| lower.client.watch(WATCH_LIST))).await;
    for watch in &mut watches {
        let lines =
            [within("an object", watch.line()).await, within("the end of the initial events", watch.line()).await];
        let [object, end] = lines.map(|line| line.unwrap().unwrap());
        assert!(object.contains(r#""type":"ADDED""#) && end.contains("k8s.io/initial-events-end"), "{object} {end}");
        assert!(end.contains(&format!(r#""resourceVersion":"{}""#, sim.revision())), "{end}");
    }
    let counts = sim.counts();
    let asked = |verb| counts.requests(verb, "pods") - before.requests(verb, "pods");
    // A head version for each layer, and one proof, for all clients together.
    assert!(asked("list") <= 2 * LAYERS && asked("watch") <= 2, "{before:?}, {counts:?}");
    let mut stopping = lower.stop();
    for (rest, route) in join_all(watches.into_iter().map(|watch| watch.rest())).await {
        assert_eq!(route, Route::Served, "{rest}");
    }
    stopping.drained().await;
}

/// The API server has forgotten everything, as when it was started again.
#[tokio::test]
async fn a_bridge_goes_down_through_all_layers() {
    let sim = Sim::new();
    let Layers { lower, upper, middle, _relays } = Layers::start(&sim).await;
    for name in ["b", "c"] {
        sim.create(pod("default", name, "x")).unwrap();
    }
    lower.warm("/api/v1/pods").await;
    let mut everything = Informer::new(lower.client.clone(), sim.clone(), Selection::pods());
    let mut of_app = Informer::new(lower.client.clone(), sim.clone(), Selection::pods().of_app("x"));
    everything.catch_up().await;
    of_app.catch_up().await;
    sim.hold_watches(Some("pods"));
    sim.delete(&pods(), "default/b").unwrap();
    sim.create(pod("default", "new", "x")).unwrap();
    sim.create(pod("default", "fleeting", "x")).unwrap();
    sim.delete(&pods(), "default/fleeting").unwrap();
    sim.update(pod("default", "c", "y")).unwrap();
    sim.forget_history();
    sim.cut_watches(Some("pods"));
    everything.catch_up().await;
    of_app.catch_up().await;
    sim.create(pod("default", "later", "x")).unwrap();
    everything.catch_up().await;
    of_app.catch_up().await;
    for informer in [everything, of_app] {
        assert_eq!((informer.told.states, informer.told.expired), (1, 0), "{:?}", informer.told);
    }
    let told = [upper.admin("/metrics").await, ask(&middle.1, "/metrics").await];
    let series = r#"kube_fanout_cache_bridges_total{resource="pods""#;
    let made = told.each_ref().map(|told| metrics::sum(told, series, r#"outcome="made""#));
    // Only the upper gateway was filled again, and no watch of a gateway below was forwarded.
    assert_eq!(made, [1, 1]);
    assert!(!told.concat().contains(r#"reason="before_fill""#));
    lower.stop().drained().await;
}

/// What a gateway asks for to learn how far the API server is.
const HEAD: &str = "/api/v1/pods?limit=1";

#[tokio::test]
async fn gateways_that_ask_how_far_the_api_server_is_cost_it_one_answer() {
    let world = World::start().await;
    for name in ["a", "b"] {
        world.create_pod("default", name, "x");
    }
    world.gateway.warm("/api/v1/pods").await;
    let ask = || world.client().request("GET", HEAD, &[("via", "1.1 kube-fanout-below")], Bytes::new());
    let before = world.sim.counts().requests("list", "pods");
    world.sim.hold_requests("list", "pods");
    let herd = join_all((0..HERD).map(|_| ask()));
    let released = async {
        within("the first question", world.sim.until(|counts| counts.requests("list", "pods") > before)).await;
        world.create_pod("default", "c", "x");
        world.sim.release_requests();
    };
    let (answers, ()) = tokio::join!(herd, released);
    let (status, expected) = world.directly(HEAD).await;
    for answer in answers {
        assert_eq!((answer.status.as_u16(), answer.text()), (status, expected.as_str()));
        assert_eq!(answer.route, Route::Served);
    }
    // Those that came while the first question was under way share the second one. One more was asked directly.
    assert!((1..=3).contains(&(world.sim.counts().requests("list", "pods") - before)));
    // Other clients, and other questions, are forwarded as before.
    world.assert_same(HEAD, &Route::Forwarded("most_recent".to_owned())).await;
    for other in ["/api/v1/pods?limit=2", "/api/v1/namespaces/default/pods?limit=1", "/api/v1/pods?limit=1&pretty=true"]
    {
        let answer = world.client().request("GET", other, &[("via", "1.1 kube-fanout-below")], Bytes::new()).await;
        assert_eq!(answer.route, Route::Forwarded("most_recent".to_owned()), "{other}");
        assert_eq!(answer.text(), world.directly(other).await.1, "{other}");
    }
}

/// A gateway with several servers checks each of them every five seconds.
#[tokio::test]
async fn checks_of_a_gateway_above_do_not_reach_the_api_server() {
    let sim = Sim::new();
    let upper = Process::in_front_of(sim.clone(), "").await;
    let mut relays = JoinSet::new();
    let lower = Gateway::start_with(&relay(&mut relays, upper.client.clone()).await, |config| {
        let servers = vec!["127.0.0.1:1".parse().unwrap()];
        config.fallback = Some(FallbackConfig { servers, ..FallbackConfig::default() });
    })
    .await;
    lower.warm("/api/v1/pods").await;
    let before = sim.counts();
    let answered = async || {
        let series = r#"kube_fanout_requests_total{"#;
        let told = metrics::sum(&upper.admin("/metrics").await, series, r#"verb="get",resource="",outcome="served""#);
        (told > 10).then_some(())
    };
    passing(Duration::from_secs(1), until("several checks", answered)).await;
    let after = sim.counts();
    assert_eq!(
        ["list", "get"].map(|verb| after.requests(verb, "namespaces") - before.requests(verb, "namespaces")),
        [0, 0]
    );
    // What clients ask for is the API server's to answer.
    let ready = lower.client.get("/readyz").await;
    assert_eq!((ready.status.as_u16(), &ready.route), (200, &Route::Forwarded("non_resource_path".to_owned())));
    assert!(!ready.headers.contains_key("kube-fanout-cluster"));
    assert!(lower.status_json().await.contains(r#""gateways": 1"#), "the one above has told of itself");
    lower.stop().drained().await;
}

#[tokio::test]
async fn a_cache_is_filled_with_what_the_gateway_above_keeps() {
    const CONFIG_MAPS: &str = "/api/v1/configmaps";
    let sim = Sim::new();
    let config_map = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default", "labels": {"of": name}}})
    };
    for name in ["a", "b", "c"] {
        sim.create(config_map(name)).unwrap();
    }
    let upper = Process::in_front_of(sim.clone(), "").await;
    let mut relays = JoinSet::new();
    let lower = Gateway::start(&relay(&mut relays, upper.client.clone()).await).await;
    let knows = async || lower.status_json().await.contains(r#""gateways": 1"#).then_some(());
    until("the gateway above has told of itself", knows).await;
    let filled = || {
        let told = telemetry::install().unwrap().render();
        let series = r#"kube_fanout_cache_fills_total{resource="configmaps""#;
        metrics::sum(&told, series, r#"source="above""#)
    };
    assert_eq!(filled(), 0);
    lower.warm(CONFIG_MAPS).await;
    assert_eq!(filled(), 1);
    sim.create(config_map("d")).unwrap();
    lower.reach(CONFIG_MAPS, sim.revision()).await;
    for selector in ["", "&labelSelector=of%3Db"] {
        let path = format!("{CONFIG_MAPS}?resourceVersion=0{selector}");
        let answer = lower.client.get(&path).await;
        assert_eq!((&answer.route, answer.text()), (&Route::Served, directly(&sim, &path).await.1.as_str()));
    }
    // Nothing was read again for it at the API server.
    assert_eq!(sim.counts().open_watches("configmaps"), 1);
    lower.stop().drained().await;
}

#[tokio::test]
async fn a_request_passes_eight_gateways_at_most() {
    let world = World::start().await;
    for (passed, status) in [(7, 200), (8, 508)] {
        let via: Vec<_> = (0..passed).map(|number| format!("1.1 kube-fanout-{number}")).collect();
        let answer = world.client().request("GET", "/version", &[("via", &via.join(", "))], Bytes::new()).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(answer.text().contains("eight gateways"), status == 508, "{}", answer.text());
    }
}
