//! Every metric of the gateway: name, kind, unit, labels, help.

use ::metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};

/// One metric, as it is described in a scrape.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// The meaning of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only increases, from zero at the start of the process.
    Counter,
    /// The current value.
    Gauge,
    /// Observations, counted by buckets.
    Histogram,
}

pub(super) const BUILD_INFO: &str = "kube_fanout_build_info";
pub(super) const REQUESTS: &str = "kube_fanout_requests_total";
pub(super) const REQUEST_DURATION: &str = "kube_fanout_request_duration_seconds";
pub(super) const RESPONSE_BYTES: &str = "kube_fanout_response_bytes_total";
pub(super) const CACHE_OBJECTS: &str = "kube_fanout_cache_objects";
pub(super) const CACHE_OBJECT_BYTES: &str = "kube_fanout_cache_object_bytes";
pub(super) const CACHE_COLD_BYTES: &str = "kube_fanout_cache_cold_bytes";
pub(super) const CACHE_JOINED_BYTES: &str = "kube_fanout_cache_joined_bytes";
pub(super) const CACHE_DEFLATED_BYTES: &str = "kube_fanout_cache_deflated_bytes";
pub(super) const CACHE_DERIVED_BYTES: &str = "kube_fanout_cache_derived_bytes";
pub(super) const CACHE_RESOURCE_VERSION: &str = "kube_fanout_cache_resource_version";
pub(super) const CACHE_PROGRESS_VERSION: &str = "kube_fanout_cache_progress_version";
pub(super) const CACHE_PROGRESS_LAG: &str = "kube_fanout_cache_progress_lag_seconds";
pub(super) const CACHE_STALENESS: &str = "kube_fanout_cache_staleness_seconds";
pub(super) const CACHE_EPOCH: &str = "kube_fanout_cache_epoch";
pub(super) const CACHE_HISTORY_CHANGES: &str = "kube_fanout_cache_history_changes";
pub(super) const CACHE_HISTORY_BYTES: &str = "kube_fanout_cache_history_bytes";
pub(super) const WATCHERS: &str = "kube_fanout_watchers";
pub(super) const WATCH_EVENTS: &str = "kube_fanout_watch_events_sent_total";
pub(super) const RELAYED_WATCHES_ENDED: &str = "kube_fanout_relayed_watches_ended_total";
pub(super) const WATCHES_ENDED: &str = "kube_fanout_watches_ended_total";
pub(super) const REFLECTOR_RESTARTS: &str = "kube_fanout_reflector_restarts_total";
pub(super) const CACHE_VERIFICATIONS: &str = "kube_fanout_cache_verifications_total";
pub(super) const CACHE_BRIDGES: &str = "kube_fanout_cache_bridges_total";
pub(super) const HISTORY_EXTENSIONS: &str = "kube_fanout_cache_history_extensions_total";
pub(super) const CACHE_FILLS: &str = "kube_fanout_cache_fills_total";
pub(super) const CACHE_MEMORY_STEPS: &str = "kube_fanout_cache_memory_steps_total";
pub(super) const PEER_QUESTIONS: &str = "kube_fanout_peer_questions_total";
pub(super) const PEER_SEARCH_DURATION: &str = "kube_fanout_peer_search_duration_seconds";
pub(super) const PERSISTED_STATES: &str = "kube_fanout_persisted_states_total";
pub(super) const FRESHNESS_PROOFS: &str = "kube_fanout_freshness_proofs_total";
pub(super) const LIMITS_REACHED: &str = "kube_fanout_limits_reached_total";
pub(super) const CONNECTIONS: &str = "kube_fanout_connections";
pub(super) const CONNECTIONS_ACCEPTED: &str = "kube_fanout_connections_accepted_total";
pub(super) const CONNECTION_ERRORS: &str = "kube_fanout_connection_errors_total";
pub(super) const CERTIFICATE_RELOADS: &str = "kube_fanout_certificate_reloads_total";
pub(super) const TOKEN_LOOKUPS: &str = "kube_fanout_token_lookups_total";
pub(super) const TOKEN_REVIEWS: &str = "kube_fanout_token_reviews_total";
pub(super) const AUDIT_WRITES: &str = "kube_fanout_audit_writes_total";
pub(super) const AUDIT_EVENTS_LOST: &str = "kube_fanout_audit_events_lost_total";
pub(super) const CONFIG_RELOADS: &str = "kube_fanout_config_reloads_total";
pub(super) const CONFIG_RELOAD_SUCCESSFUL: &str = "kube_fanout_config_last_reload_successful";
pub(super) const CONFIG_NEEDS_RESTART: &str = "kube_fanout_config_fields_needing_restart";
pub(super) const UPSTREAM_TROUBLES: &str = "kube_fanout_upstream_troubles";
pub(super) const UPSTREAM_SERVER_IN_USE: &str = "kube_fanout_upstream_server_in_use";
pub(super) const UPSTREAM_FALLBACK_IN_USE: &str = "kube_fanout_upstream_fallback_in_use";
pub(super) const UPSTREAM_SERVER_CONNECTIONS: &str = "kube_fanout_upstream_server_connections";
pub(super) const UPSTREAM_FRONT_PROXY_ACCEPTED: &str = "kube_fanout_upstream_front_proxy_accepted";
pub(super) const UPSTREAM_SERVER_SET_ASIDE: &str = "kube_fanout_upstream_server_set_aside_total";
pub(super) const LOG_LINES_DROPPED: &str = "kube_fanout_log_lines_dropped_total";
pub(super) const SPANS_EXPORTED: &str = "kube_fanout_spans_exported_total";
pub(super) const SPANS_DROPPED: &str = "kube_fanout_spans_dropped_total";
pub(super) const ACCESS_REVIEWS: &str = "kube_fanout_access_reviews_total";
pub(super) const LIMIT: &str = "kube_fanout_limit";
pub(super) const LIMIT_USED: &str = "kube_fanout_limit_used";
pub(super) const UPSTREAM_WATCHES: &str = "kube_fanout_upstream_watches";
pub(super) const PROCESS_CPU: &str = "process_cpu_seconds_total";
pub(super) const PROCESS_MEMORY: &str = "process_resident_memory_bytes";
pub(super) const PROCESS_START: &str = "process_start_time_seconds";

