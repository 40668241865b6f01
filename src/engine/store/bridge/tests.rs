//! Bridges over random histories, held against what really happened.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::store::{Change, ChangeKind, FrameKind, Objects, Predicate, Reader, Schema, Shape, Writer, store};
use base::apimachinery::{FieldSelector, GroupResource, LabelSelector, selectable_fields};

const LIMITS: HistoryLimits = HistoryLimits { age: Duration::from_secs(300), bytes: 1 << 20 };

fn version(value: u64) -> ResourceVersion {
    ResourceVersion::new(value).unwrap()
}

fn schema() -> Arc<Schema> {
    let pods = GroupResource { group: "".into(), resource: "pods".into() };
    Arc::new(Schema::new(Shape::typed("Pod", "v1"), selectable_fields(&pods, true)))
}

/// One object as it was written: its name, the version that made it, its own, and a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    name: u8,
    made: u64,
    version: u64,
    app: u8,
}

impl Written {
    fn object(self, schema: &Schema) -> Object {
        let Self { name, made, version, app } = self;
        let labels = format!(r#""labels":{{"app":"app-{app}"}}"#);
        let metadata = format!(r#""name":"p-{name}","uid":"u-{made}","resourceVersion":"{version}",{labels}"#);
        let json = format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{{metadata}}},"spec":{{}}}}"#);
        Object::from_event(json.into(), schema).unwrap()
    }
}

type World = BTreeMap<u8, Written>;

/// What upstream did at a version, and the state behind it.
#[derive(Clone, Debug)]
struct Step {
    kind: ChangeKind,
    written: Written,
    after: World,
}

/// One write for each deed, the first of them at version 2.
fn history(deeds: &[(u8, u8, bool)]) -> Vec<Step> {
    let mut world = World::new();
    let steps = deeds.iter().zip(2..).map(|((name, app, deletes), version)| {
        let (name, app) = (*name, *app);
        let (kind, written) = match world.get(&name).copied() {
            Some(before) if *deletes => (ChangeKind::Deleted, Written { version, ..before }),
            Some(before) => (ChangeKind::Modified, Written { version, app, ..before }),
            None => (ChangeKind::Added, Written { name, made: version, version, app }),
        };
        if kind == ChangeKind::Deleted {
            world.remove(&name);
        } else {
            world.insert(name, written);
        }
        Step { kind, written, after: world.clone() }
    });
    steps.collect()
}

/// The state behind the step of that number; 0 is that of version 1, before all steps.
fn state(steps: &[Step], number: usize) -> World {
    number.checked_sub(1).map(|last| steps[last].after.clone()).unwrap_or_default()
}

/// A store that has followed the first steps, of which the first are part of its fill.
fn followed(steps: &[Step], filled: usize, until: usize) -> (Writer, Reader) {
    let schema = schema();
    let (mut writer, reader) =
        store(schema.clone(), &objects(&state(steps, filled)), version(filled as u64 + 1), LIMITS);
    for Step { kind, written, .. } in &steps[filled..until] {
        writer.apply(*kind, written.object(&schema), Bytes::new()).unwrap();
    }
    (writer, reader)
}

fn objects(world: &World) -> Objects {
    let schema = schema();
    // A watch-list brings them in the order of keys, what changes meanwhile in any.
    Objects::new(world.values().rev().map(|written| Arc::new(written.object(&schema))).collect()).unwrap()
}

fn held<'a>(objects: impl Iterator<Item = &'a Arc<Object>>) -> BTreeMap<String, u64> {
    objects.map(|object| (object.key.to_string(), object.version.value())).collect()
}

fn snapshot(reader: &Reader) -> BTreeMap<String, u64> {
    let snapshot = reader.snapshot();
    held(snapshot.leaves().flat_map(|leaf| leaf.objects()))
}

fn selected(world: &World, predicate: &Predicate) -> BTreeMap<String, u64> {
    let objects = objects(world);
    held(objects.as_slice().iter().filter(|object| predicate.matches(object)))
}

/// A client that applies the events of one selection.
#[derive(Clone, Debug)]
struct Client {
    objects: BTreeMap<String, u64>,
    version: u64,
}

impl Client {
    fn take(&mut self, change: &Change, predicate: &Predicate) {
        let Some(kind) = change.frame_kind(|object| predicate.matches(object)) else { return };
        let (key, version) = (change.object.key.to_string(), change.version.value());
        match kind {
            FrameKind::Added | FrameKind::Modified => drop(self.objects.insert(key, version)),
            FrameKind::Deleted | FrameKind::Left => drop(self.objects.remove(&key)),
        }
        assert!(version >= self.version, "{version} after {}", self.version);
        self.version = version;
    }

    /// Goes on at a server that knows all of history.
    fn go_on_elsewhere(mut self, steps: &[Step], until: usize, predicate: &Predicate) -> BTreeMap<String, u64> {
        let (mut writer, reader) = followed(steps, 0, until);
        writer.advance(version(until as u64 + 1));
        for change in changes_after(&reader, version(self.version)).unwrap() {
            self.take(&change, predicate);
        }
        self.objects
    }
}

