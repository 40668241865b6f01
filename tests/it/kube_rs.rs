//! A client of another project: the store of kube-rs' reflector ends up equal to upstream's state.

use std::{collections::BTreeMap, time::Duration};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        WatchStreamExt, reflector,
        watcher::{self, watcher},
    },
};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::harness::{World, passing, until, upstream::pods};

/// The versions of objects by `namespace/name`.
type Versions = BTreeMap<String, String>;

fn upstream(world: &World) -> Versions {
    let entry = |pod: Value| {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap().to_owned();
        (format!("{}/{}", text("namespace"), text("name")), text("resourceVersion"))
    };
    world.sim.objects(&pods()).unwrap().into_iter().map(entry).collect()
}

fn known(store: &reflector::Store<Pod>) -> Versions {
    let entry =
        |pod: &Pod| (format!("{}/{}", pod.namespace().unwrap(), pod.name_any()), pod.resource_version().unwrap());
    store.state().iter().map(|pod| entry(pod)).collect()
}

/// Waits until the store is equal to upstream, advancing the clock meanwhile.
async fn equal(world: &World, store: &reflector::Store<Pod>) {
    let equal = until("a store equal to upstream", async || (known(store) == upstream(world)).then_some(()));
    passing(Duration::from_millis(500), equal).await;
}

#[tokio::test]
async fn a_reflector_of_kube_rs_ends_with_upstreams_state() {
    let configs = [
        watcher::Config::default().streaming_lists(),
        watcher::Config::default().page_size(2),
        watcher::Config::default().any_semantic(),
    ];
    for config in configs {
        let mut world = World::start().await;
        for name in ["a", "b", "c"] {
            world.create_pod("default", name, "x");
        }
        world.gateway.warm("/api/v1/pods").await;
        let client = Client::try_from(kube::Config::new(world.client().url().parse().unwrap())).unwrap();
        let (store, writer) = reflector::store();
        let stream = reflector(writer, watcher(Api::<Pod>::all(client), config)).default_backoff();
        let mut following = JoinSet::new();
        // Faults cause errors; the reflector retries by itself.
        following.spawn(stream.for_each(|event| async move { drop(event) }));
        equal(&world, &store).await;

        world.label_pod("default/a", "y");
        world.delete_pod("default/b");
        equal(&world, &store).await;

        world.server.kill().await;
        world.delete_pod("default/c");
        world.create_pod("kube-system", "d", "x");
        world.server.start_again().await.unwrap();
        equal(&world, &store).await;
    }
}
