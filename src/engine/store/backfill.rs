//! What happened before the state with which history begins, as upstream tells it afterwards.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;

use super::{
    change::{Change, ChangeKind},
    object::Object,
    schema::Schema,
    snapshot::Snapshot,
};
use base::apimachinery::{ObjectKey, ResourceVersion};

/// Why a backfill cannot have led to the state with which history begins, or cannot be added to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBefore {
    #[error("upstream's events, its earlier state and the cache contradict each other in {0}")]
    Contradiction(ObjectKey),
    #[error("the earlier state and the cache have different objects that no event mentions")]
    Unmentioned,
    #[error("it has more changes than the cache's history may hold")]
    TooLarge,
    #[error("history was trimmed meanwhile")]
    Trimmed,
}

/// The events of an upstream watch from a version on, and the state at that version, as far as the events are about it.
///
/// Without that state it would not be known which selectors an object matched before its first event. Of the states in
/// between, nothing but the versions is kept: they are not read ([`super::Reader::exact`]).
#[derive(Debug)]
pub struct Backfill {
    from: ResourceVersion,
    /// The state with which history begins, and the number of the first change after it.
    until: Snapshot,
    first: u64,
    events: Vec<Event>,
    changed: HashSet<ObjectKey>,
    /// The objects at `from` that have events, and the number of the others.
    held: HashMap<ObjectKey, Arc<Object>>,
    unchanged: usize,
    /// How many more changes, and bytes of them, history may hold.
    room: (usize, usize),
    schema: Arc<Schema>,
}

#[derive(Debug)]
struct Event {
    kind: ChangeKind,
    object: Arc<Object>,
    line: Bytes,
}

impl Backfill {
    pub(super) fn new(
        from: ResourceVersion,
        until: Snapshot,
        first: u64,
        room: (usize, usize),
        schema: Arc<Schema>,
    ) -> Self {
        let (events, changed, held) = Default::default();
        Self { from, until, first, events, changed, held, unchanged: 0, room, schema }
    }

    /// The version after which it begins.
    pub fn from(&self) -> ResourceVersion {
        self.from
    }

    /// The version with which history begins: all events up to it are needed.
    pub fn until(&self) -> ResourceVersion {
        self.until.version()
    }

    /// The version of the last event.
    pub fn reached(&self) -> ResourceVersion {
        self.events.last().map_or(self.from, |event| event.object.version)
    }

    /// Adds an event of upstream's watch, in the order in which they come. False for one that history has itself: then
    /// there are no more before it.
    ///
    /// # Errors
    /// History has no room for it, or it is older than the one before it.
    pub fn push(&mut self, kind: ChangeKind, object: Object, line: Bytes) -> Result<bool, NotBefore> {
        if object.version > self.until() {
            return Ok(false);
        }
        // Changes of one transaction have the same version.
        if object.version < self.reached() {
            return Err(NotBefore::Contradiction(object.key));
        }
        let (changes, bytes) = self.room;
        let room = changes.checked_sub(1).zip(bytes.checked_sub(Change::bytes_of(&object)));
        self.room = room.ok_or(NotBefore::TooLarge)?;
        self.changed.insert(object.key.clone());
        self.events.push(Event { kind, object: Arc::new(object), line });
        Ok(true)
    }

    /// Takes an object of the state at [`Self::from`]. To be called with all of them once there are all events.
    ///
    /// # Errors
    /// It differs from the one that history begins with, and there is no event that says so.
    pub fn held(&mut self, object: &Arc<Object>) -> Result<(), NotBefore> {
        if self.changed.contains(&object.key) {
            self.held.insert(object.key.clone(), object.clone());
            return Ok(());
        }
        if self.version_at_end(&object.key) != Some(object.version) {
            return Err(NotBefore::Contradiction(object.key.clone()));
        }
        self.unchanged += 1;
        Ok(())
    }

    fn version_at_end(&self, key: &ObjectKey) -> Option<ResourceVersion> {
        self.until.get(key.as_str()).map(|object| object.version)
    }

