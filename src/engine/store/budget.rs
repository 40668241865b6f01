//! How much memory the stores of a gateway may take together.

use std::{
    sync::{
        Arc, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::{Mutex, Notify, Semaphore, SemaphorePermit},
    time::timeout,
};

use super::size::{Measured, StoreSize};

/// The memory that all stores share. Cheap to clone.
///
/// What the stores take is measured from time to time ([`Self::measured`]); what they add in between is counted on top
/// of that, and what they free is not. So it counts too much rather than too little.
#[derive(Clone, Debug)]
pub struct StoreBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// `u64::MAX`: no limit.
    limit: AtomicU64,
    stores: AtomicU64,
    /// Objects of stores that are being filled.
    filling: AtomicU64,
    /// Parts of stores that are gone, which responses may still be sending; and what they took when last measured.
    left: std::sync::Mutex<Vec<Weak<dyn Measured>>>,
    left_bytes: AtomicU64,
    /// Notified when there may be more room.
    measured: Notify,
    /// Of the fills that lack room, one waits for it. What the others hold is given back only if they go on or fail,
    /// so that the one may be given up, and then makes room for the next.
    turn: Mutex<()>,
    /// The fills that go on at a time if there is a limit. Each one takes more than it claims: buffers of its
    /// connection, and what the allocator keeps between objects of several stores.
    fills: Semaphore,
    /// Notified when a fill waits for room.
    short: Notify,
}

/// There is no room for a state that is being read; it has more than this number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for a state of more than {0} bytes")]
pub struct OverBudget(pub u64);

/// What a fill has read so far. Given back when it is dropped: a store that was made of it counts by itself.
#[derive(Debug)]
pub struct Claim {
    budget: StoreBudget,
    bytes: u64,
}

/// The number of fills at a time if there is a limit.
const FILLS_MAX: usize = 4;
/// While a fill has at most this part of the limit, it does not wait: giving it up would help none of the others.
const SMALL: u64 = 256;
/// How long a fill waits for room. Measuring and dropping something takes about a second.
const WAIT_MAX: Duration = Duration::from_secs(5);

impl Default for StoreBudget {
    /// Without a limit.
    fn default() -> Self {
        let (stores, filling, left, left_bytes, measured, turn, short) = Default::default();
        let (limit, fills) = (u64::MAX.into(), Semaphore::new(FILLS_MAX));
        Self(Arc::new(Shared { limit, stores, filling, left, left_bytes, measured, turn, fills, short }))
    }
}

impl StoreBudget {
    /// Sets the maximum number of bytes; `None` for no limit.
    pub fn set_limit(&self, bytes: Option<u64>) {
        self.0.limit.store(bytes.unwrap_or(u64::MAX), Relaxed);
    }

    /// The maximum number of bytes, if there is one.
    pub fn limit(&self) -> Option<u64> {
        Some(self.0.limit.load(Relaxed)).filter(|limit| *limit < u64::MAX)
    }

    /// Bytes that are taken, by fills too.
    pub fn used(&self) -> u64 {
        self.used_by_stores().saturating_add(self.0.left_bytes.load(Relaxed))
    }

    /// The same without what is left of stores that are gone: no other store can do anything about that.
    pub fn used_by_stores(&self) -> u64 {
        self.0.stores.load(Relaxed).saturating_add(self.0.filling.load(Relaxed))
    }

    /// Notes the parts of a store that is gone. They count for as long as responses have them.
    pub(super) fn leave(&self, parts: impl Iterator<Item = Weak<dyn Measured>>) {
        if self.limit().is_some() {
            let parts = parts.filter(|part| part.strong_count() > 1);
            self.0.left.lock().unwrap_or_else(PoisonError::into_inner).extend(parts);
        }
    }

    fn measure_left(&self) {
        let mut size = StoreSize::default();
        let mut left = self.0.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(|part| {
            let Some(part) = part.upgrade() else { return false };
            part.add_to(&mut size);
            true
        });
        self.0.left_bytes.store(size.bytes(), Relaxed);
    }

    /// Whether hardly any is left, so that nothing is kept that can be made again.
    pub fn is_tight(&self) -> bool {
        self.limit().is_some_and(|limit| self.used() > limit - limit / 8)
    }

    /// Sets what the stores take, as was measured just now.
    pub fn measured(&self, bytes: u64) {
        self.measure_left();
        self.0.stores.store(bytes, Relaxed);
        self.0.measured.notify_waiters();
    }

    /// Notes that a store was found to take that much less than it was measured to take.
    pub fn measured_less(&self, bytes: u64) {
        self.0.stores.store(self.0.stores.load(Relaxed).saturating_sub(bytes), Relaxed);
        self.0.measured.notify_waiters();
    }

    /// Returns when a fill waits for room.
    pub async fn is_short(&self) {
        self.0.short.notified().await;
    }

    /// Counts bytes that a store has to keep.
    pub(super) fn charge(&self, bytes: usize) {
        self.0.stores.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts bytes that can be made again. Returns whether they may be kept.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let may_be_kept = !self.is_tight();
        if may_be_kept {
            self.charge(bytes);
        }
        may_be_kept
    }

