//! The effects of a cache's health: when it is filled again, when its watch is opened again, and what it keeps.

use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, Full};
use kube_fanout::{
    apimachinery::GroupResource,
    sim::{Features, Sim},
    store::HistoryLimits,
    telemetry,
};
use serde_json::Value;
use tokio::{join, time::Instant};

use crate::{
    harness::{Route, World, metrics, passing, skip, until, within},
    reads::{definition, widget},
};

const LIST: &str = "/api/v1/pods?resourceVersion=0";
/// Longer than the first pause of the reflector after a failure.
const BACKOFF: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(500);
/// Longer than between two updates of the gauges.
const OBSERVED: Duration = Duration::from_secs(6);

/// A custom resource of one test: metrics are counted for all tests of the process together.
struct Own {
    singular: &'static str,
    collection: String,
}

impl Own {
    /// Defines the resource, with `objects` objects named by their numbers.
    fn define(world: &World, singular: &'static str, objects: usize) -> Self {
        let own = Self { singular, collection: format!("/apis/example.com/v1/{singular}s") };
        world.sim.create(own.named(&definition(".spec.size"))).unwrap();
        for number in 0..objects {
            world.sim.create(own.named(&widget(&number.to_string(), "0"))).unwrap();
        }
        own
    }

    /// The same object as the widget, with this resource's names.
    fn named(&self, widget: &Value) -> Value {
        let kind = format!("{}{}", self.singular[..1].to_uppercase(), &self.singular[1..]);
        let text = widget.to_string().replace("widget", self.singular).replace("Widget", &kind);
        serde_json::from_str(&text).unwrap()
    }

    fn change(&self, world: &World, name: &str, times: usize) {
        let resource = GroupResource { group: "example.com".into(), resource: format!("{}s", self.singular).into() };
        for size in 1..=times {
            let resize = |object: &mut Value| object["spec"]["size"] = size.to_string().into();
            world.sim.modify(&resource, &format!("default/{name}"), resize).unwrap();
        }
    }

    /// The value of a metric of this resource's cache.
    fn metric(&self, name: &str) -> u64 {
        let series = format!("{name}{{resource=\"{}s.example.com\"", self.singular);
        metrics::sum(&telemetry::install().unwrap().render(), &series, "")
    }
}

/// How long the pods' cache takes for this many fills, each followed by a change.
async fn time_of_fills(world: &World, fills: u64) -> Duration {
    let began = Instant::now();
    let filled = async {
        // A fill ends with a watch; nothing else watches pods here.
        let first = world.sim.counts().requests("watch", "pods");
        for fill in first..first + fills {
            world.label_pod("default/a", &fill.to_string());
            within("the next fill", world.sim.until(|counts| counts.requests("watch", "pods") > fill)).await;
        }
    };
    passing(STEP, filled).await;
    began.elapsed()
}

#[tokio::test]
async fn a_fill_followed_by_invalid_events_does_not_reset_the_delays() {
    let world = World::start().await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    world.sim.spoil_events(u32::MAX);
    // After 0.8 s, 1.6 s, and so on up to 30 s.
    let time = time_of_fills(&world, 7).await;
    assert!(time > Duration::from_secs(40), "seven fills in {time:?}");
    world.sim.spoil_events(0);
    // In steps, because a fill fails if the clock skips more than its time limit while it is under way.
    world.gateway.warm_skipping("/api/v1/pods").await;
    // A watch that is healthy for two minutes resets the delays.
    skip(Duration::from_secs(121)).await;
    world.sim.spoil_events(u32::MAX);
    let time = time_of_fills(&world, 2).await;
    // After 0.8 s and 1.6 s, and the time that is skipped while a slow machine fills. At least 45 s without the reset.
    assert!(time < Duration::from_secs(40), "two fills in {time:?}");
}

