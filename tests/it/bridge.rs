//! An upstream that has no history from before the open watches' versions, and what clients see of that.

use std::time::Duration;

use kube_fanout::{
    sim::{Refusal, Sim},
    telemetry,
};
use serde_json::Value;

use crate::{
    harness::{Route, Selection, Watch, World, metrics, passing, skip, until, upstream::pods, within},
    reads::{definition, widget},
};

/// Longer than the reflector's first pause after a failure.
const BACKOFF: Duration = Duration::from_secs(2);
/// Shorter than the time from the last bookmark to the end of a watch.
const STEP: Duration = Duration::from_millis(500);
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Pods in memory, and the version that memory has reached.
async fn settled() -> (World, u64) {
    settled_with(Sim::new()).await
}

async fn settled_with(sim: Sim) -> (World, u64) {
    let world = World::start_with(sim, |_| {}).await;
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "x"), ("e", "y")] {
        world.create_pod("default", name, app);
    }
    world.gateway.warm("/api/v1/pods").await;
    let version = world.sim.revision();
    world.gateway.reach("/api/v1/pods", version).await;
    (world, version)
}

/// Makes changes that the gateway's watch does not report. Returns the version after each of them.
fn unseen(world: &World) -> Vec<u64> {
    world.sim.hold_watches(Some("pods"));
    let changes: [&dyn Fn(); 9] = [
        // It leaves a selector, and is changed again much later.
        &|| world.label_pod("default/a", "y"),
        &|| world.delete_pod("default/b"),
        &|| world.create_pod("default", "b", "y"),
        &|| world.delete_pod("default/c"),
        &|| world.create_pod("default", "new", "x"),
        // It leaves a selector, and comes back.
        &|| world.label_pod("default/d", "y"),
        &|| world.label_pod("default/d", "x"),
        // The gateway never learns of this one.
        &|| world.create_pod("default", "fleeting", "x"),
        &|| world.delete_pod("default/fleeting"),
    ];
    let mut versions: Vec<_> = changes
        .iter()
        .map(|change| {
            change();
            world.sim.revision()
        })
        .collect();
    world.label_pod("default/a", "z");
    versions.push(world.sim.revision());
    world.sim.skip_revisions(3);
    versions
}

/// Upstream has forgotten everything, as when it was started again, and memory is filled again.
async fn forget(world: &World) {
    world.sim.forget_history();
    world.sim.cut_watches(Some("pods"));
    skip(BACKOFF).await;
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
}

