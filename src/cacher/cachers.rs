//! All cachers, started on first use and stopped when nobody has used them for a while.

use std::{collections::HashSet, sync::Arc, time::Duration};

use dashmap::DashMap;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::{
    entry::Entry,
    instance::{Instance, Resource},
    sink::CacherSink,
};
use crate::{
    apimachinery::{GroupResource, GroupVersionResource, selectable_fields},
    fanout::EndCause,
    lifecycle::Tasks,
    reflector::Reflector,
    store::HistoryLimits,
    telemetry::{CacheMetrics, limit_reached},
    upstream::{ApiResource, Crd, Discovery, ResourceListWatch, Upstream},
};

/// Resources that can be cached at once. Requests for others are forwarded.
const RESOURCES_MAX: usize = 1000;
/// How long a resource that cannot be cached is not looked at again.
const NOT_CACHED_FOR: Duration = Duration::from_secs(10);
/// How often gauges are brought up to date and idleness is looked at.
const OBSERVE_EVERY: Duration = Duration::from_secs(5);

/// Why a resource cannot be answered from memory now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCached {
    /// The configuration excludes it.
    Excluded,
    /// It is being filled, or filled again.
    Filling,
    UnknownResource,
    /// It cannot be listed and watched.
    NotWatchable,
    /// Another server behind upstream answers for it, by rules of its own.
    Aggregated,
    /// Upstream could not say what it is.
    Undiscovered,
    /// As many others are cached as one gateway takes on.
    TooManyResources,
}

/// What cachers are made with.
#[derive(Clone, Debug)]
pub struct Config {
    pub exclude: HashSet<GroupResource>,
    /// Started at once and never idle.
    pub prewarm: Vec<GroupResource>,
    /// A cache that nobody used for so long is stopped.
    pub idle_timeout: Duration,
    pub history: HistoryLimits,
}

/// The cachers of one upstream. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Cachers {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    entries: DashMap<GroupVersionResource, Arc<Entry>>,
    pub(super) upstream: Upstream,
    discovery: Discovery,
    pub(super) config: Config,
    pub(super) tasks: Tasks,
}

impl Cachers {
    pub fn new(upstream: Upstream, discovery: Discovery, config: Config, tasks: Tasks) -> Self {
        Self { shared: Arc::new(Shared { entries: DashMap::new(), upstream, discovery, config, tasks }) }
    }

    /// What there is to read of a resource. The first who asks starts it.
    pub fn find(&self, resource: &GroupVersionResource) -> Result<Arc<Instance>, NotCached> {
        if self.shared.config.exclude.contains(&resource.group_resource()) {
            return Err(NotCached::Excluded);
        }
        if let Some(entry) = self.shared.entries.get(resource) {
            let instance = entry.instance()?;
            instance.touch();
            return Ok(instance);
        }
        Err(self.start(resource))
    }

    fn start(&self, resource: &GroupVersionResource) -> NotCached {
        if self.shared.entries.len() >= RESOURCES_MAX {
            limit_reached("cached_resources");
            return NotCached::TooManyResources;
        }
        let mut is_new = false;
        let entry = self.shared.entries.entry(resource.clone()).or_insert_with(|| {
            is_new = true;
            Entry::filling()
        });
        if is_new {
            let (shared, entry, resource) = (self.shared.clone(), entry.clone(), resource.clone());
            self.shared.tasks.spawn("cacher", async move { shared.run(entry, resource).await });
        }
        NotCached::Filling
    }

    /// The resources that have been started, whether each is ready to answer, and whether it has to be.
    pub fn readiness(&self) -> Vec<(String, bool, bool)> {
        let row = |resource: &GroupVersionResource, entry: &Entry| {
            let required = self.shared.config.prewarm.contains(&resource.group_resource());
            match entry.instance() {
                Ok(_) => Some((resource.to_string(), true, required)),
                Err(NotCached::Filling) => Some((resource.to_string(), false, required)),
                Err(_) => None,
            }
        };
        let mut rows: Vec<_> = self.shared.entries.iter().filter_map(|entry| row(entry.key(), entry.value())).collect();
        rows.sort();
        rows
    }

