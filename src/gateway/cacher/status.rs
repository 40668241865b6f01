//! What the status shows of each store, beyond the metrics.

use std::time::Duration;

use super::{
    Cachers, NotCached,
    entry::{Entry, Restart},
    store_key::StoreKey,
};
use base::apimachinery::{CollectionScope, Encoding, GroupVersionResource};
use engine::fanout::Behind;

/// The current state of one store.
#[derive(Clone, Debug)]
pub struct CacheStatus {
    pub resource: GroupVersionResource,
    pub encoding: Encoding,
    pub scope: CollectionScope,
    /// Why it does not answer; `None` if it does.
    pub not_cached: Option<NotCached>,
    /// Whether it answers, and upstream cannot do watch-lists of it.
    pub lacks_watch_list: bool,
    /// Whether it has been without upstream for longer than the configuration allows.
    pub is_stale: bool,
    /// How far back a watch can start.
    pub history: Option<Duration>,
    pub restart: Option<Restart>,
    /// The watchers that are furthest behind, and how long each of them has had a change waiting.
    pub behind: Vec<(Behind, Duration)>,
}

/// A watcher that has had a change waiting for less time than this is not behind: it is about to process it.
const BEHIND_MIN: Duration = Duration::from_secs(1);

impl Cachers {
    /// The started stores in the order of their names, each with the `behind_max` watchers that are furthest behind.
    pub fn statuses(&self, behind_max: usize) -> Vec<CacheStatus> {
        let status = |key: &StoreKey, entry: &Entry| {
            let instance = entry.instance();
            let behind = instance.as_ref().map(|instance| {
                let all = instance.hub.furthest_behind(behind_max).into_iter();
                let timed = all.filter_map(|behind| Some((instance.reader.change_age(behind.pending)?, behind)));
                timed.filter(|(age, _)| *age >= BEHIND_MIN).map(|(age, behind)| (behind, age)).collect()
            });
            CacheStatus {
                resource: key.resource.clone(),
                encoding: key.encoding,
                scope: key.scope.clone(),
                lacks_watch_list: instance.as_ref().is_ok_and(|instance| !instance.has_watch_list()),
                is_stale: instance.as_ref().is_ok_and(|instance| instance.is_stale()),
                history: instance.as_ref().ok().map(|instance| instance.reader.history_span()),
                restart: entry.last_restart(),
                behind: behind.unwrap_or_default(),
                not_cached: instance.err(),
            }
        };
        let mut statuses: Vec<_> = self.shared.entries.iter().map(|entry| status(entry.key(), entry.value())).collect();
        statuses
            .sort_by_cached_key(|status| (status.resource.to_string(), status.encoding.as_str(), status.scope.clone()));
        statuses
    }
}
