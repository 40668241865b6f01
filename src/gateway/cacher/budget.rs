//! Keeps what all stores take within `cache.bytes`.

use std::{cmp::Reverse, convert::Infallible, sync::Arc, time::Duration};

use tokio::{
    select,
    time::{Instant, sleep, sleep_until},
};

use super::{
    Cachers, NotCached,
    cachers::Shared,
    entry::{Entry, GivenUp},
    instance::Instance,
    store_key::StoreKey,
};
use base::telemetry::{MemoryStep, count_memory_step};

/// How often it is looked whether the stores are to be measured, unless a fill waits for room.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a measurement is used while more than half of the limit is left.
const MEASURE_EVERY: Duration = Duration::from_secs(5);
/// The same without a limit.
const MEASURE_SELDOM: Duration = Duration::from_secs(60);
/// After measuring, which takes a step for each object, this many times as long passes until the next time.
const PAUSE_TIMES: u32 = 20;
/// A fill that waits for room asks again and again.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// A store that was dropped, or could not be filled, is not filled again for this time.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Whether there is room for it is not known: its collection may have shrunk.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// A store that is filled.
struct Held {
    key: StoreKey,
    entry: Arc<Entry>,
    instance: Arc<Instance>,
    bytes: u64,
}

impl Cachers {
    /// Keeps the stores within the configured memory from now on.
    pub fn keep_within_memory(&self) {
        let shared = self.shared.clone();
        self.shared.tasks.spawn("memory", async move {
            select! {
                never = shared.keep_within() => match never {},
                () = shared.tasks.token().cancelled() => {}
            }
        });
    }
}

impl Shared {
    async fn keep_within(&self) -> Infallible {
        let (mut measured, mut took, mut worst, mut before) = (None::<Instant>, Duration::ZERO, None, None);
        loop {
            let limit = self.config.borrow().bytes;
            self.budget.set_limit(limit);
            let (interval, half) = limit.map_or((MEASURE_SELDOM, u64::MAX), |limit| (MEASURE_EVERY, limit / 2));
            if measured.is_none_or(|at| at.elapsed() >= interval || self.budget.used() > half) {
                let began = Instant::now();
                let step = self.relieve(&mut before);
                (measured, took) = (Some(Instant::now()), began.elapsed());
                if step > worst {
                    step.into_iter().for_each(count_memory_step);
                    let (bytes, step) = (self.budget.used(), step.map_or("", MemoryStep::as_str));
                    tracing::warn!(bytes, limit, step, "caches take nearly all of cache.bytes");
                }
                // Told again once there was plenty.
                worst = if self.budget.used() < half { None } else { worst.max(step) };
            }
            sleep((took * PAUSE_TIMES).max(PAUSE_MIN)).await;
            select! {
                () = sleep(LOOK_EVERY) => {}
                () = self.budget.is_short() => {}
            }
        }
    }

    /// Measures the stores, and takes the least steps that bring them within the limit. Returns the last one. `before`
    /// is what they took at the last call, if that was too much: as long as it becomes less, which compressing and
    /// stopping take a while for, nothing is done that clients notice.
    fn relieve(&self, before: &mut Option<u64>) -> Option<MemoryStep> {
        let mut stores = self.measure();
        let Some(limit) = self.budget.limit().filter(|_| self.budget.is_tight()) else {
            *before = None;
            return None;
        };
        let mut last = MemoryStep::Compress;
        self.tight.notify_waiters();
        // Of the first call, what was used since then is spared.
        (0..2).for_each(|_| stores.iter().for_each(|held| held.instance.reader.sweep()));
        stores = self.measure();
        let now = stores.iter().map(|held| held.bytes).sum();
        if before.replace(now).is_none_or(|before| now < before) {
            return Some(last);
        }
        // Below the limit by some part, so that the next change is no reason to begin anew.
        let target = limit - limit / 16;
        if self.budget.used_by_stores() > limit {
            last = MemoryStep::ShortenHistory;
            stores.sort_by_key(|held| Reverse(held.instance.pace()));
            for held in &mut stores {
                if self.budget.used_by_stores() <= target {
                    break;
                }
                held.instance.reader.shorten_history();
                let now = held.instance.reader.size().bytes();
                self.budget.measured_less(held.bytes.saturating_sub(now));
                held.bytes = now;
            }
        }
        if self.budget.used_by_stores() > limit {
            last = MemoryStep::DropCaches;
            self.drop_unwatched(stores, target);
        }
        Some(last)
    }

    /// Gives up stores without watches, the longest unused first; then, if something to prewarm waits for room, one
    /// with watches, which end cleanly.
    fn drop_unwatched(&self, mut stores: Vec<Held>, target: u64) {
        stores.retain(|held| !self.is_prewarmed(&held.key));
        let (mut unwatched, watched): (Vec<_>, Vec<_>) =
            stores.into_iter().map(|held| (held.instance.idle_since(), held)).partition(|(idle, _)| idle.is_some());
        unwatched.sort_by_key(|(idle_since, _)| *idle_since);
        let mut left = self.budget.used_by_stores();
        for (_, held) in unwatched {
            if left <= target {
                return;
            }
            left = left.saturating_sub(held.bytes);
            held.give_up();
        }
        let is_awaited = self
            .entries
            .iter()
            .any(|entry| self.is_prewarmed(entry.key()) && matches!(entry.instance(), Err(NotCached::Filling)));
        if left > target && is_awaited {
            let cost = |held: &Held| (held.instance.hub.watchers(), Reverse(held.bytes));
            if let Some((_, held)) = watched.into_iter().min_by_key(|(_, held)| cost(held)) {
                held.give_up();
            }
        }
    }

    /// Measures all stores, as the new use of the room.
    fn measure(&self) -> Vec<Held> {
        // Measuring takes a step for each object, for which others must not wait.
        let entries: Vec<_> = self.entries.iter().map(|entry| (entry.key().clone(), entry.value().clone())).collect();
        let held = |(key, entry): (StoreKey, Arc<Entry>)| {
            let instance = entry.instance().ok()?;
            let bytes = instance.reader.size().bytes();
            entry.set_bytes(bytes);
            Some(Held { key, entry, instance, bytes })
        };
        let stores: Vec<_> = entries.into_iter().filter_map(held).collect();
        self.budget.measured(stores.iter().map(|held| held.bytes).sum());
        stores
    }

    /// What stores take that could be dropped, and were not used for a while.
    fn unused_bytes(&self) -> u64 {
        let is_unused = |key: &StoreKey, entry: &Entry| {
            let since = entry.instance().ok().and_then(|instance| instance.idle_since());
            since.is_some_and(|since| since.elapsed() >= AGAIN_AFTER) && !self.is_prewarmed(key)
        };
        let unused = self.entries.iter().filter(|entry| is_unused(entry.key(), entry.value()));
        unused.map(|entry| entry.bytes()).sum()
    }

    /// Returns when a store of that size may be filled again.
    pub(super) async fn until_room_for(&self, bytes: u64) {
        let forgotten = Instant::now() + FORGOTTEN_AFTER;
        loop {
            sleep_until(forgotten.min(Instant::now() + AGAIN_AFTER)).await;
            let used = self.budget.used().saturating_sub(self.unused_bytes()).saturating_add(bytes);
            let fits = self.budget.limit().is_none_or(|limit| used <= limit);
            if fits || Instant::now() >= forgotten {
                return;
            }
        }
    }
}

impl Held {
    fn give_up(&self) {
        self.entry.give_up(GivenUp::OverBudget(self.bytes));
    }
}