    /// Ends every watch: the gateway is draining.
    pub fn close(&self) {
        for entry in &self.shared.entries {
            if let Ok(instance) = entry.instance() {
                instance.hub.close(EndCause::Drained);
            }
        }
    }
}

impl Shared {
    /// A resource's life, from its first request until it is gone, idle or cannot be cached.
    async fn run(self: Arc<Self>, entry: Arc<Entry>, resource: GroupVersionResource) {
        let life = async {
            match self.discover(&resource).await {
                Ok(found) => tokio::select! {
                    () = self.reflector(&entry, &resource, found).run() => self.discovery.forget(&resource),
                    () = self.until_idle(&resource, &entry) => {
                        tracing::info!(%resource, "cache idle, stopped");
                        self.entries.remove(&resource);
                        entry.stop(NotCached::Filling, EndCause::Stopped);
                        return;
                    }
                },
                Err(why) => {
                    tracing::debug!(%resource, ?why, "not cached");
                    entry.stop(why, EndCause::Stopped);
                }
            }
            // What cannot be cached is remembered for a while, then looked at anew.
            sleep(NOT_CACHED_FOR).await;
            self.entries.remove_if(&resource, |_, now| Arc::ptr_eq(now, &entry));
        };
        tokio::select! {
            () = life => {}
            () = self.tasks.token().cancelled() => {}
        }
    }

    async fn discover(&self, resource: &GroupVersionResource) -> Result<Found, NotCached> {
        let found = self.discovery.resource(resource).await.map_err(|error| {
            tracing::warn!(%resource, %error, "discovery failed");
            NotCached::Undiscovered
        })?;
        let api = found.ok_or(NotCached::UnknownResource)?;
        if !api.is_watchable() {
            return Err(NotCached::NotWatchable);
        }
        if api.aggregated {
            return Err(NotCached::Aggregated);
        }
        let definition = self.upstream.crd(&resource.group_resource()).await.map_err(|error| {
            tracing::warn!(%resource, %error, "the resource's definition could not be read");
            NotCached::Undiscovered
        })?;
        Ok(Found { api, definition })
    }

    fn reflector(
        &self,
        entry: &Arc<Entry>,
        resource: &GroupVersionResource,
        Found { api, definition }: Found,
    ) -> Reflector<ResourceListWatch, CacherSink> {
        let mut fields = selectable_fields(&resource.group_resource(), api.namespaced);
        if let Some(definition) = &definition {
            fields.extend(definition.selectable_fields(&resource.version));
        }
        let upstream = ResourceListWatch::new(self.upstream.clone(), resource.clone(), definition);
        let metrics = Arc::new(CacheMetrics::new(resource));
        let resource =
            Resource { resource: resource.clone(), namespaced: api.namespaced, upstream: upstream.clone(), metrics };
        Reflector::new(upstream, CacherSink::new(entry.clone(), resource), api.kind.into(), fields, self.config.history)
    }

    async fn until_idle(&self, resource: &GroupVersionResource, entry: &Entry) {
        let mut ticks = interval(OBSERVE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let started = Instant::now();
        let wanted = self.config.prewarm.contains(&resource.group_resource());
        loop {
            ticks.tick().await;
            let idle_since = match entry.instance() {
                Ok(instance) => {
                    instance.observe();
                    instance.idle_since()
                }
                // Filling for as long as this: whoever asks next starts it again.
                Err(_) => Some(started),
            };
            if !wanted && idle_since.is_some_and(|since| since.elapsed() >= self.config.idle_timeout) {
                return;
            }
        }
    }
}

struct Found {
    api: ApiResource,
    definition: Option<Crd>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Cachers").field("resources", &self.entries.len()).finish_non_exhaustive()
    }
}
