//! The bounded window of changes that watches start from and exact reads are answered from.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{change::Change, snapshot::Snapshot};
use crate::apimachinery::ResourceVersion;

/// How much of the past a store keeps. The count that is never undercut is [`HistoryLimits::COUNT_MIN`].
#[derive(Clone, Copy, Debug)]
pub struct HistoryLimits {
    /// Changes older than this go.
    pub age: Duration,
    /// Bytes that changes may hold beside the newest state.
    pub bytes: usize,
}

impl HistoryLimits {
    /// As many changes as the API server's own ring holds at least (read-path 1.4, "History window").
    pub const COUNT_MIN: usize = 100;
    /// As many as it holds at most.
    pub const COUNT_MAX: usize = 102_400;
}

/// The version asked for lies before the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The oldest version that a watch can start from.
    pub oldest: ResourceVersion,
}

/// Changes in order of version, numbered without gaps, and the state before the first.
#[derive(Debug)]
pub(super) struct History {
    changes: VecDeque<(Instant, Arc<Change>)>,
    /// The number of the first change in `changes`.
    first: u64,
    /// The state before that change: what the oldest exact version is answered from.
    base: Snapshot,
    bytes: usize,
    limits: HistoryLimits,
}

impl History {
    pub(super) fn new(base: Snapshot, limits: HistoryLimits) -> Self {
        Self { changes: VecDeque::new(), first: 0, base, bytes: 0, limits }
    }

    pub(super) fn push(&mut self, change: Arc<Change>, now: Instant) {
        self.bytes += change.bytes();
        self.changes.push_back((now, change));
        // One goes for one that comes, as a rule.
        drop(self.trim(now));
    }

    /// Takes out what is beyond the limits, for the caller to drop where it keeps nobody waiting.
    pub(super) fn trim(&mut self, now: Instant) -> Vec<Arc<Change>> {
        let mut gone = Vec::new();
        while self.is_over(now) {
            if let Some((_, change)) = self.changes.pop_front() {
                self.bytes -= change.bytes();
                self.first += 1;
                self.base = change.after.clone();
                gone.push(change);
            }
        }
        gone
    }

    fn is_over(&self, now: Instant) -> bool {
        let Some((oldest, _)) = self.changes.front() else { return false };
        self.changes.len() > HistoryLimits::COUNT_MAX
            || self.changes.len() > HistoryLimits::COUNT_MIN
                && (self.bytes > self.limits.bytes || now.duration_since(*oldest) > self.limits.age)
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number that the next change will get.
    pub(super) fn next(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// The number of the first change after `version`.
    pub(super) fn after(&self, version: ResourceVersion) -> Result<u64, Expired> {
        if version < self.base.version() {
            return Err(Expired { oldest: self.base.version() });
        }
        Ok(self.first + self.index_after(version) as u64)
    }

    /// The changes from that number on, at most `limit`; `None` if some of them are gone.
    pub(super) fn from(&self, number: u64, limit: usize) -> Option<impl Iterator<Item = &Arc<Change>>> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?.min(self.changes.len());
        let end = self.changes.len().min(at + limit);
        Some(self.changes.range(at..end).map(|(_, change)| change))
    }

    /// The state at `version`, if it lies in the window; `known` is the version up to which nothing is missing.
    pub(super) fn exact(&self, version: ResourceVersion, known: ResourceVersion) -> Option<Snapshot> {
        if version < self.base.version() || version > known {
            return None;
        }
        let state = match self.index_after(version).checked_sub(1) {
            Some(at) => &self.changes[at].1.after,
            None => &self.base,
        };
        Some(state.clone().at(version))
    }

    fn index_after(&self, version: ResourceVersion) -> usize {
        self.changes.partition_point(|(_, change)| change.version <= version)
    }
}