fn changes_after(reader: &Reader, from: ResourceVersion) -> Option<Vec<Arc<Change>>> {
    let next = reader.after(from).ok()?;
    let changes = reader.backlog(next, usize::MAX >> 1).unwrap().changes;
    Some(changes.into_iter().filter(|change| change.known_at() > from).collect())
}

fn predicates() -> Vec<Predicate> {
    let predicate = |labels: &str| {
        Predicate::new(LabelSelector::parse(labels).unwrap(), &FieldSelector::default(), &schema()).unwrap()
    };
    ["", "app=app-0", "app!=app-0", "app in (app-1,app-2)"].map(predicate).into()
}

/// What a store of a gateway below, which is at that step, holds once it has crossed the bridge of `above`.
fn below(steps: &[Step], filled: usize, number: usize, above: &Reader) -> (BTreeMap<String, u64>, ResourceVersion) {
    let (mut writer, reader) = followed(steps, filled, number);
    let is_kept = |kind| matches!(kind, ChangeKind::Added | ChangeKind::Modified);
    let told = changes_after(above, version(number as u64 + 1)).unwrap();
    let told = told.iter().filter(|change| change.kind != ChangeKind::Reselected);
    let told = told.map(|change| (change.object.key.clone(), is_kept(change.kind).then(|| change.object.clone())));
    writer.bridge_changed(&told.collect(), above.progress()).unwrap();
    (snapshot(&reader), reader.progress())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn a_client_that_follows_a_bridge_has_the_new_state(
        deeds in prop::collection::vec((0..6u8, 0..3u8, prop::bool::weighted(0.4)), 1..40),
        cuts in prop::array::uniform3(any::<prop::sample::Index>()),
    ) {
        let steps = history(&deeds);
        let mut cuts = cuts.map(|cut| cut.index(steps.len() + 1));
        cuts.sort_unstable();
        let [filled, until, end] = cuts;
        let [from, to] = [until, end].map(|number| number as u64 + 1);
        let (mut writer, reader) = followed(&steps, filled, until);
        let changes = writer.bridge(&objects(&state(&steps, end)), version(to)).unwrap();

        // The store has it, and what it had before.
        prop_assert_eq!(snapshot(&reader), selected(&state(&steps, end), &predicates()[0]));
        prop_assert_eq!(reader.last_change_and_progress(), if from == to {
            (reader.last_change_and_progress().0, version(to))
        } else {
            (version(to), version(to))
        });
        for at in until..=end {
            let number = at as u64 + 1;
            let exact = reader.exact(version(number)).map(|state| held(state.leaves().flat_map(|leaf| leaf.objects())));
            let known = (number == from || number == to).then(|| selected(&state(&steps, at), &predicates()[0]));
            prop_assert_eq!(exact, known, "at {}", number);
        }

        // What is lost first, at the version that was reached; then versions that rise, each object once.
        let is_loss = |change: &Arc<Change>| matches!(change.kind, ChangeKind::Gone | ChangeKind::Reselected);
        let lost = changes.iter().take_while(|change| is_loss(change)).count();
        let (lost, come) = changes.split_at(lost);
        prop_assert!(lost.iter().all(|change| change.version.value() == from));
        prop_assert!(!come.iter().any(is_loss));
        prop_assert!(come.is_sorted_by(|a, b| a.version < b.version));
        prop_assert!(come.iter().all(|change| (from + 1..=to).contains(&change.version.value())));

        // A gateway below that is not further takes all of it for a bridge of its own.
        for number in (filled..=until).filter(|_| from < to) {
            prop_assert_eq!(below(&steps, filled, number, &reader), (snapshot(&reader), version(to)), "{}", number);
        }

        for predicate in predicates() {
            let expected = selected(&state(&steps, end), &predicate);
            // A client that continues from a version at this gateway: within the gap, where its objects are unknown,
            // upstream is asked.
            for number in filled..=end + 2 {
                let known = selected(&state(&steps, number.min(end)), &predicate);
                let at = number as u64 + 1;
                let mut client = Client { objects: known, version: at };
                let told = changes_after(&reader, version(at));
                prop_assert_eq!(told.is_none(), from < at && at < to, "from {}", at);
                // A deletion that is sent again has the same version.
                for change in told.iter().flatten() {
                    client.take(change, &predicate);
                }
                prop_assert!(told.is_none() || client.objects == expected, "from {}: {:?}", at, client);
            }
            // A client that is disconnected in the middle, and continues at a server that knows the whole history.
            let mut client = Client { objects: selected(&state(&steps, until), &predicate), version: from };
            for change in &changes {
                client.take(change, &predicate);
                let elsewhere = client.clone().go_on_elsewhere(&steps, end, &predicate);
                prop_assert_eq!(elsewhere, expected.clone(), "cut off behind {:?}", change.version);
            }
        }
    }
}

fn pod(name: u8, made: u64, version: u64) -> Written {
    Written { name, made, version, app: 0 }
}

