//! The bounded window of past changes: watches start in it and exact reads are answered from it.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::Instant;

use super::{block::Block, change::Change, snapshot::Snapshot};
use base::apimachinery::ResourceVersion;

/// How much of the past a store keeps. [`HistoryLimits::COUNT_MIN`] changes are always kept.
#[derive(Clone, Copy, Debug)]
pub struct HistoryLimits {
    /// The maximum age of a change.
    pub age: Duration,
    /// The maximum number of bytes that changes may hold besides the newest state.
    pub bytes: usize,
}

impl HistoryLimits {
    /// The minimum size of the API server's own ring of changes (read-path 1.4, "History window").
    pub const COUNT_MIN: usize = 100;
    /// The maximum size of that ring.
    pub const COUNT_MAX: usize = 102_400;
}

/// The versions between two known states, about which nothing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub from: ResourceVersion,
    pub to: ResourceVersion,
}

impl Gap {
    /// Whether the state at `version` is unknown.
    pub fn contains(&self, version: ResourceVersion) -> bool {
        self.from < version && version < self.to
    }
}

/// Why the changes after a version are not known. Upstream may still know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// The version is older than the fill with which history begins, or lies in a gap that was bridged.
    BeforeFill,
    /// History was trimmed, because of its limits, of changes after the version.
    Trimmed,
}

/// Changes in order of version, numbered without gaps, and the state before the first one.
///
/// What has been there for a while is kept compressed ([`Self::settled`]), since only watches that resume read it.
#[derive(Debug)]
pub(super) struct History {
    changes: VecDeque<Entry>,
    /// The number of the first change in `changes`.
    first: u64,
    /// The number of the first change that was not there at the last call of [`Self::settled`].
    settled: u64,
    /// The blocks of settled changes.
    blocks: Vec<Weak<Block>>,
    /// The state before the first change. Of a version before [`Self::began`], only the version is known.
    base: Snapshot,
    /// The version with which history began, before [`Self::prepend`]: the oldest one that can be read exactly.
    began: ResourceVersion,
    is_trimmed: bool,
    bytes: usize,
    limits: HistoryLimits,
    /// Samples of when a version was reached, oldest first. Every version below a sample was no longer the newest one
    /// at that time.
    reached: VecDeque<(Instant, ResourceVersion)>,
    /// The gaps within the window, oldest first.
    gaps: VecDeque<Gap>,
}

#[derive(Debug)]
struct Entry {
    at: Instant,
    change: Arc<Change>,
    /// What it takes besides the newest state.
    bytes: usize,
    /// The state after it, of every [`STATE_EVERY`]th change. The others follow from these.
    after: Option<Snapshot>,
}

/// The number of the first change after a fill. Earlier changes, which are added later, have lower numbers.
pub const FIRST_CHANGE: u64 = 1 << 32;

/// The maximum number of separate gaps. Beyond it, the two oldest gaps count as one: fewer versions are served, but
/// none wrongly.
const GAPS_MAX: usize = 64;

/// The precision of the age of a version: this fraction of the maximum age.
const AGE_PARTS: u32 = 64;

/// Of this many changes one has the state after it, which takes a copy of a leaf and of the nodes above it.
const STATE_EVERY: u64 = 16;

/// The number of changes over which the pace is averaged.
const PACE_CHANGES: u32 = 8;

impl History {
    pub(super) fn new(base: Snapshot, limits: HistoryLimits, now: Instant) -> Self {
        let reached = VecDeque::from([(now, base.version())]);
        let (changes, blocks, gaps) = Default::default();
        let (first, settled, began) = (FIRST_CHANGE, FIRST_CHANGE, base.version());
        Self { changes, first, settled, blocks, base, began, is_trimmed: false, bytes: 0, limits, reached, gaps }
    }

    /// The state before the first change, and the number of that change; `None` if earlier changes were removed.
    pub(super) fn beginning(&self) -> Option<(&Snapshot, u64)> {
        (!self.is_trimmed).then_some((&self.base, self.first))
    }

