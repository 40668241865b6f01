//! The store itself: one writer keeps it equal to upstream, and any number of readers use it.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak},
    time::Duration,
};

use bytes::Bytes;
use tokio::{sync::watch, time::Instant};

use super::{
    backfill::{Backfill, NotBefore},
    block::Block,
    bridge::{Difference, NotBridged},
    change::{Change, ChangeKind, FrameCopies},
    history::{Expired, Gap, History, HistoryLimits},
    leaf::Leaf,
    object::Object,
    objects::Objects,
    schema::Schema,
    size::{Measured, OBJECT_BYTES, StoreSize},
    snapshot::Snapshot,
};
use base::apimachinery::{ObjectKey, ResourceVersion};

/// Creates a store that holds `objects` and is complete up to `version`.
pub fn store(
    schema: Arc<Schema>,
    objects: &Objects,
    version: ResourceVersion,
    limits: HistoryLimits,
) -> (Writer, Reader) {
    let newest = Snapshot::from_objects(version, objects, schema.budget().clone());
    schema.budget().charge(objects.kept_bytes() + newest.len() * OBJECT_BYTES);
    let state = State { history: History::new(newest.clone(), limits, Instant::now()), newest, last_change: version };
    let shared = Arc::new(Shared { schema, state: RwLock::new(state), progress: watch::Sender::new(version) });
    (Writer(shared.clone()), Reader(shared))
}

/// The only handle that changes the objects of a store.
pub struct Writer(Arc<Shared>);

/// Records that the store is complete up to some version, as a freshness proof found out.
#[derive(Clone)]
pub struct Advance(Arc<Shared>);

/// Reads a store. Cheap to clone; the values that it returns are immutable.
#[derive(Clone)]
pub struct Reader(Arc<Shared>);

struct Shared {
    schema: Arc<Schema>,
    state: RwLock<State>,
    /// The version up to which the store is known to be complete, for tasks that wait for it.
    progress: watch::Sender<ResourceVersion>,
}

struct State {
    /// Invariant: its version is the store's progress.
    newest: Snapshot,
    /// The version of the last known change. Nothing happened between it and the progress.
    last_change: ResourceVersion,
    history: History,
}

/// A version from upstream that is not higher than the store's: the event cannot be applied.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("version {given} is not newer than {progress}")]
pub struct OutOfOrder {
    pub given: ResourceVersion,
    pub progress: ResourceVersion,
}

/// The changes that a watcher has not seen yet.
#[derive(Debug)]
pub struct Backlog {
    pub changes: Vec<Arc<Change>>,
    /// The number to pass to the next [`Reader::backlog`].
    pub next: u64,
    /// The store's version once `changes` are delivered; `None` if there are more changes.
    pub caught_up: Option<ResourceVersion>,
}

/// An object that is not part of the newest state.
#[derive(Clone, Debug)]
pub struct Past {
    /// The change that has it as its object, or as the one before.
    change: Arc<Change>,
    pub object: Arc<Object>,
}

impl Past {
    /// Whether nothing but this has the object.
    pub fn is_gone(&self) -> bool {
        Arc::strong_count(&self.change) == 1
    }
}

impl Writer {
    /// Applies one event of upstream's watch. `line` is the event as upstream framed it; watchers for which the change
    /// has the same type as it had for the gateway get these very bytes.
    pub fn apply(&mut self, kind: ChangeKind, object: Object, line: Bytes) -> Result<Arc<Change>, OutOfOrder> {
        let version = object.version;
        let object = Arc::new(object);
        let now = Instant::now();
        let mut state = self.0.write();
        // Objects that expire together are deleted at one version (etcd revokes a lease as a whole).
        let is_one_more = kind == ChangeKind::Deleted
            && version == state.newest.version()
            && state.newest.get(object.key.as_str()).is_some();
        if !is_one_more {
            state.follows(version)?;
        }
        let copies = self.0.schema.copies().clone();
        let change = Change::new(state.history.next(), (version, kind), object, copies);
        let before = change.apply_to(&mut state.newest);
        if let Some(before) = &before {
            before.retire();
        }
        let after = state.newest.clone().at(version);
        state.newest = after.clone();
        let change = Arc::new(change.replacing(before).framed(self.0.schema.shape.encoding(), line));
        let gone = state.history.push(change.clone(), &after, now);
        state.last_change = version;
        drop(state);
        self.0.schema.budget().charge(change.bytes());
        // After the lock, as in `Reader::trim_history`.
        drop(gone);
        self.0.progress.send_replace(version);
        Ok(change)
    }

