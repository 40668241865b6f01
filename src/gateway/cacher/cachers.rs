//! All cachers: started on first use, and stopped when they have not been used for a while.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use dashmap::DashMap;
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::{Instant, timeout_at},
};

use super::{
    NotCached, Resumed,
    candidates::Candidates,
    entry::Entry,
    instance::{Instance, Siblings},
    staleness::StalenessLimit,
    store_key::{Prewarmed, StoreKey},
};
use crate::{
    peers::Peers,
    persist::States,
    upstream::{Discovery, Upstream},
};
use base::{
    apimachinery::{
        ElectionRank, Encoding, FieldSelector, GroupResource, GroupVersionResource, ResourceRequest, ResourceVersion,
    },
    config::CacheScope,
    fairness::ClientKey,
    lifecycle::{Spread, Tasks},
    memo::{Bound, TtlCache},
    telemetry::{limit_reached, show_limit},
};
use engine::store::{HistoryLimits, StoreBudget};

/// The maximum number of stores. Requests for other resources are forwarded.
const STORES_MAX: usize = 1000;
/// Bounds the remembered resources that cannot be cached. A client that invents names fills this memory, and not the
/// places of stores. A resource that was evicted is looked up again, in the results that discovery keeps.
const NOT_CACHED: Bound = Bound { most: 1000, limit: "uncached_resources" };
/// The maximum number of reads that wait for fills: as many as a gateway has connections by default. Further reads are
/// forwarded.
pub const FILL_WAITERS_MAX: usize = 10_000;

/// The configuration of all cachers.
#[derive(Clone, Debug)]
pub struct Config {
    /// Never cached.
    pub exclude: Arc<HashSet<GroupResource>>,
    /// Started immediately and never stopped as idle.
    pub prewarm: Vec<Prewarmed>,
    /// A cache that was not used for this long is stopped.
    pub idle_timeout: Duration,
    /// Bytes that were joined or compressed for lists are dropped if they were not used within this time.
    pub list_bytes_timeout: Duration,
    /// Objects that have not changed for this long are compressed; `None`: never.
    pub compress_after: Option<Duration>,
    /// The maximum of what all stores take, in bytes; `None`: no limit.
    pub bytes: Option<u64>,
    pub history: HistoryLimits,
    /// Whether a cache is kept, with its watches, when upstream has forgotten the changes after its version.
    pub bridge: bool,
    pub staleness: StalenessLimit,
    pub scopes: Scopes,
    /// Groups that are the API server's own, and whose definitions do not change, where the gateway may not look.
    pub trusted_groups: Arc<HashSet<String>>,
}

/// The cachers of one upstream. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Cachers {
    pub(super) shared: Arc<Shared>,
}

/// A cache in readyz. Rows of one name are in the order of their fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Readiness {
    pub name: String,
    pub is_ready: bool,
    /// Whether the gateway's readiness depends on it.
    pub is_required: bool,
    /// Why it will not be ready; empty if that is not known. Any client may read it: it names no user.
    pub reason: &'static str,
}

/// What the stores that are started cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scopes {
    pub policy: CacheScope,
    /// The maximum number of stores of one resource that cover less than the cluster.
    pub per_resource: usize,
}

pub(super) struct Shared {
    pub(super) entries: DashMap<StoreKey, Arc<Entry>>,
    pub(super) not_cached: TtlCache<StoreKey, NotCached>,
    /// What the stores of each resource share, in all encodings and versions of the API.
    pub(super) siblings: DashMap<GroupResource, Arc<Siblings>>,
    pub(super) upstream: Upstream,
    pub(super) discovery: Discovery,
    pub(super) peers: Option<Peers>,
    /// Where states survive the process.
    pub(super) states: Option<States>,
    /// Whether the last definition that was requested could not be read. The log then has a line about it.
    pub(super) has_no_definitions: AtomicBool,
    pub(super) config: watch::Sender<Config>,
    /// What was to be prewarmed at the start of the gateway, which is not ready before it is filled.
    required: Vec<Prewarmed>,
    /// Why something to prewarm is not cached, as far as that is known.
    pub(super) missing: Mutex<HashMap<Prewarmed, &'static str>>,
    pub(super) tasks: Tasks,
    /// Bounds the reads that wait for a fill.
    pub(super) waiters: Semaphore,
    /// The right to compress: of one leaf at a time, in all stores together.
    pub(super) compressing: Semaphore,
    /// The memory of all stores.
    pub(super) budget: StoreBudget,
    /// Notified when everything is to be compressed soon.
    pub(super) tight: Notify,
    /// Determines when watches end once the gateway drains.
    pub(super) spread: Spread,
}

