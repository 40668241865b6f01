//! Faults of upstream, and what clients see of them through the gateway: no event is lost, duplicated or reordered.

use std::time::Duration;

use futures_util::future::join_all;
use kube_fanout::sim::{Features, Refusal, Sim};

use crate::{
    harness::{
        Informer, Route, Selection, Told, World, passing, skip, until,
        upstream::{pod, pods},
        within,
    },
    reads::{definition, widget},
};

/// Longer than the first pause of the reflector after a failure.
const BACKOFF: Duration = Duration::from_secs(2);
/// Time that may be skipped at once while the API server is asked, without it being taken for silent.
const ANSWERED: Duration = Duration::from_millis(500);

/// Some pods, and informers of several kinds that have read them.
async fn settled(world: &World) -> Vec<Informer> {
    for (namespace, name, app) in [("default", "a", "x"), ("default", "b", "y"), ("kube-system", "c", "x")] {
        world.create_pod(namespace, name, app);
    }
    world.gateway.warm("/api/v1/pods").await;
    let pods = Selection::pods;
    let selections = [
        pods(),
        pods().in_namespace("default"),
        pods().of_app("x"),
        pods().on_node("node-y"),
        pods().in_namespace("default").named("a"),
    ];
    let mut informers: Vec<_> = selections.map(|selection| world.informer(selection)).into();
    catch_up(&mut informers).await;
    informers
}

async fn catch_up(informers: &mut [Informer]) {
    join_all(informers.iter_mut().map(Informer::catch_up)).await;
}

/// Changes of every kind to the pods that [`settled`] created; can be repeated.
fn change(world: &World) {
    world.label_pod("default/a", "y");
    world.delete_pod("default/b");
    world.create_pod("kube-system", "b", "x");
    world.label_pod("default/a", "x");
    world.create_pod("default", "b", "y");
    world.label_pod("kube-system/c", "z");
    world.label_pod("kube-system/c", "x");
    world.delete_pod("kube-system/b");
}

/// Causes a fault, then checks that all informers reach upstream's state, and that they get later changes.
async fn survive(world: &mut World, fault: impl AsyncFnOnce(&mut World)) -> Vec<Informer> {
    let mut informers = settled(world).await;
    fault(world).await;
    skip(BACKOFF).await;
    catch_up(&mut informers).await;
    change(world);
    catch_up(&mut informers).await;
    informers
}

#[tokio::test]
async fn broken_watches_are_resumed_and_no_client_sees_it() {
    let mut world = World::start().await;
    let informers = survive(&mut world, async |world| {
        world.sim.hold_watches(Some("pods"));
        change(world);
        world.sim.cut_watches(Some("pods"));
    })
    .await;
    for informer in &informers {
        assert_eq!((informer.told.states, informer.told.clean_ends, informer.told.broken), (1, 0, 0));
    }
    assert_eq!(world.sim.counts().open_watches("pods"), 1);
}

#[tokio::test]
async fn clean_ends_upstream_are_resumed_and_no_client_sees_it() {
    let mut world = World::start().await;
    let informers = survive(&mut world, async |world| {
        world.sim.hold_watches(Some("pods"));
        change(world);
        world.sim.end_watches(Some("pods"));
    })
    .await;
    assert!(informers.iter().all(|informer| informer.told.clean_ends == 0));
}

#[tokio::test]
async fn an_expired_version_is_bridged_or_ends_watches_cleanly() {
    for (features, bridge, expected) in [
        (Features::default(), true, (1, 0, 0, 0)),
        (Features::old(), true, (1, 0, 0, 0)),
        (Features::default(), false, (2, 2, 0, 1)),
    ] {
        let sim = Sim::new();
        sim.set_features(features);
        let mut world = World::start_with(sim, |config| config.cache.bridge = bridge).await;
        let informers = survive(&mut world, async |world| {
            world.sim.hold_watches(Some("pods"));
            change(world);
            world.sim.forget_history();
            world.sim.cut_watches(Some("pods"));
        })
        .await;
        for informer in &informers {
            // Without a bridge: the end of the watch, the answer that its version has expired, and the new list.
            let Told { states, clean_ends, broken, expired, .. } = informer.told;
            assert_eq!((states, clean_ends, broken, expired), expected, "{bridge}: {:?}", informer.selection);
        }
    }
}