/// The number of fills of this resource with this outcome, in all tests of the process.
fn bridges(resource: &str, outcome: &str) -> u64 {
    let series = format!(r#"kube_fanout_cache_bridges_total{{resource="{resource}""#);
    metrics::sum(&telemetry::install().unwrap().render(), &series, &format!(r#"outcome="{outcome}""#))
}

type Told = (String, String, u64);

fn told(kind: &str, name: &str, version: u64) -> Told {
    (kind.to_owned(), name.to_owned(), version)
}

fn metadata(object: &Value) -> (String, u64) {
    let metadata = &object["metadata"];
    let version = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
    (metadata["name"].as_str().unwrap_or_default().to_owned(), version)
}

/// The next `count` events.
async fn next(watch: &mut Watch, count: usize) -> Vec<Told> {
    let mut events = Vec::new();
    for _ in 0..count {
        let event: Value = serde_json::from_str(&watch.line().await.unwrap().expect("an event")).unwrap();
        let (name, version) = metadata(&event["object"]);
        events.push((event["type"].as_str().unwrap().to_owned(), name, version));
    }
    events
}

#[tokio::test]
async fn watches_continue_with_the_difference() {
    let (world, from) = settled().await;
    let watch = async |query: &str, accept: &str| {
        let path = format!("/api/v1/pods?watch=1&resourceVersion={from}&allowWatchBookmarks=true&{query}");
        world.client().watch_as(&path, accept).await
    };
    let mut whole = watch("", "application/json").await;
    let mut of_app = watch("labelSelector=app%3Dx", METADATA).await;
    let mut of_node = watch("fieldSelector=spec.nodeName%3Dnode-y", "application/json").await;
    let mut elsewhere = watch("fieldSelector=metadata.namespace%3Dkube-system", "application/json").await;
    let made = bridges("pods", "made");
    let versions = unseen(&world);
    forget(&world).await;
    let [.., again, _, new, _, d, _, _, a] = versions[..] else { panic!("{versions:?}") };
    let to = world.sim.revision();

    let lost = [told("DELETED", "b", from), told("DELETED", "c", from)];
    let come =
        [told("ADDED", "b", again), told("ADDED", "new", new), told("MODIFIED", "d", d), told("MODIFIED", "a", a)];
    let end = [told("BOOKMARK", "", to)];
    assert_eq!(next(&mut whole, 7).await, [&lost[..], &come, &end].concat());
    // Objects that left the selector are deleted first, no matter how often they were changed since.
    let of_app = next(&mut of_app, 5).await;
    let expected = [
        told("DELETED", "c", from),
        told("DELETED", "a", from),
        told("ADDED", "new", new),
        told("MODIFIED", "d", d),
        told("BOOKMARK", "", to),
    ];
    assert_eq!(of_app, expected);
    // An object's node stays, only the label has changed.
    let expected = [told("DELETED", "b", from), told("ADDED", "b", again), told("BOOKMARK", "", to)];
    assert_eq!(next(&mut of_node, 3).await, expected);
    // A client without events gets a bookmark, so that it can continue elsewhere.
    assert_eq!(next(&mut elsewhere, 1).await, end);

    // Later changes follow.
    world.create_pod("default", "later", "x");
    assert_eq!(next(&mut whole, 1).await, [told("ADDED", "later", to + 1)]);
    assert!(bridges("pods", "made") > made);
}

#[tokio::test]
async fn deleted_objects_have_their_last_content() {
    let (world, from) = settled().await;
    let before = world.client().get("/api/v1/namespaces/default/pods/c?resourceVersion=0").await;
    let mut before: Value = serde_json::from_slice(&before.body).unwrap();
    let mut watch = world.client().watch(&format!("/api/v1/pods?watch=1&resourceVersion={from}")).await;
    world.sim.hold_watches(Some("pods"));
    world.delete_pod("default/c");
    forget(&world).await;
    let event: Value = serde_json::from_str(&watch.line().await.unwrap().unwrap()).unwrap();
    assert_ne!(before["metadata"]["resourceVersion"], from.to_string());
    before["metadata"]["resourceVersion"] = from.to_string().into();
    assert_eq!((&event["type"], &event["object"]), (&"DELETED".into(), &before));
}

#[tokio::test]
async fn a_watch_that_resumes_across_the_bridge_gets_the_same_events() {
    let (world, from) = settled().await;
    world.label_pod("default/e", "x");
    let seen = world.sim.revision();
    world.gateway.reach("/api/v1/pods", seen).await;
    let versions = unseen(&world);
    forget(&world).await;
    let to = world.sim.revision();
    let watch = async |version: u64| {
        world.client().watch(&format!("/api/v1/pods?watch=1&resourceVersion={version}&timeoutSeconds=60")).await
    };
    let (mut early, mut near, mut far) = (watch(from).await, watch(seen).await, watch(to).await);
    let over = next(&mut near, 6).await;
    assert_eq!(over[..2], [told("DELETED", "b", seen), told("DELETED", "c", seen)]);
    assert_eq!(next(&mut early, 7).await, [vec![told("MODIFIED", "e", seen)], over].concat());
    world.create_pod("default", "later", "x");
    assert_eq!(next(&mut far, 1).await, [told("ADDED", "later", to + 1)]);

    // States: on both sides, and not in between.
    let exact = |version: u64| format!("/api/v1/pods?resourceVersion={version}&resourceVersionMatch=Exact");
    world.assert_same(&exact(seen), &Route::Served).await;
    world.assert_same(&exact(to), &Route::Served).await;
    for version in versions {
        world.assert_same(&exact(version), &Route::Forwarded("outside_history".to_owned())).await;
    }
}

#[tokio::test]
async fn a_version_inside_the_gap_is_forwarded() {
    let (world, _) = settled().await;
    let versions = unseen(&world);
    world.sim.forget_history();
    let known = world.sim.revision();
    world.label_pod("default/e", "late");
    let to = world.sim.revision();
    world.sim.cut_watches(Some("pods"));
    skip(BACKOFF).await;
    world.gateway.reach("/api/v1/pods", to).await;

    // A client may know objects that were created and deleted meanwhile; it would never remove them.
    for version in versions {
        let watch = world.client().watch(&format!("/api/v1/pods?watch=1&resourceVersion={version}")).await;
        let (events, route) = watch.rest().await;
        assert!(events.contains(r#""reason":"Expired","code":410}}"#), "{events}");
        assert_eq!(route, Route::Forwarded("before_fill".to_owned()));
    }
    // Upstream sends the changes that it still knows; then the client can go on from memory.
    let path = format!("/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion={known}&timeoutSeconds=600");
    let watch = world.client().watch(&path).await;
    let (events, route) = within("the end of the watch", passing(STEP, watch.rest())).await;
    assert!(events.starts_with(r#"{"type":"MODIFIED""#), "{events}");
    assert_eq!((events.lines().count(), route), (1, Route::Forwarded("before_fill".to_owned())));
    let mut resumed = world.client().watch(&format!("/api/v1/pods?watch=1&resourceVersion={to}")).await;
    world.create_pod("default", "later", "x");
    assert_eq!(next(&mut resumed, 1).await, [told("ADDED", "later", to + 1)]);
}

/// It would take the bridge's events for all changes that happened, and its clients may know objects that were created
/// and deleted meanwhile.
#[tokio::test]
async fn watches_of_another_gateway_end_at_the_bridge() {
    let via = &[("via", "1.1 kube-fanout-00000000000000000000000000000000")];
    for changes in [true, false] {
        let (world, from) = settled().await;
        let path = format!("/api/v1/pods?watch=1&resourceVersion={from}");
        let open = world.client().watch_with(&path, via).await;
        world.sim.hold_watches(Some("pods"));
        if changes {
            world.label_pod("default/a", "z");
        }
        // The gateway never learns of this one.
        world.create_pod("default", "fleeting", "x");
        world.delete_pod("default/fleeting");
        forget(&world).await;
        assert_eq!(open.rest().await, (String::new(), Route::Served), "it got events of the bridge");
        let again = world.client().watch_with(&path, via).await.rest().await;
        assert_eq!(again.1, Route::Forwarded("before_fill".to_owned()));
        assert!(again.0.contains(r#""code":410"#), "{}", again.0);
        // After the bridge it is a client like any other.
        let to = world.sim.revision();
        let mut behind = world.client().watch_with(&format!("/api/v1/pods?watch=1&resourceVersion={to}"), via).await;
        world.create_pod("default", "later", "x");
        assert_eq!(next(&mut behind, 1).await, [told("ADDED", "later", to + 1)]);
    }
}

#[tokio::test]
async fn a_watch_that_waits_for_a_version_inside_the_gap_ends() {
    let (world, _) = settled().await;
    let versions = unseen(&world);
    let to = world.sim.revision();
    let watch = async |version: u64, query: &str| {
        world.client().watch(&format!("/api/v1/pods?watch=1&resourceVersion={version}{query}")).await
    };
    // The bridge has no event for the second watch.
    let within_gap = [watch(versions[3], "").await, watch(versions[3], "&labelSelector=app%3Dother").await];
    let mut behind = watch(to, "").await;
    forget(&world).await;
    for watch in within_gap {
        assert_eq!(watch.rest().await, (String::new(), Route::Served));
    }
    world.create_pod("default", "later", "x");
    assert_eq!(next(&mut behind, 1).await, [told("ADDED", "later", to + 1)]);
}

/// Watches end cleanly without an event, and memory has the new state.
async fn assert_not_bridged(world: &World, watch: Watch, because: &str, before: u64) {
    assert_eq!(watch.rest().await, (String::new(), Route::Served), "{because}");
    assert!(bridges("pods", because) > before, "{because}");
    world.assert_same("/api/v1/pods?resourceVersion=0", &Route::Served).await;
}

#[tokio::test]
async fn a_restored_upstream_is_not_bridged() {
    let (world, from) = settled().await;
    let backup = from - 2;
    let watch = world.client().watch(&format!("/api/v1/pods?watch=1&resourceVersion={from}")).await;
    let before = bridges("pods", "contradiction");
    world.sim.hold_watches(Some("pods"));
    world.sim.rewind(backup).unwrap();
    // Its versions have passed those of memory when it is next asked.
    for name in ["f", "g", "h", "i"] {
        world.create_pod("default", name, "x");
    }
    assert!(world.sim.revision() > from);
    forget(&world).await;
    assert_not_bridged(&world, watch, "contradiction", before).await;
}

#[tokio::test]
async fn an_upgraded_upstream_is_not_bridged() {
    let (world, from) = settled().await;
    let watch = world.client().watch(&format!("/api/v1/pods?watch=1&resourceVersion={from}")).await;
    let before = bridges("pods", "server");
    let written = |pod: &mut Value| pod["spec"]["onlyNewerServersWriteThis"] = true.into();
    world.sim.hold_watches(Some("pods"));
    world.sim.upgrade("v1.37.0", &pods(), written).unwrap();
    world.create_pod("default", "f", "x");
    forget(&world).await;
    assert_not_bridged(&world, watch, "server", before).await;
}

#[tokio::test]
async fn the_same_version_with_other_bytes_is_not_bridged() {
    let (world, from) = settled().await;
    let watch = world.client().watch(&format!("/api/v1/pods?watch=1&resourceVersion={from}")).await;
    let before = bridges("pods", "contradiction");
    world.sim.hold_watches(Some("pods"));
    let written = |pod: &mut Value| pod["spec"]["somethingElse"] = true.into();
    let program: Value = serde_json::from_str(&world.directly("/version").await.1).unwrap();
    world.sim.upgrade(program["gitVersion"].as_str().unwrap(), &pods(), written).unwrap();
    world.create_pod("default", "f", "x");
    forget(&world).await;
    assert_not_bridged(&world, watch, "contradiction", before).await;
}

#[tokio::test]
async fn a_changed_definition_is_not_bridged() {
    let world = World::start().await;
    let collection = "/apis/example.com/v1/widgets";
    let mut now = world.sim.create(definition(".spec.size")).unwrap();
    world.sim.create(widget("one", "1")).unwrap();
    world.gateway.warm(collection).await;
    let watch = world.client().watch(&format!("{collection}?watch=1&resourceVersion={}", world.sim.revision())).await;
    world.sim.hold_watches(Some("widgets.example.com"));
    world.sim.create(widget("two", "2")).unwrap();
    now["spec"]["versions"][0]["selectableFields"] = serde_json::json!([{"jsonPath": ".spec.color"}]);
    world.sim.update(now).unwrap();
    world.sim.forget_history();
    world.sim.cut_watches(Some("widgets.example.com"));
    skip(BACKOFF).await;
    let (rest, route) = watch.rest().await;
    assert!(rest.contains(r#""code":410"#) && !rest.contains("two"), "the client has to list anew: {rest}");
    assert_eq!(route, Route::Served);
}

#[tokio::test]
async fn more_than_history_holds_is_not_bridged() {
    let world = World::start_with(Sim::new(), |config| config.cache.history.bytes = 10_000).await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    let watch = world.client().watch(&format!("/api/v1/pods?watch=1&resourceVersion={}", world.sim.revision())).await;
    let before = bridges("pods", "too_large");
    world.sim.hold_watches(Some("pods"));
    for number in 0..200 {
        world.create_pod("default", &format!("more-{number}"), "x");
    }
    forget(&world).await;
    assert_not_bridged(&world, watch, "too_large", before).await;
}

#[tokio::test]
async fn health_is_not_restored_before_the_bridge() {
    let (world, from) = settled().await;
    let path = format!("/api/v1/pods?watch=1&resourceVersion={from}&allowWatchBookmarks=true");
    let mut watch = world.client().watch(&path).await;
    world.server.stop().await;
    world.delete_pod("default/c");
    for _ in 0..10 {
        skip(Duration::from_secs(30)).await;
    }
    let mut world = world;
    world.sim.skip_revisions(7);
    world.server.start_again().await.unwrap();
    let to = world.sim.revision();
    skip(Duration::from_secs(60)).await;
    until("the bridge", async || {
        let list = world.client().get("/api/v1/pods?resourceVersion=0").await;
        (!list.text().contains(r#""name":"c""#)).then_some(())
    })
    .await;
    assert_eq!(next(&mut watch, 2).await, [told("DELETED", "c", from), told("BOOKMARK", "", to)]);
}

#[tokio::test]
async fn a_server_that_does_not_know_its_custom_resources_yet_is_waited_for() {
    const WIDGETS: &str = "widgets.example.com";
    let mut world = World::start().await;
    world.sim.create(definition(".spec.size")).unwrap();
    world.sim.create(widget("one", "1")).unwrap();
    world.gateway.warm("/apis/example.com/v1/widgets").await;
    let mut informer = world.informer(Selection::all("example.com", "widgets"));
    informer.catch_up().await;
    world.server.kill().await;
    world.sim.create(widget("two", "2")).unwrap();
    let definitions = "customresourcedefinitions.apiextensions.k8s.io";
    for (verb, resource) in [("get", definitions), ("list", WIDGETS)] {
        let resource = Some(resource.to_owned());
        world.sim.refuse(Refusal { verb: Some(verb), resource, times: Some(1), status: 404 });
    }
    world.server.start_again().await.unwrap();
    passing(BACKOFF, informer.catch_up()).await;
    assert_eq!((informer.told.states, informer.told.clean_ends), (1, 0), "{:?}", informer.told);
    // Neither is left.
    assert_eq!(world.directly("/apis/example.com/v1/widgets").await.0, 200);
}
