//! All cachers: started on first use, and stopped when they have not been used for a while.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use dashmap::DashMap;
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout_at},
};

use super::{
    NotCached, Resumed,
    entry::Entry,
    instance::{Instance, Siblings},
    staleness::StalenessLimit,
};
use crate::{
    peers::Peers,
    upstream::{Discovery, Upstream},
};
use base::{
    apimachinery::{CollectionScope, ElectionRank, Encoding, GroupResource, GroupVersionResource, ResourceVersion},
    fairness::ClientKey,
    lifecycle::{Spread, Tasks},
    memo::{Bound, TtlCache},
    telemetry::{limit_reached, show_limit},
};
use engine::store::HistoryLimits;

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
    pub prewarm: Vec<GroupResource>,
    /// A cache that was not used for this long is stopped.
    pub idle_timeout: Duration,
    /// Bytes that were joined or compressed for lists are dropped if they were not used within this time.
    pub list_bytes_timeout: Duration,
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

/// Identifies a store: a part of a resource's collection in one encoding, with its own upstream watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct StoreKey {
    pub(super) resource: GroupVersionResource,
    pub(super) scope: CollectionScope,
    pub(super) encoding: Encoding,
}

/// What the stores that are started cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scopes {
    /// Whether a namespace is cached by itself where the gateway may not list and watch the resource in the cluster.
    pub of_namespaces: bool,
    /// The maximum number of such namespaces of one resource.
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
    /// Whether the last definition that was requested could not be read. The log then has a line about it.
    pub(super) has_no_definitions: AtomicBool,
    pub(super) config: watch::Sender<Config>,
    /// The resources to prewarm at the start of the gateway, which is not ready before they are filled.
    required: Vec<GroupResource>,
    /// Why resources to prewarm are not cached, as far as that is known.
    pub(super) missing: Mutex<HashMap<GroupResource, &'static str>>,
    pub(super) tasks: Tasks,
    /// Bounds the reads that wait for a fill.
    pub(super) waiters: Semaphore,
    /// Determines when watches end once the gateway drains.
    pub(super) spread: Spread,
}