#[tokio::test]
async fn bookmarks_with_fields_that_only_newer_servers_have_are_passed_on() {
    let world = World::start_lacking(Features { newer_bookmarks: true, ..Features::default() }).await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    let watch_list = "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                      &allowWatchBookmarks=true&resourceVersion=0&timeoutSeconds=10";
    let request = Request::get(watch_list).body(Full::default()).unwrap();
    let direct = world.sim.handle(request).await.into_body().collect();
    let watch = world.client().watch(watch_list).await;
    world.label_pod("default/a", "y");
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    let ((served, route), direct) = passing(Duration::from_millis(500), async { join!(watch.rest(), direct) }).await;
    assert_eq!((served.as_bytes(), route), (&*direct.unwrap().to_bytes(), Route::Served));
    assert_eq!(served.matches(r#""shard":"#).count(), 2, "the end of the initial events, and of the watch: {served}");
}

#[tokio::test]
async fn a_watch_without_its_bookmarks_is_opened_again() {
    let world = World::start().await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    let client = world.client().watch("/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=1000").await;
    // The cache learns that upstream sends bookmarks.
    world.sim.skip_revisions(1);
    let head = format!(r#""resourceVersion":"{}""#, world.sim.revision());
    let bookmark = async || {
        skip(Duration::from_secs(10)).await;
        world.client().get(LIST).await.text().contains(&head).then_some(())
    };
    until("a bookmark", bookmark).await;
    world.sim.set_features(Features { bookmarks: false, ..Features::default() });
    // A watch that has just been opened will not end by itself for five minutes.
    world.sim.end_watches(Some("pods"));
    let open = world.sim.until(|counts| counts.requests("watch", "pods") == 2 && counts.open_watches("pods") == 1);
    within("the next watch", open).await;
    for _ in 0..23 {
        skip(Duration::from_secs(10)).await;
        assert_eq!(world.client().get(LIST).await.route, Route::Served);
    }
    assert_eq!(world.sim.counts().requests("watch", "pods"), 2, "three bookmarks may be missing");
    skip(Duration::from_secs(20)).await;
    world.client().get(LIST).await;
    skip(BACKOFF).await;
    let anew = world.sim.until(|counts| counts.requests("watch", "pods") == 3 && counts.open_watches("pods") == 1);
    within("a new watch", anew).await;
    // The client's watch continues.
    let mut client = client;
    world.create_pod("default", "b", "x");
    for name in ["a", "b"] {
        let event = client.line().await.unwrap().unwrap();
        assert!(event.contains(&format!(r#""name":"{name}""#)), "{event}");
    }
}

#[tokio::test]
async fn history_that_is_too_old_is_dropped_though_nothing_changes() {
    const CHANGES: usize = HistoryLimits::COUNT_MIN + 50;
    let age = Duration::from_secs(60);
    let world = World::start_with(Sim::new(), |config| config.cache.history.age = age).await;
    let own = Own::define(&world, "relic", 1);
    world.gateway.warm(&own.collection).await;
    own.change(&world, "0", CHANGES);
    world.gateway.reach(&own.collection, world.sim.revision()).await;
    for (wait, left) in [(OBSERVED, CHANGES), (age * 2, HistoryLimits::COUNT_MIN)] {
        skip(wait).await;
        let observed = async || {
            skip(OBSERVED).await;
            (own.metric("kube_fanout_cache_history_changes") == left as u64).then_some(())
        };
        until("the size of the history", observed).await;
    }
}

#[tokio::test]
async fn events_are_counted_one_by_one() {
    const CHANGES: usize = 50;
    let world = World::start().await;
    let own = Own::define(&world, "memo", 3);
    world.gateway.warm(&own.collection).await;
    let path = format!("{}?watch=1&resourceVersion=0&timeoutSeconds=600", own.collection);
    let mut watch = world.client().watch(&path).await;
    // Changes at once are sent in few pieces.
    own.change(&world, "0", CHANGES);
    for _ in 0..3 + CHANGES {
        watch.line().await.unwrap().unwrap();
    }
    assert_eq!(own.metric("kube_fanout_watch_events_sent_total"), 3 + CHANGES as u64);
}
