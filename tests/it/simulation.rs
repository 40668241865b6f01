//! Random changes, faults and clients from a seed, and the invariants that hold for all of them: the list of a watcher
//! plus its events equals the state upstream; versions never go back; no event is sent twice, out of order, or to a
//! watcher that did not select it. The informers check this for each event; this file checks lists.
//!
//! `SIMULATION_SEED=…` repeats one seed with each profile.

use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use kube_fanout::sim::{Features, Refusal, Sim};
use serde_json::Value;
use tokio::time::sleep;

use crate::harness::{Informer, Route, Selection, World, passing, seed::Seed, skip, until, upstream::pod};

const ROUNDS: usize = 60;
const INFORMERS: usize = 12;
/// How often upstream is restored from a backup.
const RESTORES: usize = 6;
/// The number of times that the clock is advanced per round, and the real time before each.
const SKIPS: u32 = 4;
const REAL_TIME: Duration = Duration::from_millis(8);
/// The time by which the clock advances per step while informers catch up. An informer may need the real time of
/// several steps to send a request: these steps must be shorter than the time that the gateway gives a new connection
/// for its first request.
const CATCH_UP_STEP: Duration = Duration::from_secs(3);

/// The minimum number of events and compared lists in a run; with fewer, the run would prove nothing.
const EVENTS_MIN: u32 = 100;
const LISTS_MIN: u32 = 10;

const NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];
const NAMES: [&str; 5] = ["a", "a-b", "b", "c", "d"];
const APPS: [&str; 3] = ["x", "y", "z"];

/// The kind of upstream.
struct Profile {
    features: Features,
    /// The number of changes that upstream keeps for watches.
    history: usize,
    /// The percentage of rounds with a fault.
    faults: u32,
}

#[tokio::test]
async fn a_calm_upstream() {
    run(10, Profile { features: Features::default(), history: 10_000, faults: 10 }).await;
}

#[tokio::test]
async fn a_stormy_upstream() {
    run(4, Profile { features: Features::default(), history: 10_000, faults: 70 }).await;
}

#[tokio::test]
async fn an_upstream_that_forgets() {
    run(3, Profile { features: Features::default(), history: 10, faults: 40 }).await;
}

#[tokio::test]
async fn an_old_upstream() {
    run(14, Profile { features: Features::old(), history: 200, faults: 40 }).await;
}

#[tokio::test]
async fn several_servers_whose_caches_lag() {
    let lags = [0, 900, 2_500].map(Duration::from_millis);
    run_on(6, Profile { features: Features::default(), history: 10_000, faults: 30 }, |sim| sim.lag_caches(&lags))
        .await;
}

#[tokio::test]
async fn an_upstream_that_is_restored() {
    let seed = Seed::or(5);
    let mut rng = Rng::with_seed(seed.value());
    let mut world = World::start().await;
    let (mut informers, mut lists): (Vec<Informer>, u32) = (Vec::new(), 0);
    for _ in 0..RESTORES {
        informers = (0..INFORMERS).map(|_| world.informer(random_selection(&mut rng))).collect();
        let mut revisions = vec![world.sim.revision()];
        for _ in 0..ROUNDS / RESTORES {
            for _ in 0..rng.usize(1..12) {
                change(&world, &mut rng);
            }
            revisions.push(world.sim.revision());
            if rng.u32(..3) == 0 {
                fault(&mut world, &mut rng).await;
            }
            tokio::select! {
                _ = join_all(informers.iter_mut().map(Informer::follow)) => {}
                () = pass(&mut rng) => {}
            }
            lists += assert_list(&world, &mut rng).await;
        }
        heal(&world);
        // A compacted revision cannot be restored.
        let restored = revisions.iter().rev().skip(1).find(|revision| world.sim.rewind(**revision).is_ok());
        informers.clear();
        if restored.is_some() {
            forgets_the_future(&world).await;
        }
    }
    informers.extend((0..INFORMERS).map(|_| world.informer(random_selection(&mut rng))));
    passing(CATCH_UP_STEP, join_all(informers.iter_mut().map(Informer::catch_up))).await;
    assert!(lists > LISTS_MIN, "{lists} lists");
}

