//! The life of one store: discovered, filled and followed, and stopped when it is idle or gone.

use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::{
    NotCached,
    backfill::GATHERED_FOR,
    cachers::Shared,
    entry::{Entry, GivenUp},
    events::EventHandler,
    instance::{Instance, OWN_WATCH_WAIT, Resource, Siblings},
    store_key::StoreKey,
};
use crate::{
    peers::ResourcePeers,
    persist::Sources,
    upstream::{ApiResource, Crd, ResourceListWatch, ServedBy},
};
use base::{
    apimachinery::{Encoding, selectable_fields},
    config::CacheScope,
    telemetry::{CacheMetrics, Chain, limit_reached},
};
use engine::{
    fanout::EndCause,
    reflector::{Collection, Reflector, Settings},
};

/// How long a resource that cannot be cached is not looked up again.
const NOT_CACHED_FOR: Duration = Duration::from_secs(10);
/// How long a custom resource is not looked up again in protobuf: it is rare that another server takes over the name of
/// a definition.
const NOT_IN_PROTOBUF_FOR: Duration = Duration::from_secs(600);
/// How long a resource is not looked up again whose definition could not be read: reads are forwarded meanwhile.
const UNDEFINED_FOR: Duration = Duration::from_secs(1);
/// How long a collection is not tried again that the gateway may not list and watch.
const FORBIDDEN_FOR: Duration = Duration::from_secs(60);
/// How long after a first refusal it is tried once more, before that is remembered.
const FORBIDDEN_AGAIN: Duration = Duration::from_secs(5);
/// How long a store has to be filled before those that it covers end: by then a bookmark has brought their watches past
/// the beginning of its history, so that they go on there.
const COVERED_FOR: Duration = Duration::from_secs(90);
/// How often gauges are updated and idle caches are detected.
const OBSERVE_EVERY: Duration = Duration::from_secs(5);

impl Shared {
    /// Runs a store from its first request until its resource is gone, idle, or found not to be cacheable.
    pub(super) async fn run(self: Arc<Self>, entry: Arc<Entry>, key: StoreKey) {
        let life = async {
            let mut ended = self.live(&entry, &key).await;
            if matches!(ended, Ended::Unfit(Unfit { why: NotCached::Forbidden, .. })) {
                // An API server that has just started refuses everything. Reads do not wait.
                entry.stop(NotCached::Forbidden, EndCause::Stopped);
                sleep(FORBIDDEN_AGAIN).await;
                ended = self.live(&entry, &key).await;
            }
            match ended {
                Ended::Unfit(Unfit { why, known_for }) => {
                    // Kept before the entry is removed, so that every lookup finds one or the other.
                    self.not_cached.insert(key.clone(), why, known_for);
                    self.entries.remove_if(&key, |_, now| Arc::ptr_eq(now, &entry));
                    entry.stop(why, EndCause::Stopped);
                }
                Ended::Stopped(why, reason) => {
                    self.forget_state(&key);
                    tracing::info!(store = %key, reason, "cache stopped");
                    self.entries.remove(&key);
                    entry.stop(why, EndCause::Stopped);
                }
                Ended::OverBudget(bytes) => {
                    limit_reached("cache_bytes");
                    let (error, limit) = ("it does not fit into cache.bytes", self.budget.limit());
                    // Of a store that was never filled, what was read by then.
                    tracing::warn!(store = %key, at_least = bytes, limit, error, "cache stopped");
                    entry.stop(NotCached::MemoryFull, EndCause::Stopped);
                    self.until_room_for(bytes).await;
                    self.entries.remove_if(&key, |_, now| Arc::ptr_eq(now, &entry));
                }
                Ended::Gone => {
                    self.forget_state(&key);
                    self.discovery.forget(&key.resource);
                    // Remembered for a while; then the resource is looked up again.
                    sleep(NOT_CACHED_FOR).await;
                    self.entries.remove_if(&key, |_, now| Arc::ptr_eq(now, &entry));
                }
            }
        };
        tokio::select! {
            () = life => {}
            // The cache will not be filled any more, so reads must not wait for it.
            () = self.tasks.token().cancelled() => entry.not_ready(NotCached::Draining),
        }
        self.siblings.remove_if(&key.resource.group_resource(), |_, siblings| Arc::strong_count(siblings) == 1);
    }