#[tokio::test]
async fn a_restart_of_upstream_loses_nothing() {
    let mut world = World::start().await;
    let informers = survive(&mut world, async |world| {
        world.server.kill().await;
        change(world);
        world.server.start_again().await.unwrap();
    })
    .await;
    // The new server process has no history, and still no client lists again.
    assert!(informers.iter().all(|informer| (informer.told.states, informer.told.clean_ends) == (1, 0)));
}

#[tokio::test]
async fn an_upstream_that_is_away_for_long_is_found_again() {
    let mut world = World::start().await;
    let mut informers = settled(&world).await;
    world.server.stop().await;
    change(&world);
    for _ in 0..5 {
        skip(Duration::from_secs(10)).await;
    }
    // Memory still answers reads that accept an older state.
    assert_eq!(world.client().get("/api/v1/pods?resourceVersion=0").await.route, Route::Served);
    world.server.start_again().await.unwrap();
    skip(Duration::from_secs(60)).await;
    catch_up(&mut informers).await;
}

#[tokio::test]
async fn refused_lists_and_watches_are_repeated() {
    let mut world = World::start().await;
    survive(&mut world, async |world| {
        for (verb, status) in [("list", 503), ("watch", 500), ("watch", 429)] {
            let refusal = Refusal { verb: Some(verb), resource: Some("pods".to_owned()), times: Some(1), status };
            world.sim.refuse(refusal);
        }
        change(world);
        world.sim.cut_watches(Some("pods"));
        until("the watch after all refusals", async || {
            skip(BACKOFF * 4).await;
            (world.sim.counts().open_watches("pods") == 1).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn requests_that_are_never_answered_are_repeated() {
    for verb in ["list", "watch"] {
        let world = World::start().await;
        world.create_pod("default", "a", "x");
        world.sim.swallow(Refusal { verb: Some(verb), resource: Some("pods".to_owned()), times: Some(1), status: 0 });
        // This get starts the cache; it sends no list and no watch of its own.
        world.client().get("/api/v1/namespaces/default/pods/a?resourceVersion=0").await;
        let is_followed = async || (world.sim.counts().open_watches("pods") == 1).then_some(());
        passing(ANSWERED, until("a cache", is_followed)).await;
        world.gateway.warm("/api/v1/pods").await;
    }
}

#[tokio::test]
async fn questions_about_a_resource_that_are_never_answered_are_repeated() {
    let definitions = "customresourcedefinitions.apiextensions.k8s.io";
    for (verb, asked) in [("get", "/apis"), ("get", definitions), ("get", "/version")] {
        let world = World::start().await;
        world.sim.create(definition(".spec.size")).unwrap();
        world.sim.create(widget("one", "1")).unwrap();
        let before = world.sim.counts().requests(verb, asked);
        world.sim.swallow(Refusal { verb: Some(verb), resource: Some(asked.to_owned()), times: Some(1), status: 0 });
        let widget = "/apis/example.com/v1/namespaces/default/widgets/one?resourceVersion=0";
        let is_asked = world.sim.until(|counts| counts.requests(verb, asked) > before);
        let started = async { tokio::join!(world.client().get(widget), is_asked) };
        within(asked, passing(ANSWERED, started)).await;
        let is_followed = async || {
            world.client().get(widget).await;
            (world.sim.counts().open_watches("widgets.example.com") == 1).then_some(())
        };
        passing(ANSWERED, until("a cache", is_followed)).await;
        world.gateway.warm_skipping("/apis/example.com/v1/widgets").await;
    }
}

#[tokio::test]
async fn versions_that_jump_back_end_watches_and_start_over() {
    let world = World::start().await;
    let mut informers = settled(&world).await;
    let before = world.sim.revision();
    change(&world);
    catch_up(&mut informers).await;
    world.sim.rewind(before).unwrap();
    world.create_pod("default", "new", "x");
    join_all(informers.iter_mut().map(Informer::until_end)).await;
    skip(BACKOFF).await;

    world.gateway.warm("/api/v1/pods").await;
    // The informers from before the restore wait for versions that no longer exist, as they would at upstream.
    let mut fresh: Vec<_> = informers.iter().map(|informer| world.informer(informer.selection.clone())).collect();
    catch_up(&mut fresh).await;
    world.assert_same("/api/v1/pods?resourceVersion=0", &Route::Served).await;
}

/// All pods of this number and size are more than the socket buffers between the gateway and a client that does not
/// read hold.
const UNREAD_PODS: usize = 2_000;
const UNREAD_POD_BYTES: usize = 16_000;

#[tokio::test]
async fn initial_events_of_a_state_that_upstream_lost_are_broken_off() {
    let world = World::start().await;
    world.create_pod("default", "a", "x");
    let backup = world.sim.revision();
    for number in 0..UNREAD_PODS {
        let mut pod = pod("default", &format!("ghost-{number}"), "x");
        pod["metadata"]["annotations"] = serde_json::json!({"fill": "x".repeat(UNREAD_POD_BYTES)});
        world.sim.create(pod).unwrap();
    }
    world.gateway.warm("/api/v1/pods").await;
    let watch_list = "/api/v1/pods?watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
                      &resourceVersionMatch=NotOlderThan&resourceVersion=0";
    let watch = world.client().watch(watch_list).await;
    world.sim.rewind(backup).unwrap();
    skip(BACKOFF).await;
    // The answer may be forwarded or come from a new cache.
    let given_up = async || {
        let answer = world.client().get("/api/v1/pods?resourceVersion=0").await;
        (!answer.text().contains("ghost")).then_some(())
    };
    until("the end of the cache", given_up).await;
    let (text, route) = watch.rest().await;
    assert_eq!(route, Route::Served);
    assert!(!text.contains("initial-events-end"), "a state that is gone was sent as if it were complete");
}

#[tokio::test]
async fn an_upgraded_upstream_leaves_nothing_in_memory_that_the_old_one_wrote() {
    let world = World::start().await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    let list = "/api/v1/pods?resourceVersion=0";
    world.assert_same(list, &Route::Served).await;
    let written = |pod: &mut serde_json::Value| pod["spec"]["onlyNewerServersWriteThis"] = true.into();
    world.sim.upgrade("v1.37.0", &pods(), written).unwrap();
    world.sim.cut_watches(Some("pods"));
    skip(BACKOFF).await;
    let upgraded = async || {
        let answer = world.client().get(list).await;
        answer.text().contains("onlyNewerServersWriteThis").then_some(answer.route)
    };
    // Memory answers with the old bytes until it has read the new ones.
    assert_eq!(until("what the newer server writes", upgraded).await, Route::Served);
    world.assert_same(list, &Route::Served).await;
}

#[tokio::test]
async fn behind_several_servers_that_lag_versions_do_not_go_back() {
    let sim = Sim::new();
    sim.lag_caches(&[0, 700, 300].map(Duration::from_millis));
    let mut world = World::start_with(sim, |_| {}).await;
    // Each broken watch is opened at another server, whose cache may be older than the previous server's.
    let informers = survive(&mut world, async |world| {
        for _ in 0..4 {
            change(world);
            world.sim.cut_watches(Some("pods"));
            skip(BACKOFF).await;
        }
    })
    .await;
    assert!(informers.iter().all(|informer| (informer.told.states, informer.told.broken) == (1, 0)));
}

#[tokio::test]
async fn a_cache_is_not_filled_from_a_server_that_lags() {
    let world = World::start().await;
    world.create_pod("default", "a", "x");
    skip(Duration::from_secs(60)).await;
    world.create_pod("default", "b", "x");
    world.sim.lag_caches(&[Duration::from_secs(30)]);
    // A get of one object does not wait for the fill.
    let stale = world.client().get("/api/v1/namespaces/default/pods/b?resourceVersion=0").await;
    assert_eq!((stale.status.as_u16(), stale.route), (404, Route::Forwarded("cache_filling".to_owned())));
    world.gateway.warm("/api/v1/pods").await;
    let list = world.client().get("/api/v1/pods?resourceVersion=0").await;
    assert!(list.route == Route::Served && list.text().contains(r#""name":"b""#), "{}", list.text());
}

#[tokio::test]
async fn changes_before_the_end_of_the_initial_events_are_in_the_cache() {
    let world = World::start().await;
    for (namespace, name) in [("default", "a"), ("default", "b"), ("kube-system", "c")] {
        world.create_pod(namespace, name, "x");
    }
    skip(Duration::from_secs(60)).await;
    change(&world);
    world.label_pod("default/a", "z");
    world.sim.send_early_changes(true);
    world.gateway.warm("/api/v1/pods").await;
    world.assert_same("/api/v1/pods?resourceVersion=0", &Route::Served).await;
}

#[tokio::test]
async fn an_event_that_cannot_be_read_costs_a_fill_and_no_client_a_change() {
    let mut world = World::start().await;
    let informers = survive(&mut world, async |world| {
        world.sim.spoil_events(1);
        change(world);
    })
    .await;
    for informer in &informers {
        assert_eq!(informer.told.broken, 0, "what cannot be read is not passed on: {:?}", informer.selection);
    }
}

#[tokio::test]
async fn a_history_that_is_too_short_upstream_does_not_matter() {
    let mut world = World::start_with(Sim::with_history(3), |_| {}).await;
    survive(&mut world, async |world| {
        change(world);
        world.sim.cut_watches(Some("pods"));
    })
    .await;
}

#[tokio::test]
async fn an_upstream_without_watch_list_is_followed_by_list_and_watch() {
    let mut world = World::start_lacking(Features::old()).await;
    let informers = survive(&mut world, async |world| {
        change(world);
        world.sim.cut_watches(Some("pods"));
    })
    .await;
    assert_eq!(world.sim.counts().open_watches("pods"), 1);
    assert_eq!(informers[0].told.states, 1);
    let watch_list = Selection::pods().path("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let refused = world.client().get(&watch_list).await;
    assert_eq!((refused.status.as_u16(), refused.route), (422, Route::Forwarded("no_watch_list".to_owned())));
}

#[tokio::test]
async fn watch_list_is_not_given_up_for_as_long_as_a_cache_lives() {
    let world = World::start_lacking(Features { watch_list: false, ..Features::default() }).await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    let watch_list = "/api/v1/pods?watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
                      &resourceVersionMatch=NotOlderThan&resourceVersion=0&timeoutSeconds=1";
    assert_eq!(world.client().get(watch_list).await.route, Route::Forwarded("no_watch_list".to_owned()));
    world.sim.set_features(Features::default());
    let fills = world.sim.counts().requests("list", "pods");
    world.sim.cut_watches(Some("pods"));
    world.sim.skip_revisions(1);
    let served = async || {
        skip(Duration::from_secs(35)).await;
        (world.client().get(watch_list).await.route == Route::Served).then_some(())
    };
    until("a watch-list from memory", served).await;
    assert!(world.sim.counts().requests("list", "pods") <= fills + 1, "looked for the head, and filled nothing");
}

#[tokio::test]
async fn an_upstream_without_roots_of_discovery_is_asked_by_group() {
    for features in [
        Features { aggregated_discovery: false, ..Features::default() },
        Features { root_discovery: false, ..Features::default() },
    ] {
        let mut world = World::start_lacking(features).await;
        survive(&mut world, async |world| change(world)).await;
    }
}

#[tokio::test]
async fn an_upstream_that_falls_silent_is_given_up_after_a_while() {
    let world = World::start().await;
    let mut informers = settled(&world).await;
    world.sim.hold_watches(Some("pods"));
    change(&world);
    // The gateway gives the watch up a minute after the end that upstream should have sent, which is held, too.
    let opened = world.sim.counts().requests("watch", "pods");
    until("a new watch", async || {
        skip(Duration::from_secs(60)).await;
        (world.sim.counts().requests("watch", "pods") > opened).then_some(())
    })
    .await;
    catch_up(&mut informers).await;
}
