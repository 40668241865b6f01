//! Metrics of one cache. The handles are created once, so that changes and events need no label lookup.

use std::{
    collections::HashSet,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use metrics::{Counter, Gauge, Label, counter, gauge};
use tokio::time::Instant;

use crate::apimachinery::{CollectionScope, Encoding, GroupResource, GroupVersionResource, ResourceVersion};
use crate::telemetry::metrics::{
    CACHE_BRIDGES, CACHE_COLD_BYTES, CACHE_DEFLATED_BYTES, CACHE_DERIVED_BYTES, CACHE_EPOCH, CACHE_FILLS,
    CACHE_HISTORY_BYTES, CACHE_HISTORY_CHANGES, CACHE_JOINED_BYTES, CACHE_OBJECT_BYTES, CACHE_OBJECTS,
    CACHE_PROGRESS_LAG, CACHE_PROGRESS_VERSION, CACHE_RESOURCE_VERSION, CACHE_STALENESS, CACHE_VERIFICATIONS,
    FRESHNESS_PROOFS, HISTORY_EXTENSIONS, REFLECTOR_RESTARTS, RELAYED_WATCHES_ENDED, UPSTREAM_WATCHES, WATCH_EVENTS,
    WATCHERS, WATCHES_ENDED,
};

/// The metrics of one cache. Its gauges are set to zero when it is dropped.
#[derive(Debug)]
pub struct CacheMetrics {
    labels: Vec<Label>,
    objects: Gauge,
    object_bytes: Gauge,
    cold_bytes: Gauge,
    joined_bytes: Gauge,
    deflated_bytes: Gauge,
    derived_bytes: Gauge,
    resource_version: Gauge,
    progress_version: Gauge,
    epoch: Gauge,
    staleness: Gauge,
    history_changes: Gauge,
    history_bytes: Gauge,
    watchers: Gauge,
    upstream_watches: Gauge,
    watch_events: Counter,
    progress: Arc<Progress>,
}

/// The scopes that have had series of their own, by resource. Series last as long as the process, and clients may name
/// any number of namespaces.
#[derive(Debug, Default)]
struct NamedScopes(Mutex<HashSet<(GroupResource, CollectionScope)>>);

static NAMED: LazyLock<NamedScopes> = LazyLock::new(NamedScopes::default);
/// The maximum number of scopes with series of their own.
const NAMED_MAX: usize = 1000;
/// The label of all others.
const OTHER: &str = "other";

impl NamedScopes {
    fn label(&self, resource: &GroupVersionResource, scope: &CollectionScope) -> String {
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (resource.group_resource(), scope.clone());
        let is_named = named.contains(&name) || named.len() < NAMED_MAX && named.insert(name);
        if is_named { scope.to_string() } else { OTHER.to_owned() }
    }
}

impl CacheMetrics {
    pub fn new(resource: &GroupVersionResource, scope: &CollectionScope, encoding: Encoding) -> Self {
        let mut labels = vec![
            Label::new("resource", resource.group_resource().to_string()),
            Label::new("version", resource.version.clone()),
            Label::from_static_parts("encoding", encoding.as_str()),
        ];
        if !scope.is_cluster() {
            labels.push(Label::new("scope", NAMED.label(resource, scope)));
        }
        let progress = Arc::new(Progress { at: Mutex::new(None), lag: gauge!(CACHE_PROGRESS_LAG, labels.iter()) });
        live().push(Arc::downgrade(&progress));
        Self {
            objects: gauge!(CACHE_OBJECTS, labels.iter()),
            object_bytes: gauge!(CACHE_OBJECT_BYTES, labels.iter()),
            cold_bytes: gauge!(CACHE_COLD_BYTES, labels.iter()),
            joined_bytes: gauge!(CACHE_JOINED_BYTES, labels.iter()),
            deflated_bytes: gauge!(CACHE_DEFLATED_BYTES, labels.iter()),
            derived_bytes: gauge!(CACHE_DERIVED_BYTES, labels.iter()),
            resource_version: gauge!(CACHE_RESOURCE_VERSION, labels.iter()),
            progress_version: gauge!(CACHE_PROGRESS_VERSION, labels.iter()),
            epoch: gauge!(CACHE_EPOCH, labels.iter()),
            staleness: gauge!(CACHE_STALENESS, labels.iter()),
            history_changes: gauge!(CACHE_HISTORY_CHANGES, labels.iter()),
            history_bytes: gauge!(CACHE_HISTORY_BYTES, labels.iter()),
            watchers: gauge!(WATCHERS, labels.iter()),
            upstream_watches: gauge!(UPSTREAM_WATCHES, labels.iter()),
            watch_events: counter!(WATCH_EVENTS, labels.iter()),
            progress,
            labels,
        }
    }

    /// Sets the number of objects in the cache, the size of the encoded objects in bytes, and how many of these bytes
    /// are kept compressed only.
    pub fn set_objects(&self, objects: usize, bytes: u64, cold: u64) {
        self.objects.set(objects as f64);
        self.object_bytes.set(bytes as f64);
        self.cold_bytes.set(cold as f64);
    }

    /// Sets the bytes that were joined for lists, and are shared by them.
    pub fn set_joined(&self, bytes: u64) {
        self.joined_bytes.set(bytes as f64);
    }

    /// Sets the bytes that were compressed for gzip lists, and are shared by them.
    pub fn set_deflated(&self, bytes: u64) {
        self.deflated_bytes.set(bytes as f64);
    }

    /// Sets the bytes of metadata in other forms than upstream's, kept with the objects.
    pub fn set_derived(&self, bytes: u64) {
        self.derived_bytes.set(bytes as f64);
    }

    /// Sets the version of the cache. Called when the gauges are updated.
    pub fn set_resource_version(&self, version: ResourceVersion) {
        self.resource_version.set(version.value() as f64);
    }

    /// Sets the version up to which upstream has just shown the cache to be complete. The lag restarts at zero.
    pub fn set_progress(&self, version: ResourceVersion) {
        self.progress_version.set(version.value() as f64);
        *self.progress.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Sets the size of the history; `bytes` is what it holds besides the newest state.
    pub fn set_history(&self, changes: usize, bytes: u64) {
        self.history_changes.set(changes as f64);
        self.history_bytes.set(bytes as f64);
    }

    /// Sets the number of fills that began a new store.
    pub fn set_epoch(&self, epoch: u64) {
        self.epoch.set(epoch as f64);
    }

    /// Sets how long the cache has been without an upstream watch. Called when the gauges are updated.
    pub fn set_staleness(&self, staleness: Duration) {
        self.staleness.set(staleness.as_secs_f64());
    }

    /// Sets whether an upstream watch is open for the cache.
    pub fn set_followed(&self, is_followed: bool) {
        self.upstream_watches.set(if is_followed { 1.0 } else { 0.0 });
    }

    /// Counts a watch as open, until [`Self::watch_ended`] is called once.
    pub fn watch_started(&self) {
        self.watchers.increment(1.0);
    }

    /// Counts the end of a watch. `cause` is a value of an enum.
    pub fn watch_ended(&self, cause: &'static str) {
        self.watchers.decrement(1.0);
        self.count(WATCHES_ENDED, "cause", cause);
    }

    /// Counts a forwarded watch that is ended because its client can resume it from the cache.
    pub fn relayed_watch_ended(&self) {
        counter!(RELAYED_WATCHES_ENDED, self.labels.iter()).increment(1);
    }

    /// Counts events that were passed to a watch's connection, bookmarks included.
    pub fn events_sent(&self, events: u64) {
        self.watch_events.increment(events);
    }

    /// Counts that the reflector has to list or watch again. `cause` is a value of an enum.
    pub fn reflector_restarted(&self, cause: &'static str) {
        self.count(REFLECTOR_RESTARTS, "cause", cause);
    }

    /// Counts a finished freshness proof. `outcome` is a value of an enum.
    pub fn freshness_proof(&self, outcome: &'static str) {
        self.count(FRESHNESS_PROOFS, "outcome", outcome);
    }

    /// Counts a comparison of the cache with upstream. `outcome` is a value of an enum.
    pub fn verified(&self, outcome: &'static str) {
        self.count(CACHE_VERIFICATIONS, "outcome", outcome);
    }

    /// Counts a fill that was not bridged. `source` is a value of an enum.
    pub fn filled(&self, source: &'static str) {
        self.count(CACHE_FILLS, "source", source);
    }

    /// Counts that the cache was filled again. `outcome` says whether its watches continued, or is a value of an enum
    /// that says why not.
    pub fn bridged(&self, outcome: &'static str) {
        self.count(CACHE_BRIDGES, "outcome", outcome);
    }

    /// Counts an attempt to let history begin before the fill. `outcome` is a value of an enum.
    pub fn history_extended(&self, outcome: &'static str) {
        self.count(HISTORY_EXTENSIONS, "outcome", outcome);
    }

    /// Creates the labels on each call; only for rare events.
    fn count(&self, name: &'static str, label: &'static str, value: &'static str) {
        let mut labels = self.labels.clone();
        labels.push(Label::from_static_parts(label, value));
        counter!(name, labels).increment(1);
    }
}

impl Drop for CacheMetrics {
    fn drop(&mut self) {
        for gauge in [
            &self.objects,
            &self.object_bytes,
            &self.cold_bytes,
            &self.joined_bytes,
            &self.deflated_bytes,
            &self.derived_bytes,
            &self.resource_version,
            &self.progress_version,
            &self.epoch,
            &self.staleness,
            &self.upstream_watches,
            &self.history_changes,
            &self.history_bytes,
            &self.progress.lag,
        ] {
            gauge.set(0.0);
        }
    }
}

/// When a cache last made progress. Kept separately from the cache, because only a scrape computes the lag.
#[derive(Debug)]
struct Progress {
    at: Mutex<Option<Instant>>,
    lag: Gauge,
}

impl Progress {
    fn lag(&self) -> Option<Duration> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner).map(|at| at.elapsed())
    }
}