    /// Looks the resource up, then fills the store and follows upstream, until that ends.
    async fn live(&self, entry: &Arc<Entry>, key: &StoreKey) -> Ended {
        let found = match self.discover(key).await {
            Ok(found) => found,
            Err(unfit) => {
                tracing::debug!(store = %key, why = ?unfit.why, "resource not cached");
                return Ended::Unfit(unfit);
            }
        };
        tokio::select! {
            () = self.reflector(entry, key, found).run() => Ended::Gone,
            why = entry.given_up() => {
                if let GivenUp::OverBudget(bytes) = why {
                    return Ended::OverBudget(bytes);
                }
                let error = "the gateway may not list and watch the collection";
                // Before a fill, many that clients name are refused.
                if entry.instance().is_ok() {
                    tracing::warn!(store = %key, error, "cache stopped");
                } else {
                    tracing::debug!(store = %key, error, "cache stopped");
                }
                Ended::Unfit(FORBIDDEN)
            }
            ended = self.until_idle(key, entry) => ended,
            never = self.extend_histories(entry) => match never {},
            never = self.compress(entry) => match never {},
            never = Box::pin(self.persist(entry, key)) => match never {},
        }
    }

    async fn discover(&self, StoreKey { resource, scope, encoding }: &StoreKey) -> Result<Found, Unfit> {
        let unfit = |why| Unfit { why, known_for: NOT_CACHED_FOR };
        let found = self.discovery.resource(resource).await.map_err(|error| {
            tracing::debug!(%resource, error = %Chain(&error), "discovery failed");
            // Discovery itself knows when to ask again.
            Unfit { why: NotCached::Undiscovered, known_for: Duration::ZERO }
        })?;
        let api = found.ok_or(unfit(NotCached::UnknownResource))?;
        if !api.is_watchable() {
            return Err(unfit(NotCached::NotWatchable));
        }
        if !api.namespaced && scope.namespace.is_some() {
            return Err(unfit(NotCached::Forbidden));
        }
        if api.served_by == ServedBy::Another {
            return Err(unfit(NotCached::Aggregated));
        }
        // Asked rather than tried: a refusal would be shown as trouble. Rights on a selection may be narrower than the
        // question.
        if scope.selection.is_none()
            && self.config.borrow().scopes.policy != CacheScope::Cluster
            && self.upstream.may_follow(&resource.group_resource(), scope).await == Some(false)
        {
            return Err(FORBIDDEN);
        }
        let is_trusted = self.is_trusted(&resource.group);
        let definition = match self.upstream.crd(&resource.group_resource()).await {
            Err(error) if is_trusted && error.is_forbidden() => {
                // Custom resources have no protobuf, and other groups with a dot are Kubernetes' own.
                if resource.group.contains('.')
                    && !resource.group.ends_with(".k8s.io")
                    && *encoding == Encoding::Protobuf
                {
                    return Err(Unfit { why: NotCached::NotInProtobuf, known_for: NOT_IN_PROTOBUF_FOR });
                }
                Ok(None)
            }
            definition => definition,
        };
        let definition = definition.map_err(|error| {
            // The herd that comes when an API server starts waits for its first answer, as it does for discovery.
            let known_for = if error.is_refused_connection() { Duration::ZERO } else { UNDEFINED_FOR };
            if !known_for.is_zero() && !self.has_no_definitions.swap(true, Relaxed) {
                tracing::warn!(%resource, error = %Chain(&error), "cannot read CustomResourceDefinitions");
            }
            tracing::debug!(%resource, error = %Chain(&error), "cannot read the resource's CustomResourceDefinition");
            Unfit { why: NotCached::Undiscovered, known_for }
        })?;
        if definition.is_some() && self.has_no_definitions.swap(false, Relaxed) {
            tracing::info!("CustomResourceDefinitions can be read again");
        }
        // If upstream refuses to say which server answers, a definition shows that it is the API server itself.
        if api.served_by == ServedBy::Unknown && definition.is_none() && !is_trusted {
            return Err(unfit(NotCached::Unattributed));
        }
        if definition.is_some() && *encoding == Encoding::Protobuf {
            return Err(Unfit { why: NotCached::NotInProtobuf, known_for: NOT_IN_PROTOBUF_FOR });
        }
        Ok(Found { api, definition })
    }

