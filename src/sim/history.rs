//! The changes of one collection: a bounded window from which watches read and exact lists are computed.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use tokio::{sync::watch, time::Instant};

use crate::{definition::Definition, stored::Stored};

/// The default for the number of changes kept of each collection.
pub(crate) const HISTORY_CHANGES_MAX: usize = 8_192;

/// One write to one object.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) before: Option<Arc<Stored>>,
    pub(crate) after: Option<Arc<Stored>>,
    pub(crate) at: Instant,
    departed: OnceLock<Arc<Stored>>,
}

impl Change {
    pub(crate) fn new(revision: u64, before: Option<Arc<Stored>>, after: Option<Arc<Stored>>) -> Self {
        Self { revision, before, after, at: Instant::now(), departed: OnceLock::new() }
    }

    /// The previous object with the version of this change, for DELETED events.
    pub(crate) fn departed(&self, definition: &Definition) -> Option<&Arc<Stored>> {
        let before = self.before.as_ref()?;
        Some(self.departed.get_or_init(|| before.at(definition, self.revision)))
    }
}

/// Why the changes after a revision are not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The oldest revision after which all changes are known.
    Expired { oldest: u64 },
    /// The collection is gone, or was replaced.
    Closed,
}

/// The window. Watches hold it as long as they are open, even if the collection is gone.
#[derive(Debug)]
pub(crate) struct History {
    window: Mutex<Window>,
    signal: watch::Sender<()>,
}

#[derive(Debug)]
struct Window {
    changes: VecDeque<Arc<Change>>,
    limit: usize,
    /// Every change after this revision is in `changes`.
    floor: u64,
    /// Watches must not start before this revision, even if older changes are known: simulates a cache that was started
    /// later.
    watch_floor: u64,
    closed: bool,
}

impl History {
    /// A history that begins after `revision`.
    pub(crate) fn new(revision: u64, limit: usize) -> Self {
        let window = Window { changes: VecDeque::new(), limit, floor: revision, watch_floor: revision, closed: false };
        Self { window: Mutex::new(window), signal: watch::Sender::new(()) }
    }

    pub(crate) fn push(&self, change: Change) {
        let mut window = self.window();
        window.changes.push_back(Arc::new(change));
        while window.changes.len() > window.limit {
            if let Some(dropped) = window.changes.pop_front() {
                window.floor = dropped.revision;
            }
        }
        drop(window);
        self.signal.send_replace(());
    }

    /// The changes after a revision, oldest first.
    pub(crate) fn after(&self, revision: u64) -> Result<Vec<Arc<Change>>, Lost> {
        let window = self.window();
        let oldest = window.floor.max(window.watch_floor);
        if revision < oldest {
            return Err(Lost::Expired { oldest });
        }
        let from = window.changes.partition_point(|change| change.revision <= revision);
        if window.closed && from == window.changes.len() {
            return Err(Lost::Closed);
        }
        Ok(window.changes.range(from..).cloned().collect())
    }

    /// The collection at an earlier revision: undoes the changes after `revision`, newest first. `None` if some of them
    /// are not known.
    pub(crate) fn undo(
        &self,
        objects: &BTreeMap<String, Arc<Stored>>,
        revision: u64,
    ) -> Option<BTreeMap<String, Arc<Stored>>> {
        let window = self.window();
        if revision < window.floor {
            return None;
        }
        let mut objects = objects.clone();
        for change in window.changes.iter().rev().take_while(|change| change.revision > revision) {
            match (&change.before, &change.after) {
                (Some(before), _) => drop(objects.insert(before.key.clone(), before.clone())),
                (None, Some(after)) => drop(objects.remove(&after.key)),
                (None, None) => {}
            }
        }
        Some(objects)
    }

    /// The last revision before the first change after `time`; `None` if nothing has changed since.
    pub(crate) fn revision_at(&self, time: Instant) -> Option<u64> {
        let window = self.window();
        let next = window.changes.iter().find(|change| change.at > time)?;
        Some((next.revision - 1).max(window.watch_floor))
    }

    /// The last revision that changed this collection.
    pub(crate) fn last(&self) -> u64 {
        let window = self.window();
        window.changes.back().map_or(window.floor, |change| change.revision)
    }

    /// Makes watches from revisions before `revision` expire, open ones included.
    pub(crate) fn forget(&self, revision: u64) {
        self.window().watch_floor = revision;
        self.signal.send_replace(());
    }

    /// Ends the history: watches receive the remaining changes, then end.
    pub(crate) fn close(&self) {
        self.window().closed = true;
        self.signal.send_replace(());
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.signal.subscribe()
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