    /// Waits until a fill may begin. It may go on for as long as it holds what is returned.
    pub async fn may_fill(&self) -> Option<SemaphorePermit<'_>> {
        match self.limit() {
            Some(_) => self.0.fills.acquire().await.ok(),
            None => None,
        }
    }

    /// For a fill that begins.
    pub fn claim(&self) -> Claim {
        Claim { budget: self.clone(), bytes: 0 }
    }

    /// Whether the limit is not exceeded.
    pub fn has_room(&self) -> bool {
        self.limit().is_none_or(|limit| self.used() <= limit)
    }
}

impl Claim {
    /// Counts objects that were read. Waits for a while if there is no room for them.
    ///
    /// # Errors
    /// There is still none. The fill is to be given up.
    pub async fn add(&mut self, objects: usize, bytes: usize) -> Result<(), OverBudget> {
        let added = (bytes + objects * super::OBJECT_BYTES) as u64;
        self.bytes += added;
        let Shared { filling, measured, turn, short, .. } = &*self.budget.0;
        filling.fetch_add(added, Relaxed);
        let is_small = self.budget.limit().is_some_and(|limit| self.bytes <= limit / SMALL);
        if self.budget.has_room() || is_small {
            return Ok(());
        }
        let _turn = turn.lock().await;
        let waiting = async {
            loop {
                let measured = measured.notified();
                if self.budget.has_room() {
                    return;
                }
                short.notify_one();
                measured.await;
            }
        };
        timeout(WAIT_MAX, waiting).await.map_err(|_| OverBudget(self.bytes))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.budget.0.filling.fetch_sub(self.bytes, Relaxed);
        self.budget.0.measured.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use base::apimachinery::{Encoding, Representation, ResourceVersion, View};

    use super::*;
    use crate::store::{self, HistoryLimits, Leaf, Object, Objects, Schema, Shape};

    const WHOLE: Representation = Representation { encoding: Encoding::Json, view: View::Whole };

    #[tokio::test(start_paused = true)]
    async fn a_fill_waits_for_room_and_is_given_up_without() {
        let budget = StoreBudget::default();
        budget.set_limit(Some(100_000));
        budget.measured(60_000);
        let mut claim = budget.claim();
        claim.add(0, 30_000).await.unwrap();
        assert!(budget.is_tight() && !budget.take(1));
        let freed = async {
            budget.is_short().await;
            budget.measured(20_000);
        };
        let (added, ()) = tokio::join!(claim.add(0, 40_000), freed);
        added.unwrap();
        assert_eq!(budget.used(), 90_000);
        assert_eq!(claim.add(1, 11_000).await, Err(OverBudget(81_000 + super::super::OBJECT_BYTES as u64)));
        drop(claim);
        assert_eq!(budget.used(), 20_000);
        assert!(budget.take(1) && budget.used() == 20_001);
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_fills_that_hinder_each_other_one_is_given_up() {
        let budget = StoreBudget::default();
        budget.set_limit(Some(100_000));
        let [mut first, mut second] = [budget.claim(), budget.claim()];
        first.add(0, 50_000).await.unwrap();
        second.add(0, 50_000).await.unwrap();
        let first = async move {
            let added = first.add(0, 40_000).await;
            drop(first);
            added
        };
        let (first, second) = tokio::join!(first, second.add(0, 40_000));
        assert_eq!((first, second), (Err(OverBudget(90_000)), Ok(())));
    }

    #[test]
    fn what_is_left_of_a_store_counts_while_a_response_has_it() {
        let budget = StoreBudget::default();
        budget.set_limit(Some(1_000_000));
        let leaf = Arc::new(Leaf::new(Vec::new(), budget.clone()));
        leaf.joined(WHOLE, |_| Some(vec![0; 70_000].into()));
        budget.measured(0);
        let part = |leaf: &Arc<Leaf>| -> Weak<dyn Measured> { Arc::<Leaf>::downgrade(leaf) };
        budget.leave([part(&leaf)].into_iter());
        assert_eq!(budget.used(), 0, "only the store had it");
        let response = leaf.clone();
        budget.leave([part(&leaf)].into_iter());
        drop(leaf);
        budget.measured(0);
        assert_eq!((budget.used(), budget.used_by_stores()), (70_000, 0));
        drop(response);
        budget.measured(0);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn objects_of_a_store_that_is_gone_count_while_a_response_has_them() {
        let budget = StoreBudget::default();
        budget.set_limit(Some(1_000_000));
        let schema = Arc::new(Schema::new(Shape::Custom, Vec::new()).within(budget.clone()));
        let object = |name: &str| {
            let metadata = format!(r#"{{"name":"{name}","resourceVersion":"1"}}"#);
            let json = format!(r#"{{"metadata":{metadata},"data":"{}"}}"#, "x".repeat(10_000));
            Arc::new(Object::from_event(json.into(), &schema).unwrap())
        };
        let objects = Objects::new(vec![object("a"), object("b")]).unwrap();
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 4 << 20 };
        let (writer, reader) = store::store(schema.clone(), &objects, ResourceVersion::new(1).unwrap(), limits);
        drop(objects);
        let selected = reader.snapshot().get("a").cloned();
        drop((writer, reader));
        budget.measured(0);
        assert!((10_000..12_000).contains(&budget.used()), "{}", budget.used());
        drop(selected);
        budget.measured(0);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn without_a_limit_there_is_always_room() {
        let budget = StoreBudget::default();
        budget.charge(usize::MAX / 2);
        let mut claim = budget.claim();
        claim.add(1, usize::MAX / 4).await.unwrap();
        assert!(budget.limit().is_none() && !budget.is_tight() && budget.take(1));
    }
}