    /// The changes, and the number of the one after them.
    pub(super) fn into_changes(mut self) -> Result<(Vec<Arc<Change>>, u64), NotBefore> {
        let mentioned = self.changed.iter().filter(|key| self.version_at_end(key).is_some()).count();
        if self.until.len() != self.unchanged + mentioned {
            return Err(NotBefore::Unmentioned);
        }
        let events = std::mem::take(&mut self.events);
        let Some(number) = self.first.checked_sub(events.len() as u64) else { return Err(NotBefore::TooLarge) };
        let changes: Result<Vec<_>, _> = (number..).zip(events).map(|(at, event)| self.change(at, event)).collect();
        let changes = changes?;
        let contradicts =
            |key: &&ObjectKey| self.held.get(*key).map(|object| object.version) != self.version_at_end(key);
        match self.changed.iter().find(contradicts) {
            Some(key) => Err(NotBefore::Contradiction(key.clone())),
            None => Ok((changes, self.first)),
        }
    }

    fn change(&mut self, number: u64, event: Event) -> Result<Arc<Change>, NotBefore> {
        let Event { kind, object, line } = event;
        let (version, key) = (object.version, object.key.clone());
        let (before, is_possible) = match kind {
            ChangeKind::Added => (self.held.insert(key.clone(), object.clone()), false),
            ChangeKind::Modified => (self.held.insert(key.clone(), object.clone()), true),
            ChangeKind::Deleted => (self.held.remove(&key), true),
            ChangeKind::Gone | ChangeKind::Reselected => return Err(NotBefore::Contradiction(key)),
        };
        if before.is_some() != is_possible || before.as_ref().is_some_and(|before| before.version >= version) {
            return Err(NotBefore::Contradiction(key));
        }
        let change = Change::new(number, (version, kind), object, self.schema.copies().clone());
        Ok(Arc::new(change.replacing(before).framed(self.schema.shape.encoding(), line)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::store::{Expired, HistoryLimits, Objects, Reader, Schema, Shape, Writer, store};

    fn version(value: u64) -> ResourceVersion {
        ResourceVersion::new(value).expect("not zero")
    }

    fn object(schema: &Schema, name: u8, at: u64) -> Object {
        let metadata = format!(r#"{{"name":"{name}","resourceVersion":"{at}"}}"#);
        let json = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata}}}"#);
        Object::from_event(json.into(), schema).expect("an object")
    }

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::new(Shape::typed("ConfigMap", "v1"), Vec::new()))
    }

    fn at(schema: &Arc<Schema>, objects: Vec<Arc<Object>>, from: u64) -> (Writer, Reader) {
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 1 << 20 };
        store(schema.clone(), &Objects::new(objects).expect("each once"), version(from), limits)
    }

    /// A store that saw all changes to five objects from version 10 on, and the changes as upstream tells them.
    fn changed(names: &[u8]) -> (Arc<Schema>, Reader, Vec<(ChangeKind, u8, u64)>) {
        let schema = schema();
        let (mut writer, reader) = at(&schema, (0..3).map(|name| Arc::new(object(&schema, name, 5))).collect(), 10);
        let mut events = Vec::new();
        for (name, at) in names.iter().zip(11..) {
            let is_there = reader.snapshot().get(&name.to_string()).is_some();
            let kind = match (is_there, at % 2) {
                (false, _) => ChangeKind::Added,
                (true, 0) => ChangeKind::Modified,
                (true, _) => ChangeKind::Deleted,
            };
            writer.apply(kind, object(&schema, *name, at), Bytes::from_static(b"line")).expect("in order");
            events.push((kind, *name, at));
        }
        (schema, reader, events)
    }

    fn told(reader: &Reader, after: u64) -> Vec<(ChangeKind, String, ResourceVersion, Option<ResourceVersion>)> {
        let first = reader.after(version(after)).expect("covered");
        let changes = reader.backlog(first, 1000).expect("covered").changes;
        let told = changes.iter().map(|change| {
            let before = change.before.as_ref().map(|before| before.version);
            (change.kind, change.object.key.as_str().to_owned(), change.version, before)
        });
        told.collect()
    }

    proptest! {
        /// A store that is filled later, at any of the versions, tells the same once its history begins earlier.
        #[test]
        fn a_backfill_is_what_a_store_would_have_seen(
            names in proptest::collection::vec(0_u8..5, 1..40),
            cut in 0_usize..40,
        ) {
            let (schema, early, events) = changed(&names);
            let filled = 10 + cut.min(names.len()) as u64;
            let state = early.exact(version(filled)).expect("covered");
            let objects = state.leaves().flat_map(|leaf| leaf.objects().to_vec()).collect();
            let (mut writer, late) = at(&schema, objects, filled);
            for (kind, name, at) in events.iter().filter(|(.., at)| *at > filled) {
                writer.apply(*kind, object(&schema, *name, *at), Bytes::from_static(b"line")).expect("in order");
            }
            prop_assert_eq!(late.backfill(version(filled)).map(|backfill| backfill.from()), None);
            if filled == 10 {
                return Ok(());
            }
            prop_assert_eq!(late.after(version(10)), Err(Expired::BeforeFill));
            let mut backfill = late.backfill(version(10)).expect("history was not trimmed");
            for (kind, name, at) in &events {
                let is_before = backfill.push(*kind, object(&schema, *name, *at), Bytes::from_static(b"line"));
                prop_assert_eq!(is_before, Ok(*at <= filled));
            }
            for name in 0..3 {
                backfill.held(&Arc::new(object(&schema, name, 5))).expect("as it was");
            }
            prop_assert_eq!(late.prepend(backfill), Ok(()));
            for after in 10..=early.progress().value() {
                prop_assert_eq!(told(&late, after), told(&early, after));
            }
            // When these versions were replaced is not known.
            prop_assert!(late.exact(version(filled - 1)).is_none() && late.exact(version(filled)).is_some());
        }
    }

    /// The state at 10 and the events up to 20, for a cache that was filled at 20 with these objects.
    fn prepended(held: &[(u8, u64)], events: &[(ChangeKind, u8, u64)], filled: &[(u8, u64)]) -> Result<(), NotBefore> {
        let schema = schema();
        let filled = filled.iter().map(|(name, at)| Arc::new(object(&schema, *name, *at))).collect();
        let (_writer, reader) = at(&schema, filled, 20);
        let mut backfill = reader.backfill(version(10)).expect("history was not trimmed");
        for (kind, name, at) in events {
            backfill.push(*kind, object(&schema, *name, *at), Bytes::new())?;
        }
        held.iter().try_for_each(|(name, at)| backfill.held(&Arc::new(object(&schema, *name, *at))))?;
        let prepended = reader.prepend(backfill);
        assert_eq!(reader.after(version(10)).is_ok(), prepended.is_ok());
        prepended
    }

    #[test]
    fn a_backfill_that_cannot_have_led_to_the_cache_is_refused() {
        use ChangeKind::{Added, Deleted, Modified};
        let contradiction = |name: &str| Err(NotBefore::Contradiction(ObjectKey::new(None, name)));
        for (held, events, filled, expected) in [
            (&[(1, 5)][..], &[(Modified, 1, 15)][..], &[(1, 15)][..], Ok(())),
            (&[(1, 5)], &[], &[(1, 5)], Ok(())),
            // An object that the state, the events or the cache lack.
            (&[], &[(Modified, 1, 15)], &[(1, 15)], contradiction("1")),
            (&[(1, 5)], &[], &[(1, 15)], contradiction("1")),
            (&[], &[], &[(1, 5)], Err(NotBefore::Unmentioned)),
            (&[(1, 5)], &[], &[], contradiction("1")),
            (&[(1, 5)], &[(Modified, 1, 15)], &[], contradiction("1")),
            (&[(1, 5)], &[(Deleted, 1, 15)], &[(1, 15)], contradiction("1")),
            // Events that do not follow from the state.
            (&[(1, 5)], &[(Added, 1, 15)], &[(1, 15)], contradiction("1")),
            (&[], &[(Deleted, 1, 15)], &[], contradiction("1")),
            (&[(1, 5)], &[(Modified, 1, 15), (Modified, 1, 12)], &[(1, 12)], contradiction("1")),
        ] {
            assert_eq!(prepended(held, events, filled), expected, "{held:?} {events:?} {filled:?}");
        }
    }

    #[test]
    fn a_backfill_has_no_more_than_history_may_hold() {
        let (schema, limits) = (schema(), HistoryLimits { age: Duration::from_secs(300), bytes: 2_000 });
        let (_writer, reader) = store(schema.clone(), &Objects::default(), version(20), limits);
        let mut backfill = reader.backfill(version(10)).expect("history was not trimmed");
        let push = |backfill: &mut Backfill, at| backfill.push(ChangeKind::Added, object(&schema, 0, at), Bytes::new());
        assert_eq!((push(&mut backfill, 11), push(&mut backfill, 12)), (Ok(true), Ok(true)));
        assert_eq!(push(&mut backfill, 13), Err(NotBefore::TooLarge));
    }
}