impl Cachers {
    /// Starts nothing yet. `tasks` runs the reflectors. What is kept in `states`, and `peers`, are asked for the state
    /// of a new cache before upstream.
    pub fn new(
        upstream: Upstream,
        discovery: Discovery,
        (states, peers): (Option<States>, Option<Peers>),
        config: Config,
        tasks: Tasks,
    ) -> Self {
        let (entries, not_cached, siblings) = (DashMap::new(), TtlCache::new(NOT_CACHED), DashMap::new());
        let (waiters, required) = (Semaphore::new(FILL_WAITERS_MAX), config.prewarm.clone());
        let config = watch::Sender::new(config);
        let spread = Spread::default();
        let shared = Arc::new(Shared {
            entries,
            not_cached,
            siblings,
            upstream,
            discovery,
            peers,
            states,
            has_no_definitions: AtomicBool::new(false),
            config,
            required,
            missing: Mutex::default(),
            tasks,
            waiters,
            compressing: Semaphore::new(1),
            budget: StoreBudget::default(),
            tight: Notify::new(),
            spread,
        });
        let [stores, waiting, memory] = [(); 3].map(|()| Arc::downgrade(&shared));
        show_limit("cache_bytes", move || {
            let budget = &memory.upgrade()?.budget;
            Some((budget.used(), budget.limit().unwrap_or(0)))
        });
        show_limit("cached_resources", move || Some((stores.upgrade()?.entries.len() as u64, STORES_MAX as u64)));
        let waiting = move || Some(FILL_WAITERS_MAX - waiting.upgrade()?.waiters.available_permits());
        show_limit("fill_waiters", move || Some((waiting()? as u64, FILL_WAITERS_MAX as u64)));
        Self { shared }
    }

    /// What all caches follow.
    pub fn upstream(&self) -> &Upstream {
        &self.shared.upstream
    }

    /// The version that upstream last reported: see [`Upstream::last_version`].
    pub fn upstream_version(&self) -> Option<String> {
        self.shared.upstream.last_version()
    }

    /// The resources that are never cached. Callers of [`Self::find`] check this first: a cache of an excluded resource
    /// would be started, and stopped again within seconds.
    pub fn excluded(&self) -> Arc<HashSet<GroupResource>> {
        self.shared.config.borrow().exclude.clone()
    }

    /// The instance that answers reads of `target` with that field selector in that encoding. The first call starts a
    /// cache, which covers what [`CacheScope`] says.
    pub fn find(
        &self,
        target: &ResourceRequest,
        fields: Option<&FieldSelector>,
        encoding: Encoding,
    ) -> Result<Arc<Instance>, NotCached> {
        let Candidates { filled, started: [first, second] } = self.candidates(target, fields);
        let key = |scope| StoreKey::of(&target.resource, scope, encoding);
        if let Some(instance) = filled.into_iter().find_map(|scope| self.touch(&key(scope))) {
            return Ok(instance);
        }
        self.look(key(first.ok_or(NotCached::SingleObject)?)).or_else(|why| {
            let second = key(second.ok_or(why)?);
            if !matches!(why, NotCached::Forbidden | NotCached::TooManyScopes) {
                // Until the first is filled. Of what the API server does not serve itself, none is.
                let may_be_filled = matches!(
                    why,
                    NotCached::Filling
                        | NotCached::Unfilled
                        | NotCached::TooManyResources
                        | NotCached::Undiscovered
                        | NotCached::MemoryFull
                );
                return self.touch(&second).filter(|_| may_be_filled).ok_or(why);
            }
            self.look(second).map_err(|other| if other == NotCached::Forbidden { why } else { other })
        })
    }