    /// Replaces the state by a later one when upstream has forgotten the changes in between. The difference is
    /// published at once, deletions first. On an error nothing is changed.
    pub fn bridge(&mut self, objects: &Objects, version: ResourceVersion) -> Result<Vec<Arc<Change>>, NotBridged> {
        // Only the writer changes objects, so the difference, whose cost grows with their number, is computed while
        // readers continue.
        let (before, limits) = self.newest_and_limits();
        let difference = Difference::between(&before, objects.as_slice(), version)?;
        self.publish(&before, difference, version, limits)
    }

    /// The same for a state of which only the objects are given that may differ; `None`: gone.
    pub fn bridge_changed(
        &mut self,
        changed: &BTreeMap<ObjectKey, Option<Arc<Object>>>,
        version: ResourceVersion,
    ) -> Result<Vec<Arc<Change>>, NotBridged> {
        let (before, limits) = self.newest_and_limits();
        let difference = Difference::of_changed(&before, changed, version)?;
        self.publish(&before, difference, version, limits)
    }

    fn newest_and_limits(&self) -> (Snapshot, HistoryLimits) {
        let state = self.0.read();
        (state.newest.clone(), state.history.limits())
    }

    fn publish(
        &self,
        before: &Snapshot,
        difference: Difference,
        version: ResourceVersion,
        limits: HistoryLimits,
    ) -> Result<Vec<Arc<Change>>, NotBridged> {
        difference.within(limits)?;
        let after = difference.apply(before, version);
        let mut state = self.0.write();
        // A freshness proof may have advanced the store in the meantime: nothing else had happened up to that version.
        let gap = Gap { from: state.newest.version(), to: version };
        difference.follows(gap)?;
        difference.replaced().for_each(|object| object.retire());
        let (changes, gone) = state.bridge(difference, after, gap, self.0.schema.copies());
        drop(state);
        self.0.schema.budget().charge(changes.iter().map(|change| change.bytes()).sum());
        drop(gone);
        self.0.progress.send_replace(version);
        Ok(changes)
    }

    /// Records that nothing happened up to `version` besides the applied changes (a bookmark, a proof). An older
    /// version is ignored: a bookmark may lag behind a proof.
    pub fn advance(&mut self, version: ResourceVersion) {
        self.0.advance(version);
    }

    /// A handle for freshness proofs.
    pub fn advance_handle(&self) -> Advance {
        Advance(self.0.clone())
    }

    pub fn progress(&self) -> ResourceVersion {
        self.0.read().newest.version()
    }

    /// The schema with which objects are to be parsed before they are applied.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.0.schema
    }
}

impl Advance {
    /// Records that nothing happened up to `version` besides what the store holds. The caller must have verified that.
    pub fn to(&self, version: ResourceVersion) {
        self.0.advance(version);
    }
}

impl Reader {
    pub fn schema(&self) -> &Arc<Schema> {
        &self.0.schema
    }

    /// The newest state.
    pub fn snapshot(&self) -> Snapshot {
        self.0.read().newest.clone()
    }

    pub fn progress(&self) -> ResourceVersion {
        self.0.read().newest.version()
    }

    /// The version of the last change and the progress: nothing happened between the two.
    pub fn last_change_and_progress(&self) -> (ResourceVersion, ResourceVersion) {
        let state = self.0.read();
        (state.last_change, state.newest.version())
    }

    /// The newest state and the number of the next change.
    pub fn snapshot_and_next(&self) -> (Snapshot, u64) {
        let state = self.0.read();
        (state.newest.clone(), state.history.next())
    }

    /// The state at exactly that version, if history covers it.
    pub fn exact(&self, version: ResourceVersion) -> Option<Snapshot> {
        let state = self.0.read();
        state.history.exact(version, state.newest.version(), Instant::now())
    }

    /// The number of the first change after `version`. For a version in the future this is the next change.
    pub fn after(&self, version: ResourceVersion) -> Result<u64, Expired> {
        self.0.read().history.after(version)
    }

    /// The end of the last bridged gap, if that is after `version`.
    pub fn gap_end_behind(&self, version: ResourceVersion) -> Option<ResourceVersion> {
        self.0.read().history.gap_end_behind(version)
    }

    /// Whether `version` lies in a bridged gap: a client at that version may know objects that were created and deleted
    /// within the gap.
    pub fn is_in_gap(&self, version: ResourceVersion) -> bool {
        self.0.read().history.gap_of(version).is_some()
    }

    /// Whether all changes from that number on are known: otherwise [`Self::backlog`] is `None`.
    pub fn reaches_back_to(&self, number: u64) -> bool {
        self.0.read().history.reaches_back_to(number)
    }