fn world(written: &[Written]) -> World {
    written.iter().map(|written| (written.name, *written)).collect()
}

/// What comes of a store of version 10 that is to become another state.
fn bridged(old: &[Written], new: &[Written], to: u64) -> Result<Vec<(ChangeKind, String, u64)>, NotBridged> {
    let (mut writer, reader) = store(schema(), &objects(&world(old)), version(10), LIMITS);
    let before = snapshot(&reader);
    let bridged = writer.bridge(&objects(&world(new)), version(to));
    if bridged.is_err() {
        assert_eq!((snapshot(&reader), reader.progress(), reader.size().changes), (before, version(10), 0));
    }
    let told = |change: Arc<Change>| (change.kind, change.object.key.to_string(), change.version.value());
    Ok(bridged?.into_iter().map(told).collect())
}

#[test]
fn an_object_that_was_made_again_is_gone_and_comes() {
    let told = |kind, name: &str, version| (kind, name.to_owned(), version);
    let [kept, old, again] = [pod(1, 2, 15), pod(2, 3, 5), pod(2, 14, 14)];
    assert_eq!(
        bridged(&[pod(1, 2, 4), old, pod(3, 6, 6)], &[kept, again, pod(4, 12, 12)], 20),
        Ok(vec![
            told(ChangeKind::Gone, "p-2", 10),
            told(ChangeKind::Gone, "p-3", 10),
            told(ChangeKind::Added, "p-4", 12),
            told(ChangeKind::Added, "p-2", 14),
            told(ChangeKind::Modified, "p-1", 15),
        ])
    );
}

#[test]
fn states_of_different_histories_are_not_bridged() {
    let contradiction = |name: &str| Err(NotBridged::Contradiction(ObjectKey::new(None, name)));
    let held = [pod(1, 2, 8)];
    // The same version with other content; an older version; a new object from before; one from the future; one that
    // was deleted and created in no time.
    let other = Written { app: 1, ..held[0] };
    assert_eq!(bridged(&held, &[other], 20), contradiction("p-1"));
    assert_eq!(bridged(&held, &[pod(1, 2, 7)], 20), contradiction("p-1"));
    assert_eq!(bridged(&held, &[held[0], pod(2, 9, 9)], 20), contradiction("p-2"));
    assert_eq!(bridged(&held, &[held[0], pod(2, 21, 21)], 20), contradiction("p-2"));
    assert_eq!(bridged(&held, &[], 10), contradiction("p-1"));
    assert_eq!(bridged(&held, &held, 10), Ok(vec![]));
    let backwards = NotBridged::Backwards { from: version(10), to: version(9) };
    assert_eq!(bridged(&held, &held, 9), Err(backwards));
}

#[test]
fn a_difference_larger_than_history_is_not_bridged() {
    let limits = HistoryLimits { bytes: 120_000, ..LIMITS };
    let bridged = |count: u8| {
        let (mut writer, reader) = store(schema(), &Objects::default(), version(10), limits);
        let new: Vec<_> = (0..count).map(|name| pod(name, 11 + u64::from(name), 11 + u64::from(name))).collect();
        let bridged = writer.bridge(&objects(&world(&new)), version(1000)).map(|changes| changes.len());
        // A watcher that was up to date can read all of it.
        assert!(
            bridged.is_err() || changes_after(&reader, version(10)).is_some_and(|changes| Ok(changes.len()) == bridged)
        );
        bridged
    };
    assert_eq!([bridged(100), bridged(120)], [Ok(100), Ok(120)]);
    assert!(matches!(bridged(250), Err(NotBridged::TooLarge { changes: 250, bytes: 120_001.. })), "{:?}", bridged(250));
}

#[test]
fn a_proof_during_the_fill_moves_the_near_side() {
    let (mut writer, reader) = store(schema(), &objects(&world(&[pod(1, 2, 8)])), version(10), LIMITS);
    writer.advance_handle().to(version(15));
    let too_early = writer.bridge(&objects(&world(&[pod(1, 2, 13)])), version(20));
    assert_eq!(too_early.unwrap_err(), NotBridged::Contradiction(ObjectKey::new(None, "p-1")));
    let told = writer.bridge(&objects(&world(&[])), version(20)).unwrap();
    assert_eq!((told[0].version, reader.progress()), (version(15), version(20)));
}

#[test]
fn of_many_gaps_the_oldest_count_as_one() {
    let (mut writer, reader) = store(schema(), &Objects::default(), version(1), LIMITS);
    for round in 1..=100 {
        writer.bridge(&Objects::default(), version(round * 10)).unwrap();
        writer.advance(version(round * 10 + 5));
    }
    assert!(reader.after(version(1005)).is_ok() && reader.after(version(1000)).is_ok());
    assert!(reader.is_in_gap(version(999)) && !reader.is_in_gap(version(995)));
    // They are too old to be told apart.
    assert!(reader.is_in_gap(version(105)) && reader.after(version(1)).is_ok());
}