const CACHE: &[&str] = &["resource", "version", "encoding"];
const CACHE_CAUSE: &[&str] = &["resource", "version", "encoding", "cause"];
const CACHE_SOURCE: &[&str] = &["resource", "version", "encoding", "source"];
const CACHE_OUTCOME: &[&str] = &["resource", "version", "encoding", "outcome"];
const REQUEST: &[&str] = &["verb", "resource", "outcome", "reason"];
const VERB_OUTCOME: &[&str] = &["verb", "outcome"];

/// All metrics.
#[rustfmt::skip]
pub const ALL: &[Metric] = &[
    gauge_of(BUILD_INFO, Unit::Count, &["version"], "Always 1; the label holds the running version."),
    counter_of(REQUESTS, Unit::Count, REQUEST,
        "Finished requests and watches; reason says why, except for usual answers from memory."),
    Metric { name: REQUEST_DURATION, kind: Kind::Histogram, unit: Unit::Seconds, labels: VERB_OUTCOME,
        help: "Time from a request's head to the end of its response, without watches." },
    counter_of(RESPONSE_BYTES, Unit::Bytes, VERB_OUTCOME, "Bytes of response bodies written to connections."),
    gauge_of(CACHE_OBJECTS, Unit::Count, CACHE, "Objects in the cache."),
    gauge_of(CACHE_OBJECT_BYTES, Unit::Bytes, CACHE, "Encoded bytes of the objects in the cache."),
    gauge_of(CACHE_COLD_BYTES, Unit::Bytes, CACHE,
        "Encoded bytes of the objects that are kept only in compressed blocks: a part of the object bytes."),
    gauge_of(CACHE_JOINED_BYTES, Unit::Bytes, CACHE,
        "Bytes of metadata prepared for lists, shared by all lists, and text of compressed objects that are read."),
    gauge_of(CACHE_DEFLATED_BYTES, Unit::Bytes, CACHE,
        "Bytes of compressed items, which gzip lists share, and of which compressed objects consist."),
    gauge_of(CACHE_DERIVED_BYTES, Unit::Bytes, CACHE, "Bytes of metadata derived from the objects and kept with them."),
    gauge_of(CACHE_RESOURCE_VERSION, Unit::Count, CACHE,
        "Resource version that the cache has reached, updated every few seconds."),
    gauge_of(CACHE_PROGRESS_VERSION, Unit::Count, CACHE,
        "Resource version up to which the cache is known to be complete."),
    gauge_of(CACHE_PROGRESS_LAG, Unit::Seconds, CACHE,
        "Time since upstream last showed the cache to be complete up to some version."),
    gauge_of(CACHE_STALENESS, Unit::Seconds, CACHE,
        "How long the cache has been without a watch of upstream; 0 while there is one."),
    gauge_of(CACHE_EPOCH, Unit::Count, CACHE,
        "Fills of the cache that were not bridged; each after the first ended its watches."),
    gauge_of(CACHE_HISTORY_CHANGES, Unit::Count, CACHE, "Changes that watches can still start from."),
    gauge_of(CACHE_HISTORY_BYTES, Unit::Bytes, CACHE, "Bytes that are held only for these changes."),
    gauge_of(WATCHERS, Unit::Count, CACHE, "Open watches served from the cache."),
    gauge_of(UPSTREAM_WATCHES, Unit::Count, CACHE,
        "Open watches of upstream for the cache: 1, or 0 while it has none."),
    counter_of(WATCH_EVENTS, Unit::Count, CACHE, "Events sent to watches, bookmarks included."),
    counter_of(RELAYED_WATCHES_ENDED, Unit::Count, CACHE,
        "Forwarded watches that were ended because the cache can go on with them."),
    counter_of(WATCHES_ENDED, Unit::Count, CACHE_CAUSE, "Watches that ended, by cause."),
    counter_of(REFLECTOR_RESTARTS, Unit::Count, CACHE_CAUSE, "Restarts of watches and lists of upstream, by cause."),
    counter_of(FRESHNESS_PROOFS, Unit::Count, CACHE_OUTCOME,
        "Attempts to prove the cache as fresh as upstream, by outcome."),
    counter_of(CACHE_VERIFICATIONS, Unit::Count, CACHE_OUTCOME,
        "Comparisons of the cache with upstream at the same version, by outcome."),
    counter_of(CACHE_BRIDGES, Unit::Count, CACHE_OUTCOME,
        "Refills of a cache whose version upstream no longer knew, by whether its watches continued."),
    counter_of(HISTORY_EXTENSIONS, Unit::Count, CACHE_OUTCOME,
        "Attempts to let history begin before the fill, for watches that resume from there, by outcome."),
    counter_of(CACHE_FILLS, Unit::Count, CACHE_SOURCE,
        "Fills of the cache that were not bridged, by where the state came from."),
    counter_of(CACHE_MEMORY_STEPS, Unit::Count, &["step"],
        "Steps taken to keep all caches within `cache.bytes`, by what was done."),
    counter_of(PEER_QUESTIONS, Unit::Count, &["outcome"],
        "Questions to other gateways for the state of a resource, by outcome."),
    counter_of(PERSISTED_STATES, Unit::Count, &["outcome"],
        "States of caches in `cache.persist`, written or read, by outcome."),
    Metric { name: PEER_SEARCH_DURATION, kind: Kind::Histogram, unit: Unit::Seconds, labels: &["outcome"],
        help: "Time that a new cache searched for a gateway with its state, by outcome." },
    counter_of(LIMITS_REACHED, Unit::Count, &["limit"],
        "How often something was refused, cut or delayed because a limit was reached."),
    gauge_of(LIMIT, Unit::Count, &["limit"], "The value of a limit, for limits whose use is measured."),
    gauge_of(LIMIT_USED, Unit::Count, &["limit"], "How much of a limit is used."),
    gauge_of(CONNECTIONS, Unit::Count, &[], "Open connections of clients."),
    counter_of(CONNECTIONS_ACCEPTED, Unit::Count, &[], "Connections of clients accepted."),
    counter_of(CONNECTION_ERRORS, Unit::Count, &["cause"], "Connections of clients that ended in an error, by cause."),
    counter_of(CERTIFICATE_RELOADS, Unit::Count, &["outcome"],
        "Reloads of a changed file of certificates or authorities, by outcome."),
    counter_of(TOKEN_LOOKUPS, Unit::Count, &["outcome"],
        "Lookups of the user of a bearer token, by whether it was cached."),
    counter_of(TOKEN_REVIEWS, Unit::Count, &["verdict"], "TokenReviews sent upstream, by verdict."),
    counter_of(AUDIT_WRITES, Unit::Count, &["outcome"], "Writes of batches of events to the audit log, by outcome."),
    counter_of(AUDIT_EVENTS_LOST, Unit::Count, &[], "Events that were not written to the audit log."),
    counter_of(CONFIG_RELOADS, Unit::Count, &["outcome"], "Reloads of the changed configuration file, by outcome."),
    gauge_of(CONFIG_RELOAD_SUCCESSFUL, Unit::Count, &[],
        "1 if the last reload of the configuration file succeeded, 0 if not."),
    gauge_of(CONFIG_NEEDS_RESTART, Unit::Count, &[],
        "Fields of the configuration file that have changed and need a restart to take effect."),
    gauge_of(UPSTREAM_TROUBLES, Unit::Count, &["kind"],
        "What is wrong now between the gateway and API servers, by kind; 0 while nothing is."),
    gauge_of(UPSTREAM_SERVER_IN_USE, Unit::Count, &["server"],
        "1 if new connections go to this one of upstream.servers, 0 if it is set aside or not used."),
    gauge_of(UPSTREAM_FALLBACK_IN_USE, Unit::Count, &[],
        "1 if the servers of upstream.fallback are used, since none of the others can be, 0 if not."),
    gauge_of(UPSTREAM_SERVER_CONNECTIONS, Unit::Count, &["server"],
        "Connections to this one of upstream.servers, open or being opened."),
    gauge_of(UPSTREAM_FRONT_PROXY_ACCEPTED, Unit::Count, &["server"],
        "1 if this API server has accepted the front-proxy certificate in use, 0 if it refuses it or has not said."),
    counter_of(UPSTREAM_SERVER_SET_ASIDE, Unit::Count, &["server",
        "reason"], "How often this one of upstream.servers was set aside or no longer used, by reason."),
    counter_of(LOG_LINES_DROPPED, Unit::Count, &["cause"], "Log lines that were not written, by cause."),
    counter_of(SPANS_EXPORTED, Unit::Count, &[], "Spans that the trace collector accepted."),
    counter_of(SPANS_DROPPED, Unit::Count, &["cause"],
        "Spans that were not delivered to the trace collector, by cause."),
    counter_of(ACCESS_REVIEWS, Unit::Count, &["verdict"],
        "SubjectAccessReviews sent upstream, by verdict; cached verdicts need none."),
    counter_of(PROCESS_CPU, Unit::Seconds, &[], "CPU time used by the process."),
    gauge_of(PROCESS_MEMORY, Unit::Bytes, &[], "Resident memory of the process."),
    gauge_of(PROCESS_START, Unit::Seconds, &[], "Start time of the process, since the Unix epoch."),
];