/// Waits until the gateway no longer answers with a version that upstream does not have. Nothing is written meanwhile.
async fn forgets_the_future(world: &World) {
    let all = Selection::pods().path("resourceVersion=0");
    until("the end of what upstream does not have", async || {
        skip(Duration::from_secs(1)).await;
        let answer = world.client().get(&all).await;
        let list: Value = serde_json::from_slice(&answer.body).ok()?;
        let version = list["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok()?;
        (version <= world.sim.revision()).then_some(())
    })
    .await;
}

async fn run(seed: u64, profile: Profile) {
    run_on(seed, profile, |_| {}).await;
}

async fn run_on(seed: u64, profile: Profile, change_sim: impl FnOnce(&Sim)) {
    let seed = Seed::or(seed);
    let mut rng = Rng::with_seed(seed.value());
    let sim = Sim::with_history(profile.history);
    sim.set_features(profile.features);
    change_sim(&sim);
    let mut world = World::start_with(sim, |config| {
        // Small, so that the history loses changes that a paused watcher has not read. The history keeps at least a
        // hundred changes.
        config.cache.history.bytes = 1;
    })
    .await;
    let mut informers: Vec<_> = (0..INFORMERS).map(|_| world.informer(random_selection(&mut rng))).collect();
    let mut lists = 0;
    for _ in 0..ROUNDS {
        for _ in 0..rng.usize(..12) {
            change(&world, &mut rng);
        }
        if rng.u32(..100) < profile.faults {
            fault(&mut world, &mut rng).await;
        } else if rng.u32(..3) == 0 {
            heal(&world);
        }
        let awake: Vec<_> = informers.iter_mut().filter(|_| rng.u32(..4) > 0).collect();
        let followed = join_all(awake.into_iter().map(Informer::follow));
        tokio::select! {
            _ = followed => {}
            () = pass(&mut rng) => {}
        }
        lists += assert_list(&world, &mut rng).await;
        let keeps_state = rng.bool();
        rng.choice(&mut informers).unwrap().break_off(keeps_state);
    }
    heal(&world);
    passing(CATCH_UP_STEP, join_all(informers.iter_mut().map(Informer::catch_up))).await;
    // Fails if the faults kept the clients from reading anything.
    let events: u32 = informers.iter().map(|informer| informer.told.events).sum();
    assert!(events > EVENTS_MIN && lists > LISTS_MIN, "{events} events, {lists} lists");
}

/// Advances the clock by some seconds, with some real time for clients in between.
async fn pass(rng: &mut Rng) {
    for _ in 0..SKIPS {
        sleep(REAL_TIME).await;
        skip(Duration::from_millis(rng.u64(..2_000))).await;
    }
}

/// Creates, changes or deletes a random pod.
fn change(world: &World, rng: &mut Rng) {
    let (namespace, name) = (*rng.choice(&NAMESPACES).unwrap(), *rng.choice(&NAMES).unwrap());
    let app = *rng.choice(&APPS).unwrap();
    let key = format!("{namespace}/{name}");
    // A pod that does not exist is created; an existing one is changed or deleted.
    if world.sim.create(pod(namespace, name, app)).is_ok() {
        return;
    }
    if rng.u32(..4) == 0 {
        world.delete_pod(&key);
    } else {
        world.label_pod(&key, app);
    }
}

async fn fault(world: &mut World, rng: &mut Rng) {
    let pods = Some("pods");
    match rng.u32(..14) {
        0 => world.sim.cut_watches(pods),
        1 => world.sim.end_watches(pods),
        2 => {
            world.sim.hold_watches(pods);
            change(world, rng);
        }
        3 => world.sim.release_watches(pods),
        4 => {
            world.sim.forget_history();
            world.sim.cut_watches(pods);
        }
        5 => world.sim.compact(),
        6 => world.sim.skip_revisions(rng.u64(1..50)),
        7 => world.sim.delay_events(Duration::from_millis(rng.u64(..50))),
        8 => {
            let verb = *rng.choice(&["list", "watch", "get"]).unwrap();
            let status = *rng.choice(&[429, 500, 503]).unwrap();
            let times = Some(rng.u32(1..3));
            world.sim.refuse(Refusal { verb: Some(verb), resource: Some("pods".to_owned()), times, status });
        }
        9 => world.sim.hold_new_watches(rng.bool()),
        10 => world.sim.accept_all(),
        11 => world.sim.spoil_events(1),
        12 => {
            // Upstream accepts the watch and does not even send a response head. A list of this test would wait
            // forever.
            let (verb, resource) = (Some("watch"), Some("pods".to_owned()));
            let holes = Refusal { verb, resource, times: Some(1), status: 0 };
            world.sim.swallow(holes);
        }
        _ => {
            world.server.kill().await;
            change(world, rng);
            world.server.start_again().await.unwrap();
        }
    }
}

/// Ends the faults that do not end by themselves.
fn heal(world: &World) {
    world.sim.accept_all();
    world.sim.spoil_events(0);
    world.sim.hold_new_watches(false);
    world.sim.release_watches(None);
    world.sim.delay_events(Duration::ZERO);
}

/// A list from memory equals upstream's state at the version of the list. Returns the number of compared lists.
async fn assert_list(world: &World, rng: &mut Rng) -> u32 {
    let selection = random_selection(rng);
    let answer = world.client().get(&selection.path("resourceVersion=0")).await;
    if answer.route != Route::Served {
        return 0;
    }
    let list: Value = serde_json::from_slice(&answer.body).unwrap();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    assert!(version.parse::<u64>().unwrap() <= world.sim.revision(), "{version} is an invention");
    let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact");
    let (status, expected) = world.directly(&selection.path(&exact)).await;
    // Upstream may have compacted that version.
    if status != 200 {
        return 0;
    }
    assert_eq!(answer.text(), expected, "{selection:?} at {version}");
    1
}

fn random_selection(rng: &mut Rng) -> Selection {
    let mut selection = Selection::pods();
    if rng.bool() {
        selection = selection.in_namespace(rng.choice(&NAMESPACES).unwrap());
        if rng.u32(..3) == 0 {
            selection = selection.named(rng.choice(&NAMES).unwrap());
        }
    }
    let app = rng.choice(&APPS).unwrap();
    match rng.u32(..3) {
        0 => selection.of_app(app),
        1 => selection.on_node(&format!("node-{app}")),
        _ => selection,
    }
}
