//! A bounded cache in which each entry has its own expiry.
//!
//! Invariant: an expired entry is never returned, even if its memory has not been freed yet.

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
    /// The name of this limit in the metrics; counted each time that it is reached.
    pub limit: &'static str,
}

/// Values that are valid until they expire. Beyond the bound, entries that were not used recently are evicted.
///
/// Keys are hashed with a key that only this process knows, since clients may choose them.
pub struct TtlCache<K, V> {
    entries: Cache<K, Entry<V>, UnitWeighter, RandomState, Evicted<K, V>>,
    /// When expired entries were last removed.
    swept: Mutex<Instant>,
}

#[derive(Clone)]
struct Entry<V> {
    value: V,
    until: Instant,
}

/// Number of parts of the cache, each with its own lock. Few enough that none is full long before the whole cache is.
const SHARDS: usize = 16;
/// How often expired entries are removed while new ones are added; otherwise those not asked for again would stay.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

impl<K: Eq + Hash, V: Clone> TtlCache<K, V> {
    /// Creates an empty cache.
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

    /// The value of a key, if it is valid at `now`.
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q, now: Instant) -> Option<V> {
        let entry = self.entries.get(key)?;
        if now < entry.until {
            return Some(entry.value);
        }
        self.entries.remove_if(key, |entry| entry.until <= now);
        None
    }

    /// Caches a value for `ttl` from now on; does nothing if that is zero. An entry that is replaced can be read at any
    /// time.
    pub fn insert(&self, key: K, value: V, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        let now = Instant::now();
        self.sweep(now);
        self.entries.insert(key, Entry { value, until: now + ttl });
    }

    /// Removes an entry.
    pub fn remove(&self, key: &K) {
        self.entries.remove(key);
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.entries.clear();
    }

    /// Removes expired entries, unless that was done within the last `SWEEP_INTERVAL`.
    pub fn sweep(&self, now: Instant) {
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

impl<K: Eq + Hash, V: Clone> fmt::Debug for TtlCache<K, V> {
    /// Shows no entries, which may be secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TtlCache").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}

/// Counts evictions.
struct Evicted<K, V> {
    limit: &'static str,
    entries: PhantomData<fn(K, V)>,
}

impl<K, V> Lifecycle<K, Entry<V>> for Evicted<K, V> {
    type RequestState = ();

    /// Unlike `on_evict`, this is not called for entries that are replaced.
    fn before_evict(&self, (): &mut (), _: &K, _: &mut Entry<V>) {
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
    use crate::telemetry::recorder;

    const TTL: Duration = Duration::from_secs(10);
    const BOUND: Bound = Bound { most: 1000, limit: LIMIT };
    const LIMIT: &str = "test";

    #[tokio::test(start_paused = true)]
    async fn an_entry_expires() {
        let cache = TtlCache::new(BOUND);
        let get = |key| cache.get(&key, Instant::now());
        cache.insert(1, 'a', TTL);
        cache.insert(2, 'b', 2 * TTL);
        cache.insert(3, 'c', Duration::ZERO);
        assert_eq!([1, 2, 3].map(get), [Some('a'), Some('b'), None]);
        tokio::time::advance(TTL).await;
        assert_eq!([1, 2].map(get), [None, Some('b')]);
        assert_eq!(cache.entries.len(), 1, "what is over is gone once it was asked for");
        cache.insert(1, 'd', TTL);
        assert_eq!(get(1), Some('d'));
        cache.remove(&1);
        assert_eq!([1, 2].map(get), [None, Some('b')]);
        cache.clear();
        assert_eq!(get(2), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_newer_entry_takes_the_place_of_an_older_one() {
        let cache = TtlCache::new(BOUND);
        cache.insert(1, 'a', 3 * TTL);
        cache.insert(1, 'b', TTL);
        assert_eq!(cache.get(&1, Instant::now()), Some('b'));
        tokio::time::advance(TTL).await;
        assert_eq!(cache.get(&1, Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_entries_are_removed_without_a_lookup() {
        let cache = TtlCache::new(BOUND);
        for key in 0..100 {
            cache.insert(key, 'a', TTL);
        }
        tokio::time::advance(SWEEP_INTERVAL).await;
        cache.insert(100, 'b', TTL);
        assert_eq!(cache.entries.len(), 1);
    }

    #[tokio::test]
    async fn there_are_never_more_than_the_bound() {
        let cache = TtlCache::new(BOUND);
        for key in 0..10 * BOUND.most {
            cache.insert(key, 'a', TTL);
        }
        let entries = cache.entries.len();
        assert!(entries > BOUND.most / 2 && entries <= BOUND.most + SHARDS, "{entries}");
    }

    /// Values are counters for some users of the cache: one that cannot be read while it is replaced starts over.
    #[test]
    fn an_entry_is_there_while_it_is_replaced() {
        let cache = TtlCache::new(BOUND);
        cache.insert(1, 0, TTL);
        let recorder = recorder();
        let missed = std::thread::scope(|scope| {
            let replaced = |value| {
                let (cache, recorder) = (&cache, &recorder);
                scope.spawn(move || {
                    metrics::with_local_recorder(recorder, || {
                        let replace = |_: &u32| {
                            cache.insert(1, value, TTL);
                            cache.get(&1, Instant::now()).is_none()
                        };
                        (0..20_000).filter(replace).count()
                    })
                })
            };
            [1, 2].map(replaced).map(|thread| thread.join().unwrap())
        });
        assert_eq!(missed, [0, 0]);
        let text = recorder.handle().render();
        assert!(!text.contains(LIMIT), "only an eviction reaches the limit: {text}");
    }

    #[test]
    fn only_evictions_are_counted() {
        let (cache, recorder) = (TtlCache::new(BOUND), recorder());
        metrics::with_local_recorder(&recorder, || {
            let most = u64::try_from(BOUND.most).unwrap();
            (0..2 * most).for_each(|key| cache.insert(key % 10, 'a', TTL));
            assert!(!recorder.handle().render().contains(LIMIT));
            (0..2 * most).for_each(|key| cache.insert(key, 'a', TTL));
        });
        let text = recorder.handle().render();
        let evicted = 2 * BOUND.most - cache.entries.len();
        let series = format!("kube_fanout_limits_reached_total{{limit=\"{LIMIT}\"}} {evicted}\n");
        assert!(text.contains(&series), "{text}");
    }

    #[test]
    fn the_debug_form_shows_no_entries() {
        let cache = TtlCache::new(BOUND);
        cache.insert("s3cret", "s3cret", TTL);
        assert!(!format!("{cache:?}").contains("s3cret"));
    }
}