    fn reflector(
        &self,
        entry: &Arc<Entry>,
        key: &StoreKey,
        Found { api, definition }: Found,
    ) -> Reflector<ResourceListWatch, EventHandler, Sources> {
        let StoreKey { resource, scope, encoding } = key;
        let mut fields = selectable_fields(&resource.group_resource(), api.namespaced);
        if let Some(definition) = &definition {
            fields.extend(definition.selectable_fields(&resource.version));
        }
        let lowest = entry.lowest_rank();
        // Peers have the states of whole resources.
        let peers = self.peers.clone().filter(|_| scope.is_cluster());
        let peers = ResourcePeers::new(peers, resource.clone(), *encoding, definition.as_ref(), lowest);
        let state_file = self.state_file(key);
        let sources = Sources::new(state_file.clone(), peers, self.upstream.clone());
        let upstream = ResourceListWatch::new(
            self.upstream.clone(),
            resource.clone(),
            scope.clone(),
            api.namespaced,
            *encoding,
            definition,
        );
        let siblings = self.siblings.entry(resource.group_resource());
        let siblings = siblings.or_insert_with(|| Arc::new(Siblings::of(self.upstream.storage().clone()))).clone();
        let kept = Resource {
            resource: resource.clone(),
            scope: scope.clone(),
            namespaced: api.namespaced,
            upstream: upstream.clone(),
            metrics: Arc::new(CacheMetrics::new(resource, scope, *encoding)),
            staleness_limit: self.config.borrow().staleness,
            spread: self.spread.clone(),
            backfill_wanted: entry.backfill_wanted(),
            is_given_up: self.config.borrow().scopes.policy != CacheScope::Cluster,
            proofs: siblings.proofs(scope),
            siblings,
        };
        let evidence = kept.proofs.evidence().clone();
        let sink = EventHandler::new(entry.clone(), kept, state_file);
        let collection = Collection {
            resource: resource.group_resource(),
            kind: api.kind.into(),
            namespaced: api.namespaced,
            fields,
            encoding: *encoding,
        };
        let settings = {
            let config = self.config.borrow();
            Settings { history: config.history, bridges: config.bridge, budget: self.budget.clone() }
        };
        Reflector::new(upstream, sink, collection, settings, evidence).asking(sources)
    }

    /// Lets the history of each fill begin earlier if clients wait for that.
    async fn extend_histories(&self, entry: &Entry) -> Infallible {
        let wanted = entry.backfill_wanted();
        loop {
            wanted.notified().await;
            sleep(GATHERED_FOR).await;
            if let Ok(instance) = entry.instance() {
                instance.extend_history().await;
            }
        }
    }

    /// The instance of a wider store that is filled and follows upstream.
    fn covering(&self, wider: &[StoreKey]) -> Option<Arc<Instance>> {
        let filled = wider.iter().filter_map(|key| self.entries.get(key)?.instance().ok());
        filled.into_iter().find(|instance| instance.is_followed() && !instance.is_stale())
    }

