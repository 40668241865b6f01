//! Caches are compared with upstream at intervals (`cache.verifyInterval`).

use std::time::Duration;

use kube_fanout::{
    config::Config,
    sim::{Features, Sim},
    telemetry::{self, LogFormat, log_subscriber},
};
use serde_json::json;
use tokio::time::sleep;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;

use crate::{
    harness::{
        Route, Selection, World, metrics, skip, until,
        upstream::{pod, pods},
    },
    secrecy::Lines,
};

/// More objects than the verifier requires.
const PODS: usize = 120;
const LIST: &str = "/api/v1/pods?resourceVersion=0";
/// Longer than the default of `cache.verifyInterval` plus its jitter.
const INTERVAL: Duration = Duration::from_secs(5 * 60 + 80);

async fn with_pods(change: impl FnOnce(&mut Config)) -> World {
    with(PODS, change).await
}

async fn with(pods: usize, change: impl FnOnce(&mut Config)) -> World {
    let sim = Sim::new();
    for index in 0..pods {
        sim.create(pod("default", &format!("pod-{index:03}"), "x")).unwrap();
    }
    let world = World::start_with(sim, change).await;
    world.gateway.warm("/api/v1/pods").await;
    world
}

/// The number of verifications of pods with this outcome, in all tests of the process.
fn looks(outcome: &str) -> u64 {
    let series = r#"kube_fanout_cache_verifications_total{resource="pods""#;
    metrics::sum(&telemetry::install().unwrap().render(), series, &format!(r#"outcome="{outcome}""#))
}

/// Lets intervals pass until `has` returns true.
async fn until_looked(what: &str, has: impl AsyncFn() -> bool) {
    until(what, async || {
        skip(INTERVAL / 8).await;
        sleep(Duration::from_millis(20)).await;
        has().await.then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_lost_change_is_found_and_clients_list_again() {
    let world = with_pods(|_| {}).await;
    let mut informer = world.informer(Selection::pods());
    informer.catch_up().await;
    let silently = |pod: &mut serde_json::Value| pod["metadata"]["labels"]["app"] = json!("silent");
    world.sim.change_silently(&pods(), "default/pod-077", silently).unwrap();
    // Later changes are sent as usual, so that the cache takes itself to be complete.
    world.create_pod("default", "told", "x");
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    let found = async || world.client().get(LIST).await.text().contains("silent");
    assert!(!found().await, "it is there before anything was looked at");
    let before = looks("different");
    // The informer runs while the clock advances.
    let mended = until_looked("the change in memory", async || {
        let answer = world.client().get(LIST).await;
        answer.route == Route::Served && answer.text().contains("silent")
    });
    tokio::select! {
        () = mended => {}
        never = informer.follow() => match never {},
    }
    assert!(looks("different") > before);
    // Without a new list, the informer would never get the change, which is older than the version that it has reached.
    informer.catch_up().await;
    assert_eq!((informer.told.expired, informer.told.states), (1, 2), "{:?}", informer.told);
}

#[tokio::test]
async fn changes_alone_are_no_difference() {
    for features in [Features::default(), Features::old()] {
        let world = with_pods(|_| {}).await;
        world.sim.set_features(features);
        let mut informer = world.informer(Selection::pods());
        informer.catch_up().await;
        let before = looks("same");
        let churn = async {
            for round in 0_u64.. {
                match round % 3 {
                    0 => world.create_pod("default", &format!("new-{round}"), "y"),
                    1 => world.label_pod(&format!("default/pod-{:03}", round % PODS as u64), &round.to_string()),
                    _ => world.delete_pod(&format!("default/new-{}", round - 2)),
                }
                sleep(Duration::from_millis(2)).await;
            }
        };
        let looked = until_looked("three looks", async || looks("same") >= before + 3);
        tokio::select! {
            () = looked => {}
            () = churn => unreachable!("it does not end"),
            never = informer.follow() => match never {},
        }
        informer.catch_up().await;
        assert_eq!((informer.told.expired, informer.told.states), (0, 1), "{features:?}: {:?}", informer.told);
    }
}

#[tokio::test]
async fn the_verifier_sends_nothing_if_it_is_disabled() {
    let world = with_pods(|config| config.cache.verify_interval = None).await;
    world
        .sim
        .change_silently(&pods(), "default/pod-077", |pod| pod["metadata"]["labels"]["app"] = json!("silent"))
        .unwrap();
    let lists = world.sim.counts().requests("list", "pods");
    // In total less than the shortest time after which the reflector lists by itself.
    for _ in 0..4 {
        skip(Duration::from_secs(60)).await;
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.sim.counts().requests("list", "pods"), lists);
}

#[tokio::test]
async fn a_cache_of_less_than_a_hundred_objects_is_not_looked_at() {
    for (pods, is_looked_at) in [(100, true), (99, false)] {
        let interval = Duration::from_secs(30);
        let world = with(pods, |config| config.cache.verify_interval = Some(interval)).await;
        let lists = world.sim.counts().requests("list", "pods");
        // In total less than the shortest time after which the reflector lists by itself.
        for _ in 0..8 {
            skip(interval).await;
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(world.sim.counts().requests("list", "pods") > lists, is_looked_at, "{pods}");
    }
}

#[tokio::test]
async fn the_object_that_differs_is_in_the_log() {
    let world = with_pods(|_| {}).await;
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = log_subscriber(LogFormat::Json, LevelFilter::ERROR, move || writer.clone());
    let _logged = tracing::subscriber::set_default(subscriber.with(world.client().log()));
    let silently = |pod: &mut serde_json::Value| pod["metadata"]["labels"]["app"] = json!("silent");
    world.sim.change_silently(&pods(), "default/pod-077", silently).unwrap();
    // Later changes are sent as usual, so that the cache takes itself to be complete.
    world.create_pod("default", "told", "x");
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    until_looked("the line", async || {
        // Keeps the cache from being stopped as idle.
        world.client().get(LIST).await;
        lines.text().contains("cache differs from upstream")
    })
    .await;
    let text = lines.text();
    let line = text.lines().find(|line| line.contains("cache differs from upstream")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["object"], &line["level"]), (&json!("default/pod-077"), &json!("ERROR")), "{line}");
}
