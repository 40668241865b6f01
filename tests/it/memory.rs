//! `cache.bytes`: what all caches together may take.

use std::time::Duration;

use kube_fanout::{
    apimachinery::GroupResource,
    config::Config,
    sim::{Counts, Sim},
};
use serde_json::json;

use crate::harness::{Route, Selection, World, passing, skip, until, within};

const STEP: Duration = Duration::from_secs(1);
/// A store that was dropped is not filled again for this long.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
const KINDS: [(&str, &str); 3] = [("ConfigMap", "configmaps"), ("Secret", "secrets"), ("Service", "services")];

/// A gateway whose caches may take `bytes`, and 40 objects of each kind that take about 250 KB as text. They compress
/// badly.
async fn world_with(bytes: u64) -> World {
    world_of(Sim::new(), bytes, |_| {}).await
}

async fn world_of(sim: Sim, bytes: u64, change: impl FnOnce(&mut Config)) -> World {
    let world = World::start_with(sim, |config| {
        config.cache.bytes = Some(bytes);
        change(config);
    })
    .await;
    for (kind, _) in KINDS {
        for number in 0..40 {
            create(&world, kind, &format!("object-{number}"));
        }
    }
    world
}

fn create(world: &World, kind: &str, name: &str) {
    let mut rng = fastrand::Rng::with_seed(name.len() as u64 + name.bytes().map(u64::from).sum::<u64>());
    let noise: String = std::iter::repeat_with(|| rng.alphanumeric()).take(6_000).collect();
    let metadata = json!({"namespace": "default", "name": name, "annotations": {"noise": noise}});
    world.sim.create(json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})).unwrap();
}

fn list(resource: &str) -> String {
    format!("/api/v1/{resource}?resourceVersion=0")
}

fn memory_full() -> Route {
    Route::Forwarded("memory_full".to_owned())
}

#[tokio::test]
async fn a_collection_that_does_not_fit_is_filled_once_and_forwarded() {
    let world = world_with(150_000).await;
    let path = list("configmaps");
    passing(STEP, world.assert_same(&path, &memory_full())).await;
    let asked = || world.sim.counts().requests("list", "configmaps");
    let after_fill = asked();
    for round in 1..4 {
        world.assert_same(&path, &memory_full()).await;
        // It is compared with a second answer.
        assert_eq!(asked(), after_fill + 2 * round, "only what is forwarded");
        skip(AGAIN_AFTER * 2).await;
        within("no watch", world.sim.until(|counts| counts.open_watches("configmaps") == 0)).await;
    }
    // A small collection still fits.
    world.assert_same(&list("namespaces"), &Route::Served).await;
}

#[tokio::test]
async fn the_cache_that_is_unused_for_the_longest_time_makes_room() {
    let world = world_with(600_000).await;
    let [first, second, third] = KINDS.map(|(_, resource)| list(resource));
    for path in [&first, &second] {
        world.assert_same(path, &Route::Served).await;
        skip(STEP * 5).await;
    }
    world.assert_same(&first, &Route::Served).await;
    passing(STEP, world.assert_same(&third, &Route::Served)).await;
    world.assert_same(&first, &Route::Served).await;
    world.assert_same(&second, &memory_full()).await;
    // It comes back for one that was not used meanwhile.
    for _ in 0..30 {
        skip(STEP * 5).await;
        world.assert_same(&first, &Route::Served).await;
    }
    let is_back = async || {
        skip(STEP * 5).await;
        world.client().get(&first).await;
        let answer = world.client().get(&second).await;
        (answer.route == Route::Served).then_some(())
    };
    until("the second one is cached again", is_back).await;
    world.assert_same(&first, &Route::Served).await;
}

#[tokio::test]
async fn watched_caches_stay_and_others_are_not_started() {
    let world = world_with(600_000).await;
    let mut informers = ["configmaps", "secrets"].map(|resource| world.informer(Selection::all("", resource)));
    for informer in &mut informers {
        informer.catch_up().await;
    }
    passing(STEP, world.assert_same(&list("services"), &memory_full())).await;
    for (kind, informer) in ["ConfigMap", "Secret"].into_iter().zip(&mut informers) {
        create(&world, kind, "new");
        informer.catch_up().await;
        assert_eq!((informer.told.states, informer.told.expired), (1, 0), "{:?}", informer.told);
    }
}

#[tokio::test]
async fn what_is_to_be_prewarmed_takes_the_place_of_a_watched_cache() {
    let sim = Sim::new();
    sim.hold_requests("list", "services");
    let world = world_of(sim, 600_000, |config| {
        config.cache.prewarm = vec![GroupResource { group: "".into(), resource: "services".into() }.into()];
    })
    .await;
    let mut informers = ["configmaps", "secrets"].map(|resource| world.informer(Selection::all("", resource)));
    for informer in &mut informers {
        informer.catch_up().await;
    }
    world.sim.release_requests();
    passing(STEP, world.gateway.warm("/api/v1/services")).await;
    let watches = |counts: &Counts| ["configmaps", "secrets"].map(|resource| counts.open_watches(resource));
    for (kind, informer) in ["ConfigMap", "Secret"].into_iter().zip(&mut informers) {
        create(&world, kind, "new");
        passing(STEP, informer.catch_up()).await;
        assert_eq!((informer.told.states, informer.told.expired), (1, 0), "{:?}", informer.told);
    }
    // The one whose cache has ended goes on at upstream.
    assert_eq!(watches(&world.sim.counts()), [1, 1]);
    let routes = [list("configmaps"), list("secrets")].map(|path| {
        let client = world.client().clone();
        async move { client.get(&path).await.route }
    });
    let routes = futures_util::future::join_all(routes).await;
    assert!(routes.contains(&memory_full()) && routes.contains(&Route::Served), "{routes:?}");
}
