//! All cachers, started on first use and stopped when nobody has used them for a while.

use std::{collections::HashSet, fmt, sync::Arc, time::Duration};

use dashmap::DashMap;
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout_at},
};

use super::{entry::Entry, freshness::Freshness, instance::Instance, staleness::StalenessLimit};
use crate::{
    apimachinery::{Encoding, GroupResource, GroupVersionResource},
    lifecycle::{Spread, Tasks},
    remembered::{Bound, Kept},
    store::HistoryLimits,
    telemetry::{limit_reached, show_limit},
    upstream::{Discovery, Upstream},
};

/// Stores that there can be at once. Requests for other resources are forwarded.
const STORES_MAX: usize = 1000;
/// Resources of which it is remembered that they cannot be cached. Whoever makes up names fills this, and not the places of stores;
/// what is forgotten is looked up again, in what discovery remembers.
const NOT_CACHED: Bound = Bound { most: 1000, limit: "uncached_resources" };
/// Reads that wait for fills at once: as many as a gateway has connections by default. Further ones are forwarded.
const WAITERS_MAX: usize = 10_000;

/// Why a resource cannot be answered from memory now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCached {
    /// The configuration excludes it.
    Excluded,
    /// It is being filled, or filled again.
    Filling,
    /// The last attempt to fill it failed, or what it held was given up; the next attempt begins after a pause.
    Unfilled,
    /// It was being filled when the drain began.
    Draining,
    UnknownResource,
    /// It cannot be listed and watched.
    NotWatchable,
    /// Another server behind upstream answers for it, by rules of its own.
    Aggregated,
    /// Upstream could not say what it is.
    Undiscovered,
    /// Custom resources have no protobuf.
    NotInProtobuf,
    /// As many others are cached as one gateway takes on.
    TooManyResources,
}

/// What cachers are made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Never cached.
    pub exclude: HashSet<GroupResource>,
    /// Started at once and never idle.
    pub prewarm: Vec<GroupResource>,
    /// A cache that nobody used for so long is stopped.
    pub idle_timeout: Duration,
    /// Bytes joined or compressed for lists that nobody asked for within this time are given back.
    pub list_bytes_timeout: Duration,
    pub history: HistoryLimits,
    /// A cache that upstream has forgotten is led to the new state, and its watches go on.
    pub bridge: bool,
    pub staleness: StalenessLimit,
}

/// The cachers of one upstream. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Cachers {
    pub(super) shared: Arc<Shared>,
}

/// One store: a resource in one encoding, with an upstream watch of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct StoreKey {
    pub(super) resource: GroupVersionResource,
    pub(super) encoding: Encoding,
}

pub(super) struct Shared {
    pub(super) entries: DashMap<StoreKey, Arc<Entry>>,
    pub(super) not_cached: Kept<StoreKey, NotCached>,
    /// What proves the stores of one resource to be recent, in all versions of the API: they are of the same objects.
    pub(super) freshness: DashMap<GroupResource, Arc<Freshness>>,
    pub(super) upstream: Upstream,
    pub(super) discovery: Discovery,
    pub(super) config: watch::Sender<Config>,
    /// What the configuration wanted warm when the gateway was started: until then it is not ready.
    required: Vec<GroupResource>,
    pub(super) tasks: Tasks,
    /// Places for reads that wait for a fill.
    pub(super) waiters: Semaphore,
    /// When watches end, once the gateway drains.
    pub(super) spread: Spread,
}

impl Cachers {
    /// Starts nothing yet. `tasks` runs the reflectors.
    pub fn new(upstream: Upstream, discovery: Discovery, config: Config, tasks: Tasks) -> Self {
        let (entries, not_cached, freshness) = (DashMap::new(), Kept::new(NOT_CACHED), DashMap::new());
        let (waiters, required) = (Semaphore::new(WAITERS_MAX), config.prewarm.clone());
        let config = watch::Sender::new(config);
        let spread = Spread::default();
        let shared = Arc::new(Shared {
            entries,
            not_cached,
            freshness,
            upstream,
            discovery,
            config,
            required,
            tasks,
            waiters,
            spread,
        });
        let [stores, waiting] = [Arc::downgrade(&shared), Arc::downgrade(&shared)];
        show_limit("cached_resources", move || Some((stores.upgrade()?.entries.len() as u64, STORES_MAX as u64)));
        let waiting = move || Some(WAITERS_MAX - waiting.upgrade()?.waiters.available_permits());
        show_limit("fill_waiters", move || Some((waiting()? as u64, WAITERS_MAX as u64)));
        Self { shared }
    }

    /// What there is to read of a resource in that encoding. The first who asks starts it.
    pub fn find(&self, resource: &GroupVersionResource, encoding: Encoding) -> Result<Arc<Instance>, NotCached> {
        if self.shared.is_excluded(resource) {
            return Err(NotCached::Excluded);
        }
        let key = StoreKey { resource: resource.clone(), encoding };
        if let Some(entry) = self.shared.entries.get(&key) {
            let instance = entry.instance()?;
            instance.touch();
            return Ok(instance);
        }
        Err(self.shared.not_cached.get(&key, Instant::now()).unwrap_or_else(|| self.start(key)))
    }