    /// Like [`Self::find`], but waits while the cache is being filled, at most until `limit`. One fill serves all reads
    /// that wait for it.
    pub async fn filled(
        &self,
        target: &ResourceRequest,
        fields: Option<&FieldSelector>,
        encoding: Encoding,
        limit: Instant,
    ) -> Result<Arc<Instance>, NotCached> {
        match self.find(target, fields, encoding) {
            Err(NotCached::Filling) => {}
            known => return known,
        }
        let Ok(_place) = self.shared.waiters.try_acquire() else {
            limit_reached("fill_waiters");
            return Err(NotCached::Filling);
        };
        let started = self.candidates(target, fields).started;
        let keys = started.map(|scope| Some(StoreKey::of(&target.resource, scope?, encoding)));
        // The second one once the first is known to be forbidden.
        for _ in &keys {
            let filling = keys.iter().flatten().find_map(|key| {
                let entry = self.shared.entries.get(key)?;
                matches!(entry.instance(), Err(NotCached::Filling)).then(|| entry.value().clone())
            });
            if let Some(entry) = filling {
                match timeout_at(limit, entry.filled()).await.unwrap_or(Err(NotCached::Filling)) {
                    Err(NotCached::Forbidden) => {}
                    known => return known,
                }
            }
            match self.find(target, fields, encoding) {
                Err(NotCached::Filling) => {}
                known => return known,
            }
        }
        Err(NotCached::Filling)
    }

    fn candidates(&self, target: &ResourceRequest, fields: Option<&FieldSelector>) -> Candidates {
        Candidates::of(self.shared.config.borrow().scopes.policy, target, fields)
    }

    /// The instance of a store, if that is filled; counts as use.
    fn touch(&self, key: &StoreKey) -> Option<Arc<Instance>> {
        let instance = self.shared.entries.get(key)?.instance().ok()?;
        instance.touch();
        Some(instance)
    }

    /// The instance of a store, which is started if it is not there.
    fn look(&self, key: StoreKey) -> Result<Arc<Instance>, NotCached> {
        if let Some(entry) = self.shared.entries.get(&key) {
            let instance = entry.instance().inspect_err(|_| entry.ask())?;
            instance.touch();
            return Ok(instance);
        }
        Err(self.shared.not_cached.get(&key, Instant::now()).unwrap_or_else(|| self.start(key)))
    }

    /// Waits until history reaches back to `version`, from which a watch of `client` resumes, at most until `limit`.
    /// Meanwhile upstream is asked for what happened before the fill, once for all that wait.
    pub async fn resumed(
        &self,
        instance: &Instance,
        version: ResourceVersion,
        client: Option<ClientKey>,
        limit: Instant,
    ) -> Resumed {
        let Ok(_place) = self.shared.waiters.try_acquire() else {
            limit_reached("fill_waiters");
            return Resumed::No;
        };
        let wanted = instance.backfill.want(version, client);
        // After it was wanted: a drain that begins from here on ends the wait.
        if self.shared.spread.turn().is_some() {
            return Resumed::Draining;
        }
        timeout_at(limit, wanted.resumed(&instance.reader)).await.unwrap_or(Resumed::No)
    }

    /// The instance of a whole resource in that encoding, if its cache is filled. Starts nothing, and does not count as
    /// use.
    pub fn held(&self, resource: &GroupVersionResource, encoding: Encoding) -> Option<Arc<Instance>> {
        self.shared.entries.get(&StoreKey::whole(resource, encoding))?.instance().ok()
    }

    /// The lowest rank that this gateway knows of, for a peer that asks for the state of a cache; `None` unless the
    /// cache is being filled.
    pub fn rank(&self, resource: &GroupVersionResource, encoding: Encoding) -> Option<ElectionRank> {
        self.shared.entries.get(&StoreKey::whole(resource, encoding))?.rank()
    }

    /// The other gateways of the cluster.
    pub fn peers(&self) -> Option<&Peers> {
        self.shared.peers.as_ref()
    }

    /// The size in memory of a resource's objects, in bytes; `None` unless its cache is filled. Starts nothing.
    pub fn bytes(&self, resource: &GroupVersionResource, encoding: Encoding) -> Option<usize> {
        let entry = self.shared.entries.get(&StoreKey::whole(resource, encoding))?;
        Some(entry.instance().ok()?.bytes())
    }