    /// Whether a store may end because a wider one has all that it has. Clients that do not accept bookmarks may take
    /// any end of a watch for the last one, and such a watch ends by itself.
    fn may_end(&self, key: &StoreKey, entry: &Entry) -> bool {
        let is_kept = self.is_prewarmed(key) && self.config.borrow().scopes.policy != CacheScope::Auto;
        !is_kept && !entry.instance().is_ok_and(|instance| instance.hub.has_lasting())
    }

    /// Returns when the cache is excluded, was not used for a while, or is not needed beside a wider one.
    async fn until_idle(&self, key: &StoreKey, entry: &Entry) -> Ended {
        let (resource, wider, mut covered_since) = (&key.resource, key.wider(), None::<Instant>);
        let mut ticks = interval(OBSERVE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let started = Instant::now();
        let (mut swept, mut was_stale, mut unfilled_since) = (started, false, started);
        loop {
            ticks.tick().await;
            if self.is_excluded(resource) {
                return Ended::Stopped(NotCached::Excluded, "excluded");
            }
            let (list_bytes_timeout, idle_timeout) = {
                let config = self.config.borrow();
                (config.list_bytes_timeout, config.idle_timeout)
            };
            let idle_since = match entry.instance() {
                Ok(instance) => {
                    unfilled_since = Instant::now();
                    if swept.elapsed() >= list_bytes_timeout {
                        instance.reader.sweep();
                        swept = Instant::now();
                    }
                    if instance.refuses_watches() {
                        instance.hub.end_stale();
                    }
                    if instance.is_stale() != was_stale {
                        was_stale = !was_stale;
                        let event = if was_stale { "cache is stale" } else { "cache is no longer stale" };
                        tracing::warn!(store = %instance.resource, stale = was_stale, "{event}");
                    }
                    instance.reader.trim_history();
                    instance.observe();
                    instance.idle_since()
                }
                // The cache is being filled, for the first time or again, which may take longer than the idle timeout.
                Err(_) => entry.unasked_since().map(|since| since.max(unfilled_since)),
            };
            let covering = self.covering(&wider);
            covered_since = covering.as_ref().map(|_| covered_since.unwrap_or_else(Instant::now));
            if let Some(covering) = covering
                && covered_since.is_some_and(|since| covering.filled_since.max(since).elapsed() >= COVERED_FOR)
                && self.may_end(key, entry)
                && has_reached(&covering, entry).await
            {
                return Ended::Stopped(NotCached::Unfilled, "a wider cache has it");
            }
            let is_idle = idle_since.is_some_and(|since| since.elapsed() >= idle_timeout);
            if is_idle && !self.is_prewarmed(key) {
                return Ended::Stopped(NotCached::Unfilled, "idle");
            }
        }
    }
}

/// Whether the wider store has all that the store of `entry` has, so that it gives no client an older state.
async fn has_reached(wider: &Instance, entry: &Entry) -> bool {
    match entry.instance() {
        // Boxed: it is rare, and the task of every store would carry its size.
        Ok(instance) => Box::pin(wider.reach(instance.progress(), OWN_WATCH_WAIT)).await.is_ok(),
        Err(_) => true,
    }
}

/// How the life of a store has ended.
enum Ended {
    /// The resource cannot be cached.
    Unfit(Unfit),
    /// It is excluded now, idle, or not needed beside a wider one: the word for the log.
    Stopped(NotCached, &'static str),
    /// There is no memory for it; it takes at least this number of bytes.
    OverBudget(u64),
    /// Upstream does not serve the resource any more.
    Gone,
}

/// A resource that cannot be cached.
struct Unfit {
    why: NotCached,
    /// How long this finding is used before the resource is looked up again.
    known_for: Duration,
}

/// The gateway may not list and watch the collection.
const FORBIDDEN: Unfit = Unfit { why: NotCached::Forbidden, known_for: FORBIDDEN_FOR };

struct Found {
    api: ApiResource,
    definition: Option<Crd>,
}
