//! Objects that are kept compressed: no client sees a difference. `KUBE_FANOUT_COLD=1` runs the whole suite so.

use std::time::Duration;

use kube_fanout::sim::Sim;

use crate::harness::{Route, Selection, World, skip};

const STEP: Duration = Duration::from_secs(10);

/// About 200 objects, most of them pods, which are compressed at once.
async fn populated() -> World {
    let sim = Sim::new();
    sim.populate(200).unwrap();
    let world = World::start_with(sim, |config| config.cache.compress_after = Some(Duration::ZERO)).await;
    world.gateway.warm("/api/v1/pods").await;
    compressed(&world).await;
    world
}

/// Lets what has changed be compressed, and text that was read be dropped.
async fn compressed(world: &World) {
    for _ in 0..20 {
        skip(STEP).await;
        world.client().get("/api/v1/namespaces/a/configmaps").await;
    }
}

#[tokio::test]
async fn compressed_pods_are_answered_as_others() {
    let world = populated().await;
    let pods = world.client().get("/api/v1/pods?resourceVersion=0").await;
    let pods: serde_json::Value = serde_json::from_str(pods.text()).unwrap();
    let of = |at: usize, field: &str| pods["items"][at]["metadata"][field].as_str().unwrap().to_owned();
    let one = format!("/api/v1/namespaces/{}/pods/{}", of(7, "namespace"), of(7, "name"));
    let node = pods["items"][7]["spec"]["nodeName"].as_str().unwrap();
    let version = world.sim.revision();
    for path in [
        "/api/v1/pods?resourceVersion=0".to_owned(),
        "/api/v1/pods?resourceVersion=0&pretty=true".to_owned(),
        "/api/v1/pods?resourceVersion=0&labelSelector=!no-such-label".to_owned(),
        // A few objects of many blocks.
        format!("/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName={node}"),
        format!("/api/v1/pods?resourceVersion={version}&resourceVersionMatch=NotOlderThan&limit=60"),
        format!("/api/v1/pods?resourceVersion={version}&resourceVersionMatch=Exact"),
        format!("/api/v1/namespaces/{}/pods?resourceVersion=0", of(0, "namespace")),
        format!("{one}?resourceVersion=0"),
    ] {
        world.assert_same(&path, &Route::Served).await;
    }
}

#[tokio::test]
async fn changes_of_compressed_pods_reach_watches() {
    let world = populated().await;
    let selections = [Selection::pods(), Selection::pods().of_app("x")];
    let mut informers = selections.map(|selection| world.informer(selection));
    for round in 0..3 {
        world.create_pod("default", &format!("new-{round}"), "x");
        for informer in &mut informers {
            informer.catch_up().await;
        }
        compressed(&world).await;
        // It leaves the selector: the event has its previous content.
        world.label_pod(&format!("default/new-{round}"), "y");
        let from = world.sim.revision() - 1;
        for informer in &mut informers {
            informer.catch_up().await;
        }
        let path = format!("/api/v1/pods?watch=1&timeoutSeconds=1&labelSelector=app%3Dx&resourceVersion={from}");
        let (told, route) = world.client().watch(&path).await.rest().await;
        assert_eq!((told, route), (world.directly(&path).await.1, Route::Served));
    }
    world.delete_pod("default/new-0");
    for informer in &mut informers {
        informer.catch_up().await;
        assert_eq!((informer.told.states, informer.told.expired), (1, 0), "{:?}", informer.told);
    }
}
