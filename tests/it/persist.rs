//! Gateways that go on from the states that the ones before them have written (`cache.persist`).

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use kube_fanout::{
    config::{Config, PersistConfig},
    sim::Sim,
    telemetry,
};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    delegated::PODS,
    harness::{
        Gateway, Informer, Route, Selection, World, metrics, skip, until,
        upstream::{pod, pods},
    },
};

/// Longer than the time between two states.
const WRITTEN_AFTER: Duration = Duration::from_secs(31);
const SECRETS: &str = "/api/v1/secrets?resourceVersion=0";

fn persisting(folder: &Path) -> PersistConfig {
    PersistConfig { path: folder.to_owned(), ..PersistConfig::default() }
}

fn with(persist: PersistConfig) -> impl FnOnce(&mut Config) {
    move |config| config.cache.persist = Some(persist)
}

/// The files of states.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("states")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|name| name == "state")).collect();
    files.sort();
    files
}

/// What came of states, in all tests.
fn outcomes(outcome: &str) -> u64 {
    counted("kube_fanout_persisted_states_total{", outcome)
}

/// The caches of pods that were filled from this source, in all tests.
fn fills(source: &str) -> u64 {
    counted(r#"kube_fanout_cache_fills_total{resource="pods""#, source)
}

fn counted(name: &str, label: &str) -> u64 {
    metrics::sum(&telemetry::install().unwrap().render(), name, &format!(r#"="{label}""#))
}

/// A world whose gateway has written the state of three pods.
async fn written() -> (World, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let world = World::start_with(Sim::new(), with(persisting(folder.path()))).await;
    for name in ["a", "b", "c"] {
        world.create_pod("default", name, "x");
    }
    world.gateway.warm("/api/v1/pods").await;
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    let before = outcomes("written");
    skip(WRITTEN_AFTER).await;
    until("a written state", async || (outcomes("written") > before && !files(folder.path()).is_empty()).then_some(()))
        .await;
    (world, folder)
}

/// Ends the gateway and starts another one.
async fn again(World { sim, server, gateway }: World, persist: PersistConfig) -> World {
    gateway.stop().drained().await;
    let gateway = Gateway::start_with(&server.url(), with(persist)).await;
    World { sim, server, gateway }
}

#[tokio::test]
async fn a_gateway_that_starts_again_goes_on_from_what_it_kept() {
    let (world, folder) = written().await;
    for file in files(folder.path()) {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let kept = world.sim.revision();
    let mut informer = Informer::new(world.client().clone(), world.sim.clone(), Selection::pods());
    informer.catch_up().await;
    let (before, lists) = (fills("kept"), world.sim.counts().requests("list", "pods"));
    world.delete_pod("default/a");
    world.label_pod("default/b", "y");
    world.create_pod("default", "d", "x");
    let world = again(world, persisting(folder.path())).await;
    let watch = format!("/api/v1/pods?watch=1&resourceVersion={kept}&timeoutSeconds=1");
    world.gateway.warm("/api/v1/pods").await;
    // What happened meanwhile is there, and no part of it was listed: the one list is of the head, the others ask for
    // selectors that upstream knows.
    world.assert_same(PODS, &Route::Served).await;
    assert!(fills("kept") > before);
    let asked = world.sim.counts().requests("list", "pods") - lists;
    assert!(asked <= 3, "{asked} lists");
    // A client goes on from where it was.
    let told = world.client().get(&watch).await;
    assert_eq!(told.route, Route::Served);
    for (kind, name) in [("DELETED", "a"), ("MODIFIED", "b"), ("ADDED", "d")] {
        let is_told =
            |line: &str| line.contains(&format!(r#""type":"{kind}""#)) && line.contains(&format!(r#""name":"{name}""#));
        assert_eq!(told.text().lines().filter(|line| is_told(line)).count(), 1, "{kind} {name}: {}", told.text());
    }
}

/// The API server has forgotten what happened since, or the state is not one of it.
#[tokio::test]
async fn a_state_that_is_not_upstreams_is_not_used() {
    for (what, outcome) in [
        ("forgotten", "unconfirmed"),
        ("upgraded", "server"),
        ("damaged", "broken"),
        ("cut", "broken"),
        ("of another format", "malformed"),
        ("of another store", "malformed"),
    ] {
        let (world, folder) = written().await;
        let file = files(folder.path()).pop().unwrap();
        let bytes = fs::read(&file).unwrap();
        world.label_pod("default/b", "y");
        match what {
            "forgotten" => world.sim.forget_history(),
            "upgraded" => world.sim.upgrade("v1.37.0", &pods(), |_| {}).unwrap(),
            "damaged" => {
                let mut damaged = bytes.clone();
                let last = damaged.len() - 30;
                damaged[last] ^= 1;
                fs::write(&file, damaged).unwrap();
            }
            "cut" => fs::write(&file, &bytes[..bytes.len() - 5]).unwrap(),
            "of another format" => fs::write(&file, [b"x", &bytes[1..]].concat()).unwrap(),
            _ => fs::rename(&file, file.with_file_name("nodes%2Ev1.state")).unwrap(),
        }
        let before = outcomes(outcome);
        let world = again(world, persisting(folder.path())).await;
        if what == "of another store" {
            world.gateway.warm("/api/v1/nodes").await;
            world.assert_same("/api/v1/nodes?resourceVersion=0", &Route::Served).await;
        } else {
            world.gateway.warm("/api/v1/pods").await;
            world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
            world.assert_same(PODS, &Route::Served).await;
        }
        assert!(outcomes(outcome) > before, "{what}");
    }
}

#[tokio::test]
async fn secrets_are_kept_only_if_the_configuration_says_so() {
    for secrets in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let persist = PersistConfig { secrets, ..persisting(folder.path()) };
        let world = World::start_with(Sim::new(), with(persist)).await;
        let metadata = json!({"name": "s", "namespace": "default"});
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"password": "aGlkZGVu"}});
        world.sim.create(secret).unwrap();
        world.gateway.warm("/api/v1/secrets").await;
        world.gateway.warm("/api/v1/pods").await;
        world.assert_same(SECRETS, &Route::Served).await;
        skip(WRITTEN_AFTER).await;
        let count = if secrets { 2 } else { 1 };
        let all = async || (files(folder.path()).len() >= count).then_some(());
        until("the states", all).await;
        let has_secrets = files(folder.path()).iter().any(|file| file.to_string_lossy().contains("secrets"));
        assert_eq!(has_secrets, secrets);
    }
}

/// Nothing of a state that does not fit is left, and the gateway goes on.
#[tokio::test]
async fn what_does_not_fit_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let persist = PersistConfig { bytes: 300, ..persisting(folder.path()) };
    let world = World::start_with(Sim::new(), with(persist)).await;
    world.sim.create(pod("default", "a", "x")).unwrap();
    world.gateway.warm("/api/v1/pods").await;
    let before = outcomes("no_room");
    skip(WRITTEN_AFTER).await;
    until("the attempt", async || (outcomes("no_room") > before).then_some(())).await;
    assert_eq!(fs::read_dir(folder.path().join("states")).unwrap().count(), 1, "the lock");
    world.assert_same(PODS, &Route::Served).await;
}

#[tokio::test]
async fn a_folder_that_others_read_or_use_is_refused() {
    let (world, folder) = written().await;
    let refused = async |persist: PersistConfig| {
        let mut gateway = Gateway::start_with(&world.server.url(), with(persist)).await;
        gateway.failed().await
    };
    let error = refused(persisting(folder.path())).await;
    assert!(error.contains("another gateway uses"), "{error}");
    let exposed = tempfile::tempdir().unwrap();
    let states = exposed.path().join("states");
    fs::create_dir(&states).unwrap();
    fs::set_permissions(&states, fs::Permissions::from_mode(0o750)).unwrap();
    let error = refused(persisting(exposed.path())).await;
    assert!(error.contains("others may read"), "{error}");
    let error = refused(persisting(&exposed.path().join("missing"))).await;
    assert!(error.contains("cannot use") && error.contains("No such file"), "{error}");
}

/// A gateway that is told to keep no Secrets any more removes those of before.
#[tokio::test]
async fn secrets_of_before_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let secrets = PersistConfig { secrets: true, ..persisting(folder.path()) };
    let world = World::start_with(Sim::new(), with(secrets)).await;
    world.gateway.warm("/api/v1/secrets").await;
    skip(WRITTEN_AFTER).await;
    until("the state", async || (files(folder.path()).len() == 1).then_some(())).await;
    let _world = again(world, persisting(folder.path())).await;
    until("the removal", async || files(folder.path()).is_empty().then_some(())).await;
}