    /// At most `limit` changes from that number on; `None` if the window has moved past it.
    pub fn backlog(&self, next: u64, limit: usize) -> Option<Backlog> {
        let state = self.0.read();
        let changes: Vec<_> = state.history.from(next, limit)?.cloned().collect();
        let next = next + changes.len() as u64;
        let caught_up = (next >= state.history.next()).then(|| state.newest.version());
        Some(Backlog { changes, next, caught_up })
    }

    /// The version after which history knows all changes; `None` if it was trimmed.
    pub fn begins_after(&self) -> Option<ResourceVersion> {
        self.0.read().history.beginning().map(|(base, _)| base.version())
    }

    /// To be filled with what happened between `from` and the first change of history, then passed to
    /// [`Self::prepend`]. `None` if history was trimmed, or begins before `from`.
    pub fn backfill(&self, from: ResourceVersion) -> Option<Backfill> {
        let state = self.0.read();
        let (base, first) = state.history.beginning()?;
        (from < base.version())
            .then(|| Backfill::new(from, base.clone(), first, state.history.room(), self.0.schema.clone()))
    }

    /// Lets history begin with the changes of `backfill`.
    ///
    /// # Errors
    /// What is in `backfill` did not lead to the state with which history begins. Then nothing is changed.
    pub fn prepend(&self, backfill: Backfill) -> Result<(), NotBefore> {
        let from = backfill.from();
        let (changes, first) = backfill.into_changes()?;
        let mut state = self.0.write();
        match state.history.beginning() {
            Some((base, begins)) if begins == first && base.version() > from => {}
            Some(_) | None => return Err(NotBefore::Trimmed),
        }
        state.history.prepend(from, changes, Instant::now());
        Ok(())
    }

    /// Resolves when the store is complete up to `version`. Never resolves if the writer is dropped before that, so the
    /// caller must set a timeout.
    pub async fn reached(&self, version: ResourceVersion) {
        let mut progress = self.0.progress.subscribe();
        // The sender lives as long as this reader does, so waiting cannot fail.
        drop(progress.wait_for(|progress| *progress >= version).await);
    }

    /// The average time between the last few changes, including the time since the last one; `None` if there were fewer
    /// changes.
    pub fn pace(&self) -> Option<Duration> {
        self.0.read().history.pace(Instant::now())
    }

    /// How far back a watch can start.
    pub fn history_span(&self) -> Duration {
        self.0.read().history.span(Instant::now())
    }

    /// The time since the change with that number was applied; `None` if it does not exist yet or left the history.
    pub fn change_age(&self, number: u64) -> Option<Duration> {
        self.0.read().history.age(number, Instant::now())
    }

    /// Removes the changes that are too old by now. Each new change does this, too.
    pub fn trim_history(&self) {
        let gone = self.0.write().history.trim(Instant::now());
        // Drop outside of the lock, so that readers do not wait for the memory to be freed.
        drop(gone);
    }

    /// Removes all changes but the last few, which an API server keeps, too, and the frames of these.
    pub fn shorten_history(&self) {
        let (gone, left) = {
            let mut state = self.0.write();
            let gone = state.history.shorten();
            let first = state.history.next() - state.history.len() as u64;
            (gone, state.history.from(first, usize::MAX).map(|left| left.cloned().collect::<Vec<_>>()))
        };
        drop(gone);
        for change in left.iter().flatten() {
            change.forget_frames();
        }
    }

    /// Drops the bytes derived from the newest objects that were not used since the last sweep.
    pub fn sweep(&self) {
        let (newest, blocks) = {
            let state = self.0.read();
            (state.newest.clone(), state.history.blocks())
        };
        newest.leaves().for_each(|leaf| leaf.sweep());
        blocks.iter().for_each(|block| block.sweep());
    }

    /// The leaves of the newest state that are to be compressed: they have not changed since the last call.
    pub fn settled(&self) -> Vec<Arc<Leaf>> {
        self.snapshot().leaves().filter(|leaf| leaf.settle()).cloned().collect()
    }

    /// The objects of the past that are to be compressed, each with the change that has it: those of changes that were
    /// there at the last call already.
    pub fn settled_past(&self) -> Vec<Past> {
        const AT_ONCE: usize = 1024;
        let (mut numbers, newest) = {
            let mut state = self.0.write();
            (state.history.settled(), state.newest.clone())
        };
        let (mut past, mut seen) = (Vec::new(), HashSet::new());
        while !numbers.is_empty() {
            // Not all at once, so that the writer does not wait.
            let Some(Backlog { changes, next, .. }) = self.backlog(numbers.start, AT_ONCE) else { break };
            let mut forgotten = Vec::new();
            for change in changes.iter().filter(|change| numbers.contains(&change.number)) {
                if change.forget_frames() {
                    forgotten.push(change.number);
                }
                let objects = change.past_objects(&newest).filter(|object| seen.insert(Arc::as_ptr(object)));
                past.extend(objects.map(|object| Past { change: change.clone(), object: object.clone() }));
            }
            numbers.start = next.max(numbers.start + 1);
            if !forgotten.is_empty() {
                self.0.write().history.compressed(forgotten.into_iter());
            }
        }
        past
    }