/// The existing caches, as far as a scrape needs them.
fn live() -> MutexGuard<'static, Vec<Weak<Progress>>> {
    static LIVE: Mutex<Vec<Weak<Progress>>> = Mutex::new(Vec::new());
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Updates the lag of every existing cache, and removes those that are gone.
pub(super) fn refresh_lags() {
    live().retain(|progress| {
        let Some(progress) = progress.upgrade() else { return false };
        if let Some(lag) = progress.lag() {
            progress.lag.set(lag.as_secs_f64());
        }
        true
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition::recorder;

    fn deployments() -> GroupVersionResource {
        GroupVersionResource::new("apps", "v1", "deployments")
    }

    #[tokio::test(start_paused = true)]
    async fn lag_is_the_time_since_the_last_progress() {
        let cache = CacheMetrics::new(&deployments(), &CollectionScope::CLUSTER, Encoding::Json);
        assert_eq!(cache.progress.lag(), None);
        cache.set_progress(ResourceVersion::new(7).unwrap());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(cache.progress.lag(), Some(Duration::from_secs(3)));
        cache.set_progress(ResourceVersion::new(7).unwrap());
        assert_eq!(cache.progress.lag(), Some(Duration::ZERO));
    }

    #[test]
    fn a_dropped_cache_resets_its_gauges_and_keeps_its_counters() {
        let recorder = recorder();
        metrics::with_local_recorder(&recorder, || {
            let cache = CacheMetrics::new(&deployments(), &CollectionScope::CLUSTER, Encoding::Json);
            cache.set_objects(5, 500, 0);
            cache.watch_started();
            cache.events_sent(4);
            cache.watch_ended("timeout");
            cache.reflector_restarted("expired");
            cache.freshness_proof("proven");
        });
        let text = recorder.handle().render();
        let labels = r#"resource="deployments.apps",version="v1",encoding="json""#;
        assert!(text.contains(&format!("kube_fanout_cache_objects{{{labels}}} 0")), "{text}");
        assert!(text.contains(&format!("kube_fanout_watchers{{{labels}}} 0")), "{text}");
        assert!(text.contains(&format!("kube_fanout_watch_events_sent_total{{{labels}}} 4")), "{text}");
        assert!(text.contains(&format!("kube_fanout_watches_ended_total{{{labels},cause=\"timeout\"}} 1")), "{text}");
        assert!(text.contains(&format!("restarts_total{{{labels},cause=\"expired\"}} 1")), "{text}");
        assert!(text.contains(&format!("proofs_total{{{labels},outcome=\"proven\"}} 1")), "{text}");
    }

    #[test]
    fn the_scopes_with_series_of_their_own_are_bounded() {
        let named = NamedScopes::default();
        let label = |number: usize| {
            let scope = CollectionScope::of_namespace(&format!("n{number}")).unwrap();
            named.label(&deployments(), &scope)
        };
        let labels: Vec<_> = (0..=NAMED_MAX).map(label).collect();
        assert_eq!((&*labels[NAMED_MAX - 1], &*labels[NAMED_MAX]), ("n999", OTHER));
        assert_eq!((label(0), label(NAMED_MAX)), ("n0".to_owned(), OTHER.to_owned()));
    }
}