/// Otherwise the gateway would go on from it after the restart that is to cure it.
#[tokio::test]
async fn a_state_that_is_not_believed_any_more_is_removed() {
    let (world, folder) = written().await;
    let backup = world.sim.revision() - 2;
    world.sim.hold_watches(None);
    world.sim.rewind(backup).unwrap();
    world.sim.cut_watches(None);
    until("the removal", async || files(folder.path()).is_empty().then_some(())).await;
    world.gateway.warm("/api/v1/pods").await;
    world.assert_same(PODS, &Route::Served).await;
}

#[tokio::test]
async fn a_state_of_what_does_not_change_does_not_become_too_old() {
    let folder = tempfile::tempdir().unwrap();
    let persist = PersistConfig { max_age: Duration::from_secs(60), ..persisting(folder.path()) };
    let world = World::start_with(Sim::new(), with(persist)).await;
    world.gateway.warm("/api/v1/pods").await;
    for _ in 0..2 {
        let before = outcomes("written");
        until("a state that is written again", async || {
            skip(Duration::from_secs(5)).await;
            (outcomes("written") > before).then_some(())
        })
        .await;
    }
}

/// As with a full disk, or one that went away.
#[tokio::test]
async fn a_folder_that_fails_costs_nothing_but_the_states() {
    let (world, folder) = written().await;
    let (states, aside) = (folder.path().join("states"), folder.path().join("aside"));
    fs::rename(&states, &aside).unwrap();
    world.label_pod("default/b", "y");
    let before = outcomes("failed");
    skip(WRITTEN_AFTER).await;
    until("the attempt", async || (outcomes("failed") > before).then_some(())).await;
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    world.assert_same(PODS, &Route::Served).await;
    fs::rename(&aside, &states).unwrap();
    let before = outcomes("written");
    skip(WRITTEN_AFTER).await;
    until("a state that is written again", async || (outcomes("written") > before).then_some(())).await;
    assert!(fs::read_dir(&states).unwrap().all(|file| !file.unwrap().file_name().to_string_lossy().ends_with("begun")));
    let before = fills("kept");
    let world = again(world, persisting(folder.path())).await;
    world.gateway.warm("/api/v1/pods").await;
    world.assert_same(PODS, &Route::Served).await;
    assert!(fills("kept") > before);
}