    /// How many more changes, and bytes of them, history may hold.
    pub(super) fn room(&self) -> (usize, usize) {
        let changes = HistoryLimits::COUNT_MAX.saturating_sub(self.changes.len());
        (changes, self.limits.bytes.saturating_sub(self.bytes))
    }

    /// Adds the changes after the version `from` that led to the state before the first change. When they happened is
    /// not known, so they count as old as the first sample.
    pub(super) fn prepend(&mut self, from: ResourceVersion, changes: Vec<Arc<Change>>, now: Instant) {
        let at = self.reached.front().map_or(now, |(at, _)| *at);
        self.first -= changes.len() as u64;
        self.base = self.base.clone().at(from);
        for change in changes.into_iter().rev() {
            let bytes = change.bytes();
            self.bytes += bytes;
            self.changes.push_front(Entry { at, change, bytes, after: None });
        }
    }

    /// The numbers of the changes that were there at the last call already.
    pub(super) fn settled(&mut self) -> Range<u64> {
        let next = self.next();
        self.first..std::mem::replace(&mut self.settled, next)
    }

    /// Counts the changes with those numbers again, whose objects were compressed.
    pub(super) fn compressed(&mut self, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
            // It may have been trimmed meanwhile.
            let Some(entry) = at.and_then(|at| self.changes.get_mut(at)) else { continue };
            let before = std::mem::replace(&mut entry.bytes, entry.change.bytes());
            self.bytes = self.bytes - before + entry.bytes;
        }
    }

    /// Notes a block of settled changes.
    pub(super) fn add_block(&mut self, block: &Arc<Block>) {
        self.blocks.retain(|block| block.strong_count() > 0);
        self.blocks.push(Arc::downgrade(block));
    }

    /// The blocks of settled changes.
    pub(super) fn blocks(&self) -> Vec<Arc<Block>> {
        self.blocks.iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn limits(&self) -> HistoryLimits {
        self.limits
    }

    /// Records that the versions within `gap` are unknown, except for what the following changes say.
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

    /// Records that the store is now complete up to `version`.
    pub(super) fn reach(&mut self, version: ResourceVersion, now: Instant) {
        let known = self.reached.len();
        let is_close =
            known >= 2 && self.reached[known - 1].0 - self.reached[known - 2].0 < self.limits.age / AGE_PARTS;
        if is_close {
            self.reached.pop_back();
        }
        self.reached.push_back((now, version));
        // Of the samples that are too old, only the newest is needed.
        while self.reached.get(1).is_some_and(|(at, _)| self.is_too_old(*at, now)) {
            self.reached.pop_front();
        }
    }

    fn is_too_old(&self, at: Instant, now: Instant) -> bool {
        now.duration_since(at) > self.limits.age
    }

    /// Adds a change, of which `after` is the state after it, and removes those beyond the limits, as [`Self::trim`]
    /// does.
    #[must_use]
    pub(super) fn push(&mut self, change: Arc<Change>, after: &Snapshot, now: Instant) -> Vec<Arc<Change>> {
        self.reach(change.known_at(), now);
        let (bytes, is_kept) = (change.bytes(), change.number.is_multiple_of(STATE_EVERY));
        self.bytes += bytes;
        self.changes.push_back(Entry { at: now, change, bytes, after: is_kept.then(|| after.clone()) });
        // Usually removes one change for each one that was added. But those of a past that was put before them count
        // as equally old, and may be a hundred thousand.
        self.trim(now)
    }

    /// Removes the changes beyond the limits and returns them, so that the caller can drop them outside of locks.
    #[must_use]
    pub(super) fn trim(&mut self, now: Instant) -> Vec<Arc<Change>> {
        self.trim_while(|history| history.is_over(now))
    }

    /// The same, of all changes but [`HistoryLimits::COUNT_MIN`].
    #[must_use]
    pub(super) fn shorten(&mut self) -> Vec<Arc<Change>> {
        self.trim_while(|history| history.changes.len() > HistoryLimits::COUNT_MIN)
    }

    fn trim_while(&mut self, is_over: impl Fn(&Self) -> bool) -> Vec<Arc<Change>> {
        let mut gone = VecDeque::new();
        while is_over(self)
            && let Some(entry) = self.changes.pop_front()
        {
            self.bytes -= entry.bytes;
            self.first += 1;
            gone.push_back(entry);
        }
        self.is_trimmed |= !gone.is_empty();
        self.base = state_after(&gone, self.base.clone());
        while self.gaps.front().is_some_and(|gap| gap.to <= self.base.version()) {
            self.gaps.pop_front();
        }
        gone.into_iter().map(|entry| entry.change).collect()
    }

    fn is_over(&self, now: Instant) -> bool {
        let Some(oldest) = self.changes.front() else { return false };
        self.changes.len() > HistoryLimits::COUNT_MAX
            || self.changes.len() > HistoryLimits::COUNT_MIN
                && (self.bytes > self.limits.bytes || self.is_too_old(oldest.at, now))
    }

    /// The average time between the last few changes, including the time since the last one; `None` if there were fewer
    /// changes since the fill.
    pub(super) fn pace(&self, now: Instant) -> Option<Duration> {
        let entry = self.changes.get(self.changes.len().checked_sub(PACE_CHANGES as usize)?)?;
        (entry.change.number >= FIRST_CHANGE).then(|| now.duration_since(entry.at) / PACE_CHANGES)
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A lower bound for how long ago the oldest version that a watch can start after ceased to be the newest.
    pub(super) fn span(&self, now: Instant) -> Duration {
        let oldest = self.changes.front().map(|entry| entry.at);
        let filled = self.reached.front().map(|(at, _)| *at);
        oldest.or(filled).map_or(Duration::ZERO, |at| now.duration_since(at))
    }

    /// The time since the change with that number was added; `None` if it does not exist yet or was removed.
    pub(super) fn age(&self, number: u64, now: Instant) -> Option<Duration> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.changes.get(at).map(|entry| now.duration_since(entry.at))
    }

    /// The number of the next change.
    pub(super) fn next(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// The number of the first change after `version`.
    pub(super) fn after(&self, version: ResourceVersion) -> Result<u64, Expired> {
        if version < self.base.version() {
            return Err(if self.is_trimmed { Expired::Trimmed } else { Expired::BeforeFill });
        }
        if self.gap_of(version).is_some() {
            return Err(Expired::BeforeFill);
        }
        Ok(self.first + self.index_after(version) as u64)
    }

    /// Whether no change from that number on was removed.
    pub(super) fn reaches_back_to(&self, number: u64) -> bool {
        number >= self.first
    }

    /// The changes from that number on, at most `limit`; `None` if some of them were removed.
    pub(super) fn from(&self, number: u64, limit: usize) -> Option<impl Iterator<Item = &Arc<Change>>> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?.min(self.changes.len());
        let end = self.changes.len().min(at + limit);
        Some(self.changes.range(at..end).map(|entry| &entry.change))
    }

    /// The state at `version`, if it lies in the window; `known` is the version up to which the store is complete. A
    /// version that was replaced by a later one longer ago than the maximum age is not served even if it is still
    /// known: the API server's storage compacts by time alone, and clients rely on expiring tokens. For the same reason
    /// no version from before the fill is served: when it was replaced is not known.
    pub(super) fn exact(&self, version: ResourceVersion, known: ResourceVersion, now: Instant) -> Option<Snapshot> {
        if version < self.base.version().max(self.began) || version > known || self.gap_of(version).is_some() {
            return None;
        }
        let newest_too_old = self.reached.iter().rev().find(|(at, _)| self.is_too_old(*at, now));
        if newest_too_old.is_some_and(|(_, reached)| version < *reached) {
            return None;
        }
        let changes = self.changes.range(..self.index_after(version));
        Some(state_after(changes, self.base.clone()).at(version))
    }

    /// The end of the last gap, if that is after `version`.
    pub(super) fn gap_end_behind(&self, version: ResourceVersion) -> Option<ResourceVersion> {
        self.gaps.back().map(|gap| gap.to).filter(|to| *to > version)
    }

    /// The gap that contains `version`, whose state is therefore unknown.
    pub(super) fn gap_of(&self, version: ResourceVersion) -> Option<Gap> {
        self.gaps.iter().copied().find(|gap| gap.contains(version))
    }

    fn index_after(&self, version: ResourceVersion) -> usize {
        self.changes.partition_point(|entry| entry.change.known_at() <= version)
    }
}