    /// The same. Where the cache is being filled, waits until that has ended, at most until `limit`: one fill serves all who
    /// wait for it.
    pub async fn filled(
        &self,
        resource: &GroupVersionResource,
        encoding: Encoding,
        limit: Instant,
    ) -> Result<Arc<Instance>, NotCached> {
        match self.find(resource, encoding) {
            Err(NotCached::Filling) => {}
            known => return known,
        }
        let Ok(_place) = self.shared.waiters.try_acquire() else {
            limit_reached("fill_waiters");
            return Err(NotCached::Filling);
        };
        let key = StoreKey { resource: resource.clone(), encoding };
        let entry = self.shared.entries.get(&key).map(|entry| entry.value().clone());
        let Some(entry) = entry else { return Err(NotCached::Unfilled) };
        timeout_at(limit, entry.filled()).await.unwrap_or(Err(NotCached::Filling))
    }

    /// Bytes of the objects in memory, of a resource whose cache is filled. Starts nothing.
    pub fn bytes(&self, resource: &GroupVersionResource, encoding: Encoding) -> Option<usize> {
        let entry = self.shared.entries.get(&StoreKey { resource: resource.clone(), encoding })?;
        Some(entry.instance().ok()?.bytes())
    }

    fn start(&self, key: StoreKey) -> NotCached {
        if self.shared.entries.len() >= STORES_MAX {
            limit_reached("cached_resources");
            return NotCached::TooManyResources;
        }
        let mut is_new = false;
        let entry = self.shared.entries.entry(key.clone()).or_insert_with(|| {
            is_new = true;
            Entry::filling()
        });
        if is_new {
            let (shared, entry) = (self.shared.clone(), entry.clone());
            self.shared.tasks.spawn("cacher", async move { shared.run(entry, key).await });
        }
        NotCached::Filling
    }

    /// The stores that have been started, and the resources to prewarm that have not: whether each is ready to answer,
    /// and whether it has to be.
    pub fn readiness(&self) -> Vec<(String, bool, bool)> {
        let config = self.shared.config.borrow();
        // What a changed configuration adds takes no gateway out of service that serves.
        let is_required =
            |resource: &GroupResource| self.shared.required.contains(resource) && config.prewarm.contains(resource);
        let row = |key: &StoreKey, entry: &Entry| {
            let required = key.encoding == Encoding::Json && is_required(&key.resource.group_resource());
            match entry.instance() {
                // Upstream cannot be heard: another gateway may be better.
                Ok(instance) if instance.is_stale() => Some((key.to_string(), false, true)),
                Ok(_) => Some((key.to_string(), true, required)),
                Err(NotCached::Filling | NotCached::Unfilled) => Some((key.to_string(), false, required)),
                Err(_) => required.then(|| (key.to_string(), false, true)),
            }
        };
        let entries = &self.shared.entries;
        let mut rows: Vec<_> = entries.iter().filter_map(|entry| row(entry.key(), entry.value())).collect();
        let started: HashSet<_> = entries.iter().map(|entry| entry.key().resource.group_resource()).collect();
        let missing = config.prewarm.iter().filter(|wanted| is_required(wanted) && !started.contains(wanted));
        rows.extend(missing.map(|wanted| (wanted.to_string(), false, true)));
        rows.sort();
        rows
    }

    /// Takes effect on caches that there are within seconds; `history`, `bridge` and `staleness` on those that are started from now on.
    pub fn set(&self, config: Config) {
        self.shared.config.send_replace(config);
    }

    /// Ends every watch within `time`, those that come from now on too, and reads that wait: the gateway is draining. Caches are
    /// followed until their tasks drain.
    pub fn drain(&self, time: Duration) {
        self.shared.spread.begin(time);
        for entry in &self.shared.entries {
            match entry.instance() {
                Ok(instance) => instance.hub.wake_all(),
                Err(_) => entry.not_ready(NotCached::Draining),
            }
        }
    }

    /// When watches end in a drain, forwarded ones too.
    pub fn spread(&self) -> &Spread {
        &self.shared.spread
    }
}

impl Shared {
    pub(super) fn is_excluded(&self, resource: &GroupVersionResource) -> bool {
        self.config.borrow().exclude.contains(&resource.group_resource())
    }

    pub(super) fn is_prewarmed(&self, resource: &GroupVersionResource) -> bool {
        self.config.borrow().prewarm.contains(&resource.group_resource())
    }
}

impl fmt::Display for StoreKey {
    /// `pods.v1`, `pods.v1/protobuf`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.encoding {
            Encoding::Json => self.resource.fmt(formatter),
            Encoding::Protobuf => write!(formatter, "{}/protobuf", self.resource),
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cachers").field("stores", &self.entries.len()).finish_non_exhaustive()
    }
}