impl Cachers {
    /// Starts nothing yet. `tasks` runs the reflectors. `peers` are asked for the state of a new cache before upstream.
    pub fn new(upstream: Upstream, discovery: Discovery, peers: Option<Peers>, config: Config, tasks: Tasks) -> Self {
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
            has_no_definitions: AtomicBool::new(false),
            config,
            required,
            missing: Mutex::default(),
            tasks,
            waiters,
            spread,
        });
        let [stores, waiting] = [Arc::downgrade(&shared), Arc::downgrade(&shared)];
        show_limit("cached_resources", move || Some((stores.upgrade()?.entries.len() as u64, STORES_MAX as u64)));
        let waiting = move || Some(FILL_WAITERS_MAX - waiting.upgrade()?.waiters.available_permits());
        show_limit("fill_waiters", move || Some((waiting()? as u64, FILL_WAITERS_MAX as u64)));
        Self { shared }
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

    /// The instance that covers reads of a resource in that encoding: in a namespace, or, if that is `None`, in the
    /// cluster. The first call starts its cache.
    ///
    /// The one of the cluster is preferred. Where the gateway's rights do not suffice for it, that of the namespace is
    /// used; from time to time the cluster's is tried again, and a namespace's answers meanwhile.
    pub fn find(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
        encoding: Encoding,
    ) -> Result<Arc<Instance>, NotCached> {
        self.look(StoreKey::whole(resource, encoding)).or_else(|why| {
            let narrow = self.narrow(resource, namespace, encoding).ok_or(why)?;
            if why == NotCached::Forbidden {
                return self.look(narrow);
            }
            let instance = self.shared.entries.get(&narrow).and_then(|entry| entry.instance().ok()).ok_or(why)?;
            instance.touch();
            Ok(instance)
        })
    }

    /// Like [`Self::find`], but waits while the cache is being filled, at most until `limit`. One fill serves all reads
    /// that wait for it.
    pub async fn filled(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
        encoding: Encoding,
        limit: Instant,
    ) -> Result<Arc<Instance>, NotCached> {
        match self.find(resource, namespace, encoding) {
            Err(NotCached::Filling) => {}
            known => return known,
        }
        let Ok(_place) = self.shared.waiters.try_acquire() else {
            limit_reached("fill_waiters");
            return Err(NotCached::Filling);
        };
        // First that of the cluster; then, if that is forbidden, that of the namespace.
        let keys = [Some(StoreKey::whole(resource, encoding)), self.narrow(resource, namespace, encoding)];
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
            match self.find(resource, namespace, encoding) {
                Err(NotCached::Filling) => {}
                known => return known,
            }
        }
        Err(NotCached::Filling)
    }

    /// The store of a namespace alone, if there may be one.
    fn narrow(&self, resource: &GroupVersionResource, namespace: Option<&str>, encoding: Encoding) -> Option<StoreKey> {
        let namespace = namespace.filter(|_| self.shared.config.borrow().scopes.of_namespaces)?;
        let scope = CollectionScope::Namespace(namespace.into());
        Some(StoreKey { resource: resource.clone(), scope, encoding })
    }

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
        let scopes = self.shared.config.borrow().scopes;
        let is_sibling = |other: &StoreKey| {
            other.scope != CollectionScope::Cluster
                && (&other.resource, other.encoding) == (&key.resource, key.encoding)
        };
        if key.scope != CollectionScope::Cluster
            && self.shared.entries.iter().filter(|entry| is_sibling(entry.key())).count() >= scopes.per_resource
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

    /// The started stores, and the resources to prewarm that are not started yet.
    pub fn readiness(&self) -> Vec<Readiness> {
        let config = self.shared.config.borrow();
        let missing = self.shared.missing.lock().unwrap_or_else(PoisonError::into_inner);
        let why = |resource: &GroupResource| missing.get(resource).copied().unwrap_or_default();
        let named = |name, is_ready, is_required| Readiness { name, is_ready, is_required, reason: "" };
        // A resource that a changed configuration adds must not make a serving gateway unready.
        let is_required =
            |resource: &GroupResource| self.shared.required.contains(resource) && config.prewarm.contains(resource);
        let row = |key: &StoreKey, entry: &Entry| {
            let is_whole = key.encoding == Encoding::Json && key.scope == CollectionScope::Cluster;
            let required = is_whole && is_required(&key.resource.group_resource());
            // As it is configured, so that it has one name before and after its version is known.
            let name = if required { key.resource.group_resource().to_string() } else { key.to_string() };
            match entry.instance() {
                // Upstream is not reachable from here; another gateway may be better off.
                Ok(instance) if instance.is_stale() => Some(named(name, false, true)),
                Ok(_) => Some(named(name, true, required)),
                Err(NotCached::Filling | NotCached::Unfilled) if !required => Some(named(name, false, false)),
                Err(_) => required
                    .then(|| Readiness { reason: why(&key.resource.group_resource()), ..named(name, false, true) }),
            }
        };
        let entries = &self.shared.entries;
        let mut rows: Vec<_> = entries.iter().filter_map(|entry| row(entry.key(), entry.value())).collect();
        let started: HashSet<_> = entries.iter().map(|entry| entry.key().resource.group_resource()).collect();
        let unstarted = config.prewarm.iter().filter(|wanted| is_required(wanted) && !started.contains(wanted));
        rows.extend(
            unstarted.map(|wanted| Readiness { reason: why(wanted), ..named(wanted.to_string(), false, true) }),
        );
        rows.sort();
        // A required resource in two versions of the API is one row, the one that is not ready.
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

    pub(super) fn is_prewarmed(&self, resource: &GroupVersionResource) -> bool {
        self.config.borrow().prewarm.contains(&resource.group_resource())
    }
}

impl StoreKey {
    fn whole(resource: &GroupVersionResource, encoding: Encoding) -> Self {
        Self { resource: resource.clone(), scope: CollectionScope::Cluster, encoding }
    }

    /// The store of the whole cluster, if this one is of a namespace.
    pub(super) fn wider(&self) -> Option<Self> {
        (self.scope != CollectionScope::Cluster).then(|| Self::whole(&self.resource, self.encoding))
    }
}

impl fmt::Display for StoreKey {
    /// For example `pods.v1`, `pods.v1/protobuf` or `pods.v1 in a`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, scope, encoding } = self;
        match encoding {
            Encoding::Json => write!(formatter, "{resource}{scope}"),
            Encoding::Protobuf => write!(formatter, "{resource}/protobuf{scope}"),
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cachers").field("stores", &self.entries.len()).finish_non_exhaustive()
    }
}
