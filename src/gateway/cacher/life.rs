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
    cachers::{Shared, StoreKey},
    entry::Entry,
    events::EventHandler,
    instance::{Resource, Siblings},
};
use crate::{
    peers::ResourcePeers,
    upstream::{ApiResource, Crd, ResourceListWatch, ServedBy},
};
use base::{
    apimachinery::{CollectionScope, Encoding, selectable_fields},
    telemetry::{CacheMetrics, Chain},
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
/// How long a store of the whole cluster has to be filled before those of namespaces end: by then a bookmark has
/// brought their watches past the beginning of its history, so that they go on there.
const COVERED_FOR: Duration = Duration::from_secs(90);
/// How often gauges are updated and idle caches are detected.
const OBSERVE_EVERY: Duration = Duration::from_secs(5);

impl Shared {
    /// Runs a store from its first request until its resource is gone, idle, or found not to be cacheable.
    pub(super) async fn run(self: Arc<Self>, entry: Arc<Entry>, key: StoreKey) {
        let resource = &key.resource;
        let life = async {
            match self.discover(&key).await {
                Ok(found) => tokio::select! {
                    () = self.reflector(&entry, &key, found).run() => self.discovery.forget(resource),
                    () = entry.forbidden() => {
                        let error = "the gateway may not list and watch the collection";
                        tracing::debug!(store = %key, error, "cache stopped");
                        self.not_cached.insert(key.clone(), NotCached::Forbidden, FORBIDDEN_FOR);
                        self.entries.remove_if(&key, |_, now| Arc::ptr_eq(now, &entry));
                        entry.stop(NotCached::Forbidden, EndCause::Stopped);
                        return;
                    }
                    why = self.until_idle(&key, &entry) => {
                        let reason = if why == NotCached::Excluded { "excluded" } else { "idle" };
                        tracing::info!(store = %key, reason, "cache stopped");
                        self.entries.remove(&key);
                        entry.stop(why, EndCause::Stopped);
                        return;
                    }
                    never = self.extend_histories(&entry) => match never {},
                },
                Err(Unfit { why, known_for }) => {
                    tracing::debug!(store = %key, ?why, "resource not cached");
                    // Kept before the entry is removed, so that every lookup finds one or the other.
                    self.not_cached.insert(key.clone(), why, known_for);
                    self.entries.remove_if(&key, |_, now| Arc::ptr_eq(now, &entry));
                    entry.stop(why, EndCause::Stopped);
                    return;
                }
            }
            // That the resource is gone is remembered for a while; then the resource is looked up again.
            sleep(NOT_CACHED_FOR).await;
            self.entries.remove_if(&key, |_, now| Arc::ptr_eq(now, &entry));
        };
        tokio::select! {
            () = life => {}
            // The cache will not be filled any more, so reads must not wait for it.
            () = self.tasks.token().cancelled() => entry.not_ready(NotCached::Draining),
        }
        self.siblings.remove_if(&key.resource.group_resource(), |_, siblings| Arc::strong_count(siblings) == 1);
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
        if !api.namespaced && *scope != CollectionScope::Cluster {
            return Err(unfit(NotCached::Forbidden));
        }
        if api.served_by == ServedBy::Another {
            return Err(unfit(NotCached::Aggregated));
        }
        // Asked rather than tried: a refusal would be shown as trouble.
        if *scope == CollectionScope::Cluster
            && self.config.borrow().scopes.of_namespaces
            && self.upstream.may_follow(&resource.group_resource(), scope).await == Some(false)
        {
            return Err(Unfit { why: NotCached::Forbidden, known_for: FORBIDDEN_FOR });
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
        StoreKey { resource, scope, encoding }: &StoreKey,
        Found { api, definition }: Found,
    ) -> Reflector<ResourceListWatch, EventHandler, ResourcePeers> {
        let mut fields = selectable_fields(&resource.group_resource(), api.namespaced);
        if let Some(definition) = &definition {
            fields.extend(definition.selectable_fields(&resource.version));
        }
        let lowest = entry.lowest_rank();
        // Peers have the states of whole resources.
        let peers = self.peers.clone().filter(|_| *scope == CollectionScope::Cluster);
        let peers = ResourcePeers::new(peers, resource.clone(), *encoding, definition.as_ref(), lowest);
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
            is_given_up: self.config.borrow().scopes.of_namespaces,
            proofs: siblings.proofs(scope),
            siblings,
        };
        let evidence = kept.proofs.evidence().clone();
        let sink = EventHandler::new(entry.clone(), kept);
        let collection = Collection {
            resource: resource.group_resource(),
            kind: api.kind.into(),
            namespaced: api.namespaced,
            fields,
            encoding: *encoding,
        };
        let settings = {
            let config = self.config.borrow();
            Settings { history: config.history, bridges: config.bridge }
        };
        Reflector::new(upstream, sink, collection, settings, evidence).asking(peers)
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

    /// Returns when the cache is excluded, was not used for a while, or is not needed beside a wider one.
    async fn until_idle(&self, key: &StoreKey, entry: &Entry) -> NotCached {
        let (resource, wider, mut covered_since) = (&key.resource, key.wider(), None);
        let mut ticks = interval(OBSERVE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let started = Instant::now();
        let (mut swept, mut was_stale, mut unfilled_since) = (started, false, started);
        loop {
            ticks.tick().await;
            if self.is_excluded(resource) {
                return NotCached::Excluded;
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
            let is_covered = wider
                .as_ref()
                .is_some_and(|wider| self.entries.get(wider).is_some_and(|entry| entry.instance().is_ok()));
            covered_since = is_covered.then(|| covered_since.unwrap_or_else(Instant::now));
            if covered_since.is_some_and(|since: Instant| since.elapsed() >= COVERED_FOR) {
                return NotCached::Unfilled;
            }
            let is_idle = idle_since.is_some_and(|since| since.elapsed() >= idle_timeout);
            if is_idle && (wider.is_some() || !self.is_prewarmed(resource)) {
                return NotCached::Unfilled;
            }
        }
    }
}

/// A resource that cannot be cached.
struct Unfit {
    why: NotCached,
    /// How long this finding is used before the resource is looked up again.
    known_for: Duration,
}

struct Found {
    api: ApiResource,
    definition: Option<Crd>,
}
