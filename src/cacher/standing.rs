//! What an operator is shown of each store and a scrape does not tell.

use std::time::Duration;

use tokio::time::Instant;

use super::{Cachers, NotCached, cachers::StoreKey, entry::Entry};
use crate::{
    apimachinery::{Encoding, GroupVersionResource},
    fanout::Behind,
};

/// One store, as it stands now.
#[derive(Clone, Debug)]
pub struct Standing {
    pub resource: GroupVersionResource,
    pub encoding: Encoding,
    /// Why it does not answer, if it does not.
    pub not_cached: Option<NotCached>,
    /// It has been without upstream for longer than the configuration allows.
    pub is_stale: bool,
    /// How far back a watch can start.
    pub history: Option<Duration>,
    pub restart: Option<Restart>,
    /// The watchers that are furthest behind, and for how long they have not looked at a change.
    pub behind: Vec<(Behind, Duration)>,
}

/// Upstream had to be asked anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// The word of an enum.
    pub cause: &'static str,
    pub at: Instant,
}

/// Watchers that have a change waiting for less than this are not behind: they are about to look.
const BEHIND_MIN: Duration = Duration::from_secs(1);

impl Cachers {
    /// The stores that have been started, in the order of their names; of each the `behind_max` watchers that are furthest
    /// behind.
    pub fn standings(&self, behind_max: usize) -> Vec<Standing> {
        let standing = |key: &StoreKey, entry: &Entry| {
            let instance = entry.instance();
            let behind = instance.as_ref().map(|instance| {
                let all = instance.hub.furthest_behind(behind_max).into_iter();
                let timed = all.filter_map(|behind| Some((instance.reader.change_age(behind.pending)?, behind)));
                timed.filter(|(age, _)| *age >= BEHIND_MIN).map(|(age, behind)| (behind, age)).collect()
            });
            Standing {
                resource: key.resource.clone(),
                encoding: key.encoding,
                is_stale: instance.as_ref().is_ok_and(|instance| instance.is_stale()),
                history: instance.as_ref().ok().map(|instance| instance.reader.history_span()),
                restart: entry.last_restart(),
                behind: behind.unwrap_or_default(),
                not_cached: instance.err(),
            }
        };
        let mut standings: Vec<_> =
            self.shared.entries.iter().map(|entry| standing(entry.key(), entry.value())).collect();
        standings.sort_by_cached_key(|standing| (standing.resource.to_string(), standing.encoding.as_str()));
        standings
    }
}