/// The state after these changes, of which `base` is the one before them.
fn state_after<'a, I>(changes: I, base: Snapshot) -> Snapshot
where
    I: IntoIterator<Item = &'a Entry, IntoIter: ExactSizeIterator + DoubleEndedIterator + Clone>,
{
    let changes = changes.into_iter();
    // From the last state that is kept.
    let from = changes.clone().rposition(|entry| entry.after.is_some()).unwrap_or(0);
    changes.skip(from).fold(base, |state, entry| entry.after_state(&state))
}

impl Entry {
    /// The state after the change; `before` is the one before it. Of a gap, the changes lead to the state together.
    fn after_state(&self, before: &Snapshot) -> Snapshot {
        if let Some(after) = &self.after {
            return after.clone();
        }
        let mut after = before.clone();
        // The first state is the one after all changes that were put before it.
        if self.change.number >= FIRST_CHANGE {
            self.change.apply_to(&mut after);
        }
        after.at(self.change.known_at())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        Object, Objects, Schema, Shape, StoreBudget,
        change::{ChangeKind, FrameCopies},
    };

    /// Readers would wait for the memory to be freed.
    #[test]
    fn a_whole_past_that_is_too_old_is_given_to_the_caller_to_drop() {
        let version = |number| ResourceVersion::new(number).expect("not zero");
        let schema = Schema::new(Shape::Custom, Vec::new());
        let json = r#"{"kind":"W","metadata":{"name":"a","resourceVersion":"1"}}"#;
        let object = Arc::new(Object::from_event(json.into(), &schema).expect("an object"));
        let (filled, age) = (Instant::now(), Duration::from_secs(300));
        let base = Snapshot::from_objects(version(1000), &Objects::default(), StoreBudget::default());
        let change = |number: u64, at| {
            Arc::new(Change::new(number, (version(at), ChangeKind::Added), object.clone(), FrameCopies::default()))
        };
        let mut history = History::new(base.clone(), HistoryLimits { age, bytes: 1 << 30 }, filled);
        let past: Vec<_> = (1..1000).map(|at| change(FIRST_CHANGE - 1000 + at, 1 + at)).collect();
        let held = past.clone();
        history.prepend(version(1), past, filled);
        let gone = history.push(change(FIRST_CHANGE, 1001), &base, filled + age + Duration::from_secs(1));
        assert_eq!((gone.len(), history.len()), (1000 - HistoryLimits::COUNT_MIN, HistoryLimits::COUNT_MIN));
        assert!(gone.iter().zip(&held).all(|(gone, held)| Arc::ptr_eq(gone, held)));
    }

    #[test]
    fn times_of_many_versions_are_sampled_precisely_enough() {
        let version = |number| ResourceVersion::new(number).expect("not zero");
        let limits = HistoryLimits { age: Duration::from_secs(320), bytes: 1 << 20 };
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut history = History::new(
            Snapshot::from_objects(version(1), &Objects::default(), StoreBudget::default()),
            limits,
            start,
        );
        for second in 2..=2000 {
            history.reach(version(second), at(second));
        }
        let is_known = |number| history.exact(version(number), version(2000), at(2000)).is_some();
        assert!(is_known(2000) && is_known(1690));
        // Accurate to a sixty-fourth of the age, plus two seconds.
        assert!(!is_known(1670));
        assert!(history.reached.len() < 70, "{}", history.reached.len());
    }
}
