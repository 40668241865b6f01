//! A bounded memory in which each entry has an end.
//!
//! Invariant: an entry whose time is over is nowhere to be had, whether its memory has been given back or not.

use std::{
    fmt,
    hash::{Hash, RandomState},
    marker::PhantomData,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use quick_cache::{Equivalent, Lifecycle, OptionsBuilder, UnitWeighter, sync::Cache};
use tokio::time::Instant;

use crate::telemetry;

/// A capacity, and the metric label counted when it is reached.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub most: usize,
    /// Its name in the metrics, counted each time that it is reached.
    pub limit: &'static str,
}

/// Values that are believed until their time is over. Beyond the bound some go that were not asked for lately.
///
/// Keys are hashed with a key that only this process knows: clients may choose them.
pub struct Kept<K, V> {
    entries: Cache<K, Entry<V>, UnitWeighter, RandomState, Evicted<K, V>>,
    /// When the memory of entries that are over was last given back.
    swept: Mutex<Instant>,
}

#[derive(Clone)]
struct Entry<V> {
    value: V,
    until: Instant,
}

/// Parts of the memory, each with a lock of its own. So few that none of them is full long before the whole is.
const SHARDS: usize = 16;
/// How often the memory of what nobody asks for again is given back, while new entries come.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

impl<K: Eq + Hash, V: Clone> Kept<K, V> {
    /// Keeps nothing yet.
    pub fn new(Bound { most, limit }: Bound) -> Self {
        let options = OptionsBuilder::new()
            .estimated_items_capacity(most)
            .weight_capacity(u64::try_from(most).unwrap_or(u64::MAX))
            .shards(SHARDS)
            .build()
            .expect("both capacities are given");
        let evicted = Evicted { limit, entries: PhantomData };
        let entries = Cache::with_options(options, UnitWeighter, RandomState::new(), evicted);
        Self { entries, swept: Mutex::new(Instant::now()) }
    }

    /// What is believed at `now`.
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q, now: Instant) -> Option<V> {
        let entry = self.entries.get(key)?;
        if now < entry.until {
            return Some(entry.value);
        }
        self.entries.remove_if(key, |entry| entry.until <= now);
        None
    }

    /// Believed from now on for `ttl`; zero is not at all.
    pub fn keep(&self, key: K, value: V, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        let now = Instant::now();
        self.sweep(now);
        // One that is kept anew would count as evicted.
        self.entries.remove(&key);
        self.entries.insert(key, Entry { value, until: now + ttl });
    }

    /// Believed no longer.
    pub fn forget(&self, key: &K) {
        self.entries.remove(key);
    }

    /// None of them is believed any longer.
    pub fn forget_all(&self) {
        self.entries.clear();
    }

    /// Gives back the memory of what is over, if that was not done lately.
    pub(super) fn sweep(&self, now: Instant) {
        {
            let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
            if now < *swept + SWEEP_INTERVAL {
                return;
            }
            *swept = now;
        }
        self.entries.retain(|_, entry| now < entry.until);
    }
}

impl<K: Eq + Hash, V: Clone> fmt::Debug for Kept<K, V> {
    /// Nothing of what is in it: that may be secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Kept").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}

/// Counts what has to go because there is no room.
struct Evicted<K, V> {
    limit: &'static str,
    entries: PhantomData<fn(K, V)>,
}

impl<K, V> Lifecycle<K, Entry<V>> for Evicted<K, V> {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: K, _: Entry<V>) {
        telemetry::limit_reached(self.limit);
    }
}

impl<K, V> Clone for Evicted<K, V> {
    fn clone(&self) -> Self {
        Self { limit: self.limit, entries: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const BOUND: Bound = Bound { most: 1000, limit: LIMIT };
    const LIMIT: &str = "test";

    #[tokio::test(start_paused = true)]
    async fn an_entry_ends_with_its_time() {
        let kept = Kept::new(BOUND);
        let get = |key| kept.get(&key, Instant::now());
        kept.keep(1, 'a', TTL);
        kept.keep(2, 'b', 2 * TTL);
        kept.keep(3, 'c', Duration::ZERO);
        assert_eq!([1, 2, 3].map(get), [Some('a'), Some('b'), None]);
        tokio::time::advance(TTL).await;
        assert_eq!([1, 2].map(get), [None, Some('b')]);
        assert_eq!(kept.entries.len(), 1, "what is over is gone once it was asked for");
        kept.keep(1, 'd', TTL);
        assert_eq!(get(1), Some('d'));
        kept.forget(&1);
        assert_eq!([1, 2].map(get), [None, Some('b')]);
        kept.forget_all();
        assert_eq!(get(2), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_newer_entry_takes_the_place_of_an_older_one() {
        let kept = Kept::new(BOUND);
        kept.keep(1, 'a', 3 * TTL);
        kept.keep(1, 'b', TTL);
        assert_eq!(kept.get(&1, Instant::now()), Some('b'));
        tokio::time::advance(TTL).await;
        assert_eq!(kept.get(&1, Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_asks_for_again_gives_its_memory_back() {
        let kept = Kept::new(BOUND);
        for key in 0..100 {
            kept.keep(key, 'a', TTL);
        }
        tokio::time::advance(SWEEP_INTERVAL).await;
        kept.keep(100, 'b', TTL);
        assert_eq!(kept.entries.len(), 1);
    }

    #[tokio::test]
    async fn there_are_never_more_than_the_bound() {
        let kept = Kept::new(BOUND);
        for key in 0..10 * BOUND.most {
            kept.keep(key, 'a', TTL);
        }
        let entries = kept.entries.len();
        assert!(entries > BOUND.most / 2 && entries <= BOUND.most + SHARDS, "{entries}");
    }

    #[test]
    fn its_debug_form_tells_nothing_of_its_entries() {
        let kept = Kept::new(BOUND);
        kept.keep("s3cret", "s3cret", TTL);
        assert!(!format!("{kept:?}").contains("s3cret"));
    }
}
