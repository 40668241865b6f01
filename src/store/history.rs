//! The bounded window of changes that watches start from and exact reads are answered from.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{bridge::Gap, change::Change, snapshot::Snapshot};
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

/// The version asked for lies before the window, or within a gap in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The oldest version behind it that a watch can start from.
    pub oldest: ResourceVersion,
    /// The window has lost nothing: it begins where the store was filled, or goes on where it was filled again, and upstream
    /// may remember more.
    pub is_whole: bool,
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
    /// Versions that had been reached at some times, oldest first: what lies below one was no longer the newest by then.
    reached: VecDeque<(Instant, ResourceVersion)>,
    /// What was bridged within the window, oldest first.
    gaps: VecDeque<Gap>,
}

/// How many gaps are told apart. Of more than that the oldest count as one: less is answered, and nothing wrong.
const GAPS_MAX: usize = 64;

/// How finely the age of a version is known: as a part of the age at which it is too old.
const AGE_PARTS: u32 = 64;

/// Changes that say how often there is one.
const PACE_CHANGES: u32 = 8;

impl History {
    pub(super) fn new(base: Snapshot, limits: HistoryLimits, now: Instant) -> Self {
        let reached = VecDeque::from([(now, base.version())]);
        let (changes, gaps) = Default::default();
        Self { changes, first: 0, base, bytes: 0, limits, reached, gaps }
    }

    pub(super) fn limits(&self) -> HistoryLimits {
        self.limits
    }

    /// Nothing is known of the versions between two states but what the changes say that follow.
    pub(super) fn bridge(&mut self, gap: Gap, now: Instant) {
        self.reach(gap.to, now);
        self.gaps.push_back(gap);
        if self.gaps.len() > GAPS_MAX
            && let Some(Gap { from, .. }) = self.gaps.pop_front()
            && let Some(second) = self.gaps.front_mut()
        {
            second.from = from;
        }
    }

    /// The store is complete up to `version` now.
    pub(super) fn reach(&mut self, version: ResourceVersion, now: Instant) {
        let known = self.reached.len();
        let is_close =
            known >= 2 && self.reached[known - 1].0 - self.reached[known - 2].0 < self.limits.age / AGE_PARTS;
        if is_close {
            self.reached.pop_back();
        }
        self.reached.push_back((now, version));
        // Of those that are too old the newest says it all.
        while self.reached.get(1).is_some_and(|(at, _)| self.is_too_old(*at, now)) {
            self.reached.pop_front();
        }
    }

    fn is_too_old(&self, at: Instant, now: Instant) -> bool {
        now.duration_since(at) > self.limits.age
    }

    pub(super) fn push(&mut self, change: Arc<Change>, now: Instant) {
        self.reach(change.known_at(), now);
        self.bytes += change.bytes();
        self.changes.push_back((now, change));
        // One goes for one that comes, as a rule.
        drop(self.trim(now));
    }

    /// Takes out what is beyond the limits, for the caller to drop outside of locks.
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
        while self.gaps.front().is_some_and(|gap| gap.to <= self.base.version()) {
            self.gaps.pop_front();
        }
        gone
    }

    fn is_over(&self, now: Instant) -> bool {
        let Some((oldest, _)) = self.changes.front() else { return false };
        self.changes.len() > HistoryLimits::COUNT_MAX
            || self.changes.len() > HistoryLimits::COUNT_MIN
                && (self.bytes > self.limits.bytes || self.is_too_old(*oldest, now))
    }

    /// The time from one change to the next, on average over the last few and up to now.
    pub(super) fn pace(&self, now: Instant) -> Option<Duration> {
        let (at, _) = self.changes.get(self.changes.len().checked_sub(PACE_CHANGES as usize)?)?;
        Some(now.duration_since(*at) / PACE_CHANGES)
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// For how long at least the oldest version that a watch can start behind has not been the newest.
    pub(super) fn span(&self, now: Instant) -> Duration {
        let oldest = self.changes.front().map(|(at, _)| *at);
        let filled = self.reached.front().map(|(at, _)| *at);
        oldest.or(filled).map_or(Duration::ZERO, |at| now.duration_since(at))
    }

    /// For how long the change with that number has been there; `None` if it has not come yet, or is gone.
    pub(super) fn age(&self, number: u64, now: Instant) -> Option<Duration> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.changes.get(at).map(|(at, _)| now.duration_since(*at))
    }

    /// The number that the next change will get.
    pub(super) fn next(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// The number of the first change after `version`.
    pub(super) fn after(&self, version: ResourceVersion) -> Result<u64, Expired> {
        if version < self.base.version() {
            return Err(Expired { oldest: self.base.version(), is_whole: self.first == 0 });
        }
        if let Some(gap) = self.gap_of(version) {
            return Err(Expired { oldest: gap.to, is_whole: true });
        }
        Ok(self.first + self.index_after(version) as u64)
    }

    /// The changes from that number on, at most `limit`; `None` if some of them are gone.
    pub(super) fn from(&self, number: u64, limit: usize) -> Option<impl Iterator<Item = &Arc<Change>>> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?.min(self.changes.len());
        let end = self.changes.len().min(at + limit);
        Some(self.changes.range(at..end).map(|(_, change)| change))
    }

    /// The state at `version`, if it lies in the window; `known` is the version up to which nothing is missing. What was
    /// followed by another version longer ago than changes are kept is not told, even if it is known still: an API
    /// server's storage compacts by time alone, and clients rely on tokens that expire.
    pub(super) fn exact(&self, version: ResourceVersion, known: ResourceVersion, now: Instant) -> Option<Snapshot> {
        if version < self.base.version() || version > known || self.gap_of(version).is_some() {
            return None;
        }
        let newest_too_old = self.reached.iter().rev().find(|(at, _)| self.is_too_old(*at, now));
        if newest_too_old.is_some_and(|(_, reached)| version < *reached) {
            return None;
        }
        let state = match self.index_after(version).checked_sub(1) {
            Some(at) => &self.changes[at].1.after,
            None => &self.base,
        };
        Some(state.clone().at(version))
    }

    /// Whether a gap ends behind `version`.
    pub(super) fn has_gap_behind(&self, version: ResourceVersion) -> bool {
        self.gaps.back().is_some_and(|gap| gap.to > version)
    }

    /// The gap in which that version lies, of which nothing is known.
    pub(super) fn gap_of(&self, version: ResourceVersion) -> Option<Gap> {
        self.gaps.iter().copied().find(|gap| gap.contains(version))
    }

    fn index_after(&self, version: ResourceVersion) -> usize {
        self.changes.partition_point(|(_, change)| change.known_at() <= version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_many_versions_take_little_room_and_stay_right() {
        let version = |number| ResourceVersion::new(number).expect("not zero");
        let limits = HistoryLimits { age: Duration::from_secs(320), bytes: 1 << 20 };
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut history = History::new(Snapshot::from_objects(version(1), Vec::new()), limits, start);
        for second in 2..=2000 {
            history.reach(version(second), at(second));
        }
        let is_known = |number| history.exact(version(number), version(2000), at(2000)).is_some();
        assert!(is_known(2000) && is_known(1690));
        // To a sixty-fourth of the age, and two.
        assert!(!is_known(1670));
        assert!(history.reached.len() < 70, "{}", history.reached.len());
    }
}