    fn start(&self, key: StoreKey) -> NotCached {
        if self.shared.entries.len() >= STORES_MAX {
            limit_reached("cached_resources");
            return NotCached::TooManyResources;
        }
        if !self.shared.entries.contains_key(&key) && !self.shared.budget.has_room() {
            limit_reached("cache_bytes");
            return NotCached::MemoryFull;
        }
        let scopes = self.shared.config.borrow().scopes;
        let is_sibling = |other: &StoreKey| {
            !other.scope.is_cluster() && (&other.resource, other.encoding) == (&key.resource, key.encoding)
        };
        // One that was refused has no data, and is gone soon: namespaces that clients invent keep no place.
        let is_refused = |other: &Entry| matches!(other.instance(), Err(NotCached::Forbidden));
        let taken = |other: &StoreKey, entry: &Entry| is_sibling(other) && !is_refused(entry);
        if !key.scope.is_cluster()
            && self.shared.entries.iter().filter(|entry| taken(entry.key(), entry.value())).count()
                >= scopes.per_resource
        {
            limit_reached("scopes_per_resource");
            return NotCached::TooManyScopes;
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

    /// What is to be prewarmed, and the other started stores.
    pub fn readiness(&self) -> Vec<Readiness> {
        let config = self.shared.config.borrow();
        let missing = self.shared.missing.lock().unwrap_or_else(PoisonError::into_inner);
        // What a changed configuration adds must not make a serving gateway unready.
        let required = self.shared.required.iter().filter(|wanted| config.prewarm.contains(wanted));
        let mut rows: Vec<_> = required
            .clone()
            .map(|wanted| {
                let is_ready = self.shared.has(wanted);
                let reason = missing.get(wanted).copied().filter(|_| !is_ready).unwrap_or_default();
                Readiness { name: wanted.to_string(), is_ready, is_required: true, reason }
            })
            .collect();
        let row = |key: &StoreKey, entry: &Entry| {
            let (is_ready, is_required) = match entry.instance() {
                // Upstream is not reachable from here; another gateway may be better off. A namespace may be refused.
                Ok(instance) if instance.is_stale() => (false, key.scope.is_cluster()),
                Ok(_) => (true, false),
                Err(NotCached::Filling | NotCached::Unfilled) => (false, false),
                Err(_) => return None,
            };
            // It has the name that is configured, before and after its version is known.
            let is_required_already = |wanted: &Prewarmed| key.encoding == Encoding::Json && wanted.is(key);
            if required.clone().any(is_required_already) {
                return None;
            }
            // Any client may read it: it names no namespace of clients.
            let whole = StoreKey::whole(&key.resource, key.encoding);
            Some(Readiness { name: whole.to_string(), is_ready, is_required, reason: "" })
        };
        rows.extend(self.shared.entries.iter().filter_map(|entry| row(entry.key(), entry.value())));
        rows.sort();
        // Of several stores of a resource, one that is not ready.
        rows.dedup_by(|other, kept| other.name == kept.name);
        rows
    }

    /// Takes effect on existing caches within seconds. `history`, `bridge` and `staleness` must be the same as before:
    /// a reload of the configuration keeps them.
    pub fn set(&self, config: Config) {
        self.shared.config.send_replace(config);
    }

    /// Starts the drain: ends every watch within `time`, including new ones, and reads that wait for a fill. Caches are
    /// followed until their tasks drain.
    pub fn drain(&self, time: Duration) {
        self.shared.spread.begin(time);
        for entry in &self.shared.entries {
            match entry.instance() {
                Ok(instance) => {
                    instance.hub.wake_all();
                    instance.backfill.drain();
                }
                Err(_) => entry.not_ready(NotCached::Draining),
            }
        }
    }

    /// Determines when watches end in a drain, including forwarded ones.
    pub fn spread(&self) -> &Spread {
        &self.shared.spread
    }
}

impl Shared {
    pub(super) fn is_excluded(&self, resource: &GroupVersionResource) -> bool {
        self.config.borrow().exclude.contains(&resource.group_resource())
    }

    pub(super) fn is_trusted(&self, group: &str) -> bool {
        self.config.borrow().trusted_groups.contains(group)
    }

    /// Whether the store is one to keep. With the policy `auto` it may be the cluster's in place of a namespace's.
    pub(super) fn is_prewarmed(&self, key: &StoreKey) -> bool {
        let (config, resource) = (self.config.borrow(), key.resource.group_resource());
        let is_instead = config.scopes.policy == CacheScope::Auto && key.scope.is_cluster();
        config.prewarm.iter().any(|wanted| wanted.is(key) || is_instead && wanted.resource == resource)
    }

    /// Whether a store that has what is to be prewarmed, in any version of the API, is filled and not stale.
    pub(super) fn has(&self, wanted: &Prewarmed) -> bool {
        let covering = wanted.scope.covering();
        self.entries.iter().any(|entry| {
            let StoreKey { resource, scope, encoding } = entry.key();
            resource.group_resource() == wanted.resource
                && *encoding == Encoding::Json
                && covering.contains(scope)
                && entry.instance().is_ok_and(|instance| !instance.is_stale())
        })
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cachers").field("stores", &self.entries.len()).finish_non_exhaustive()
    }
}
