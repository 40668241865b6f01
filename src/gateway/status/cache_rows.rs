//! One row for each cache: its state, and its metrics.

use std::time::Duration;

use super::{Cache, CacheBytes, Detail, Restart, Samples, SlowWatcher};
use crate::{cacher::CacheStatus, serve::ForwardReason};
use base::telemetry::{CacheLabels, Readings};
use engine::fanout::{Behind, Interest};

/// The cache's row.
pub(super) fn row(cache: &CacheStatus, readings: &Readings, samples: &Samples, detail: Detail) -> Cache {
    let labels = CacheLabels {
        resource: cache.resource.group_resource().to_string(),
        version: cache.resource.version.to_string(),
        encoding: cache.encoding.as_str().to_owned(),
        scope: cache.scope.to_string(),
    };
    let read = readings.caches.get(&labels).cloned().unwrap_or_default();
    let restart = cache
        .restart
        .map(|restart| Restart { cause: restart.cause.to_owned(), seconds_ago: restart.at.elapsed().as_secs() });
    Cache {
        state: state(cache).to_owned(),
        lacks: if cache.lacks_watch_list { vec!["watchList".to_owned()] } else { Vec::new() },
        objects: read.objects,
        bytes: CacheBytes {
            objects: read.object_bytes,
            cold: read.cold_bytes,
            joined: read.joined_bytes,
            deflated: read.deflated_bytes,
            derived: read.derived_bytes,
            history: read.history_bytes,
        },
        resource_version: read.resource_version.to_string(),
        progress_version: read.progress_version.to_string(),
        lag_seconds: read.lag_seconds,
        epoch: read.epoch,
        history_changes: read.history_changes,
        history_seconds: cache.history.map(|history| history.as_secs()),
        watchers: read.watchers,
        upstream_watches: read.upstream_watches,
        events_sent: read.events_sent,
        events_per_second: samples.cache_rate(&labels, read.events_sent),
        relayed_watches_ended: read.relayed_ended,
        proofs: read.proofs,
        restarts: read.restarts,
        last_restart: restart,
        resource: labels.resource,
        version: labels.version,
        encoding: labels.encoding,
        scope: if detail == Detail::Full || labels.scope.is_empty() { labels.scope } else { "withheld".to_owned() },
    }
}

fn state(cache: &CacheStatus) -> &'static str {
    match cache.not_cached {
        Some(why) => ForwardReason::from(why).as_str(),
        None if cache.is_stale => "stale",
        None => "ready",
    }
}

/// The cache's watchers that are behind.
pub(super) fn slow_watchers(cache: &CacheStatus, detail: Detail) -> impl Iterator<Item = SlowWatcher> {
    cache.behind.iter().map(move |(behind, age)| slow_watcher(cache, behind, *age, detail))
}

fn slow_watcher(cache: &CacheStatus, behind: &Behind, age: Duration, detail: Detail) -> SlowWatcher {
    let client = behind.client.as_deref();
    let user = client.and_then(|client| client.user.as_deref());
    let is_full = detail == Detail::Full;
    SlowWatcher {
        resource: cache.resource.group_resource().to_string(),
        encoding: cache.encoding.as_str().to_owned(),
        user_agent: client.map(|client| client.user_agent.to_string()).unwrap_or_default(),
        user: user.filter(|_| is_full).map(str::to_owned),
        interest: is_full.then(|| interest(&behind.interest)),
        open_seconds: behind.since.elapsed().as_secs(),
        behind_seconds: age.as_secs(),
        behind_changes: behind.changes,
    }
}

fn interest(interest: &Interest) -> String {
    match interest {
        Interest::Everything => "everything".to_owned(),
        Interest::Namespace(namespace) => format!("namespace {namespace}"),
        Interest::Named(name) => format!("name {name}"),
        Interest::Object(key) => format!("object {}", key.as_str()),
        Interest::Indexed(value) => format!("index {value}"),
        Interest::Shards(shards, None) => shards.to_string(),
        Interest::Shards(shards, Some(namespace)) => format!("namespace {namespace}: {shards}"),
    }
}