/// Counts that a limit was reached. `limit` is the name of the limit in snake case, for example `connections` or
/// `request_header_bytes`.
pub fn limit_reached(limit: &'static str) {
    counter!(LIMITS_REACHED, "limit" => limit).increment(1);
}

const fn counter_of(name: &'static str, unit: Unit, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, unit, labels, help }
}

const fn gauge_of(name: &'static str, unit: Unit, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, unit, labels, help }
}

pub(super) fn describe() {
    for metric in ALL {
        match metric.kind {
            Kind::Counter => describe_counter!(metric.name, metric.unit, metric.help),
            Kind::Gauge => describe_gauge!(metric.name, metric.unit, metric.help),
            Kind::Histogram => describe_histogram!(metric.name, metric.unit, metric.help),
        }
    }
    gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_carry_their_unit() {
        let mut names = HashSet::new();
        for metric in ALL {
            assert!(names.insert(metric.name), "{} is declared twice", metric.name);
            // The metrics that every process has are named as Prometheus defines them.
            if !metric.name.starts_with("process_") {
                assert!(metric.name.starts_with("kube_fanout_"), "{}", metric.name);
                assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
                assert_eq!(metric.unit == Unit::Seconds, metric.name.ends_with("_seconds"), "{}", metric.name);
            }
            assert!(metric.help.ends_with('.'), "{}", metric.name);
        }
    }
}
