//! A cluster that is replaced by another one, behind one address or several: nothing of the old one is served then.

use kube_fanout::sim::{Refusal, Sim};
use serde_json::json;
use tokio::{join, time::Duration};

use crate::{
    harness::{Gateway, Route, passing, until, upstream::pod},
    servers::{ApiServer, in_front_of},
};

const PODS: &str = "/api/v1/pods?resourceVersion=0";
const CONFIG_MAPS: &str = "/api/v1/configmaps?resourceVersion=0";
const WATCH: &str = "/api/v1/pods?watch=1&resourceVersion=0";
const OLD: &str = "of-the-old-cluster";
const NEW: &str = "of-the-new-cluster";
const STEP: Duration = Duration::from_millis(500);

/// A cluster with a pod and a config map of that name, and other pods so that its versions are higher.
fn cluster(name: &str, fillers: usize) -> Sim {
    let sim = Sim::new();
    for number in 0..fillers {
        sim.create(pod("default", &format!("filler-{number}"), "x")).unwrap();
    }
    sim.create(pod("default", name, "x")).unwrap();
    let metadata = json!({"name": name, "namespace": "default"});
    sim.create(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})).unwrap();
    sim
}

/// The one that is replaced and the one that replaces it. No version goes back.
fn clusters() -> (Sim, Sim) {
    (cluster(OLD, 0), cluster(NEW, 100))
}

/// The API server of the old cluster, at the only address of a gateway.
async fn one(old: &Sim) -> (ApiServer, Gateway) {
    let server = ApiServer::start(old, 0).await;
    let gateway = Gateway::start(&format!("http://{}", server.address)).await;
    (server, gateway)
}

/// Returns when memory has objects of the new cluster, and asserts that it has none of the old one then.
async fn assert_new(gateway: &Gateway, path: &str) {
    let look = async || {
        let answer = gateway.client.get(path).await;
        (answer.route == Route::Served && answer.text().contains(NEW)).then(|| answer.text().to_owned())
    };
    let text = passing(STEP, until("objects of the new cluster in memory", look)).await;
    assert!(!text.contains(OLD), "{text}");
}

#[tokio::test]
async fn a_cache_without_clients_is_given_up() {
    let (old, new) = clusters();
    let (mut server, gateway) = one(&old).await;
    gateway.warm("/api/v1/pods").await;
    server.kill().await;
    server.sim.send_replace(new);
    server.start_again().await;
    assert_new(&gateway, PODS).await;
}

#[tokio::test]
async fn an_open_watch_ends() {
    let (old, new) = clusters();
    let (server, gateway) = one(&old).await;
    gateway.warm("/api/v1/pods").await;
    let mut watch = gateway.client.watch(WATCH).await;
    assert!(watch.line().await.unwrap().unwrap().contains(OLD));
    server.sim.send_replace(new);
    old.end_watches(None);
    let (rest, route) = passing(STEP, watch.rest()).await;
    assert_eq!((rest.as_str(), route), ("", Route::Served));
    assert_new(&gateway, PODS).await;
}

#[tokio::test]
async fn a_fill_under_way_is_not_used() {
    let (old, new) = clusters();
    let (server, gateway) = one(&old).await;
    old.hold_requests("watch", "pods");
    let replace = async {
        old.until(|counts| counts.requests("watch", "pods") > 0).await;
        server.sim.send_replace(new);
        old.release_requests();
    };
    let (answer, ()) = join!(passing(STEP, gateway.client.get(PODS)), replace);
    assert!(answer.text().contains(NEW) && !answer.text().contains(OLD), "{:?}: {}", answer.route, answer.text());
    assert_new(&gateway, PODS).await;
}

#[tokio::test]
async fn one_cache_that_notices_it_gives_up_all() {
    let (old, new) = clusters();
    let (server, gateway) = one(&old).await;
    gateway.warm("/api/v1/pods").await;
    gateway.warm("/api/v1/configmaps").await;
    server.sim.send_replace(new);
    // The watch of pods continues for minutes.
    old.end_watches(Some("configmaps"));
    assert_new(&gateway, CONFIG_MAPS).await;
    assert_new(&gateway, PODS).await;
}

#[tokio::test]
async fn a_gateway_that_may_not_ask_which_cluster_it_is_keeps_its_caches() {
    let (old, new) = clusters();
    for sim in [&old, &new] {
        sim.refuse(Refusal { resource: Some("namespaces".to_owned()), status: 403, ..Refusal::default() });
    }
    let (server, gateway) = one(&old).await;
    gateway.warm("/api/v1/pods").await;
    let mut watch = gateway.client.watch(WATCH).await;
    assert!(watch.line().await.unwrap().unwrap().contains(OLD));
    server.sim.send_replace(new);
    old.end_watches(None);
    let line = passing(STEP, watch.line()).await.unwrap();
    assert!(line.is_some_and(|line| line.contains("filler")), "the watch goes on");
}

#[tokio::test]
async fn a_watch_and_a_fill_end_when_the_cluster_behind_several_servers_is_replaced() {
    let (old, new) = clusters();
    let servers = [ApiServer::start(&old, 0).await, ApiServer::start(&old, 1).await];
    let gateway = in_front_of(&servers).await;
    gateway.warm("/api/v1/pods").await;
    let mut watch = gateway.client.watch(WATCH).await;
    assert!(watch.line().await.unwrap().unwrap().contains(OLD));
    old.hold_requests("watch", "configmaps");
    let replace = async {
        old.until(|counts| counts.requests("watch", "configmaps") > 0).await;
        for server in &servers {
            server.sim.send_replace(new.clone());
        }
        let (rest, _) = watch.rest().await;
        assert_eq!(rest, "");
        old.release_requests();
    };
    let (answer, ()) = passing(STEP, async { join!(gateway.client.get(CONFIG_MAPS), replace) }).await;
    assert!(!answer.text().contains(OLD), "{:?}: {}", answer.route, answer.text());
    assert_new(&gateway, PODS).await;
    assert_new(&gateway, CONFIG_MAPS).await;
}