    /// Moves objects of the past into a block, whose text has their tails from these positions on. `None`: they stay
    /// as they are for good.
    pub fn move_past(&self, past: &[Past], block: Option<(Block, Vec<u32>)>) {
        let Some((block, positions)) = block else {
            past.iter().for_each(|past| past.change.stays_text());
            return;
        };
        let block = Arc::new(block);
        for (past, at) in past.iter().zip(positions) {
            past.object.move_into(block.clone(), at);
            past.change.forget_frames();
        }
        let mut state = self.0.write();
        state.history.compressed(past.iter().map(|past| past.change.number));
        state.history.add_block(&block);
    }

    pub fn size(&self) -> StoreSize {
        let state = self.0.read();
        let newest = state.newest.clone();
        let (changes, change_bytes, blocks) = (state.history.len(), state.history.bytes(), state.history.blocks());
        // The rest takes a step for each object, which the writer must not wait for.
        drop(state);
        let mut size = StoreSize { changes, change_bytes, ..StoreSize::default() };
        (size.objects, size.object_bytes) = (newest.len(), newest.bytes());
        newest.leaves().for_each(|leaf| leaf.measure(&mut size));
        size.derived_bytes += self.0.schema.copies().bytes();
        size.joined_bytes += blocks.iter().map(|block| block.kept()).sum::<usize>();
        size
    }
}

impl State {
    fn follows(&self, version: ResourceVersion) -> Result<(), OutOfOrder> {
        let progress = self.newest.version();
        if version > progress { Ok(()) } else { Err(OutOfOrder { given: version, progress }) }
    }

    /// The changes of `difference`, and those that history no longer holds. All of the former have the state `after`
    /// the gap, because the states within it are unknown.
    fn bridge(
        &mut self,
        difference: Difference,
        after: Snapshot,
        gap: Gap,
        copies: &FrameCopies,
    ) -> (Vec<Arc<Change>>, Vec<Arc<Change>>) {
        let now = Instant::now();
        let Difference { gone, come } = difference;
        let told = |kind, object: &Arc<Object>, before: Option<&Arc<Object>>| {
            let version =
                if matches!(kind, ChangeKind::Gone | ChangeKind::Reselected) { gap.from } else { object.version };
            (version, kind, object.clone(), before.cloned())
        };
        let gone = gone.iter().map(|object| told(ChangeKind::Gone, object, Some(object)));
        let reselected = come.iter().filter(|come| come.is_reselected());
        let reselected = reselected.map(|come| told(ChangeKind::Reselected, &come.now, come.before.as_ref()));
        let come = come.iter().map(|come| told(come.kind(), &come.now, come.before.as_ref()));
        let first = self.history.next();
        let change = |(number, (version, kind, object, before))| {
            Arc::new(Change::new(number, (version, kind), object, copies.clone()).replacing(before).within(gap))
        };
        let changes: Vec<_> = (first..).zip(gone.chain(reselected).chain(come)).map(change).collect();
        if gap.from < gap.to {
            self.history.bridge(gap, now);
        }
        let trimmed = changes.iter().flat_map(|change| self.history.push(change.clone(), &after, now)).collect();
        (self.newest, self.last_change) = (after, gap.to);
        (changes, trimmed)
    }
}

impl Shared {
    // A panic while the lock is held can only come from a broken invariant of the store itself. The state may then be
    // half changed, so it must not be read any more.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect("the store's writer never panics")
    }

    fn advance(&self, version: ResourceVersion) {
        let mut state = self.write();
        if version > state.newest.version() {
            state.newest = state.newest.clone().at(version);
            state.history.reach(version, Instant::now());
            drop(state);
            self.progress.send_replace(version);
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().expect("the store's readers never panic")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Responses may still be sending leaves, or some of the objects.
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let leaves = state.newest.leaves().map(|leaf| -> Weak<dyn Measured> { Arc::<Leaf>::downgrade(leaf) });
        let is_unshared = |leaf: &&Arc<Leaf>| Arc::strong_count(leaf) == 1;
        let objects = state.newest.leaves().filter(is_unshared).flat_map(|leaf| leaf.objects());
        let objects = objects.map(|object| -> Weak<dyn Measured> { Arc::<Object>::downgrade(object) });
        self.schema.budget().leave(leaves.chain(objects));
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Writer({})", self.progress())
    }
}

impl fmt::Debug for Advance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Advance")
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Reader({})", self.progress())
    }
}
