//! What is cached and how reads are answered: `cache`, `reads`.

use std::{ops::RangeInclusive, time::Duration};

use crate::apimachinery::GroupResource;
use crate::config::builtin::{built_in, is_version};
use crate::config::check::{Check, given};
use crate::config::raw::{self, Scalar};
use crate::config::{
    CacheConfig, ClientsConfig, DEFAULT_EXCLUDE, DEFAULT_EXCLUDE_DELEGATED, DEFAULT_FILL_WAIT, DEFAULT_FRESHNESS_WAIT,
    DEFAULT_HISTORY_AGE, DEFAULT_HISTORY_BYTES, DEFAULT_IDLE_TIMEOUT, DEFAULT_LIST_BYTES_TIMEOUT,
    DEFAULT_VERIFY_INTERVAL, HistoryConfig, MostRecentReads, MostRecentWatch, ReadsConfig, StaleWatches, quantity,
};

/// Below the minimum, caches of resources in use would come and go.
const IDLE_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(7 * 24 * 3600);
/// Checked every five seconds.
const LIST_BYTES_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(24 * 3600);
/// A client that reconnects needs some seconds; after a day no client resumes.
const HISTORY_AGE: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(24 * 3600);
/// Space for a few changes of the largest objects (about 1.5 MiB each).
const HISTORY_BYTES_MIN: u64 = 8 << 20;
/// Checked every five seconds; a watch that breaks is seldom resumed in less.
const MAX_STALENESS: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(24 * 3600);
/// More often, verification would cost upstream more than all other requests of a cache; with more than a day between,
/// it would be of no use.
const VERIFY_INTERVAL: RangeInclusive<Duration> = Duration::from_secs(30)..=Duration::from_secs(24 * 3600);
/// The API server itself waits up to 3 s for a version.
const FRESHNESS_WAIT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3);
/// The API server itself ends a list after 60 s.
const FILL_WAIT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);

/// The form of a resource's name.
pub(in crate::config) const RESOURCE: &str =
    "a plural name, with its API group unless that is the core group: pods, deployments.apps";

const CACHE_FIELDS: &[&str] = &[
    "exclude",
    "prewarm",
    "idleTimeout",
    "listBytesTimeout",
    "history",
    "bridge",
    "peers",
    "maxStaleness",
    "staleWatches",
    "verifyInterval",
];

impl Check {
    pub(super) fn cache(&mut self, raw: Option<&raw::Cache>, clients: &ClientsConfig) -> CacheConfig {
        let absent = raw::Cache::default();
        let raw = raw.unwrap_or(&absent);
        self.unknown("cache", &raw.unknown, CACHE_FIELDS);
        let exclude = match &raw.exclude {
            Some(exclude) => self.resources("cache.exclude", exclude),
            None => default_exclude(clients),
        };
        let prewarm = self.resources("cache.prewarm", raw.prewarm.as_deref().unwrap_or_default());
        for (index, resource) in prewarm.iter().enumerate() {
            if exclude.contains(resource) {
                let by = if raw.exclude.is_some() { "is also in cache.exclude" } else { "is excluded by default" };
                let found = format!("\"{resource}\" {by}");
                let allowed = "a resource that cache.exclude does not contain";
                self.problem(&format!("cache.prewarm[{index}]"), &found, allowed);
            }
        }
        let idle = raw.idle_timeout.as_ref();
        let idle_timeout = self.duration("cache.idleTimeout", idle, DEFAULT_IDLE_TIMEOUT, &IDLE_TIMEOUT);
        let list_bytes = raw.list_bytes_timeout.as_ref();
        let list_bytes_timeout =
            self.duration("cache.listBytesTimeout", list_bytes, DEFAULT_LIST_BYTES_TIMEOUT, &LIST_BYTES_TIMEOUT);
        let history = self.history(raw.history.as_ref());
        let (max_staleness, stale_watches) = self.staleness(raw);
        CacheConfig {
            exclude,
            prewarm,
            idle_timeout,
            list_bytes_timeout,
            history,
            bridge: self.word("cache.bridge", raw.bridge.as_ref(), true, &[("true", true), ("false", false)]),
            peers: self.peers(raw.peers.as_ref()),
            max_staleness,
            stale_watches,
            verify_interval: self.verify_interval(raw),
        }
    }

    fn verify_interval(&mut self, raw: &raw::Cache) -> Option<Duration> {
        let [from, to] = [VERIFY_INTERVAL.start(), VERIFY_INTERVAL.end()].map(|bound| quantity::duration_text(*bound));
        let allowed = format!("0 for never, or {}, from {from} to {to}", quantity::DURATION);
        let interval = |text: &str| match quantity::duration(text)? {
            Duration::ZERO => Some(None),
            interval => VERIFY_INTERVAL.contains(&interval).then_some(Some(interval)),
        };
        let (field, default) = ("cache.verifyInterval", Some(DEFAULT_VERIFY_INTERVAL));
        self.parsed(field, raw.verify_interval.as_ref(), default, &allowed, interval)
    }

    fn staleness(&mut self, raw: &raw::Cache) -> (Option<Duration>, StaleWatches) {
        let max = raw
            .max_staleness
            .as_ref()
            .map(|text| self.duration("cache.maxStaleness", Some(text), *MAX_STALENESS.start(), &MAX_STALENESS));
        let words = [("keep", StaleWatches::Keep), ("end", StaleWatches::End)];
        let watches = self.word("cache.staleWatches", raw.stale_watches.as_ref(), StaleWatches::Keep, &words);
        if max.is_none() && watches == StaleWatches::End {
            self.problem("cache.staleWatches", "\"end\" needs cache.maxStaleness", "keep, or set both fields");
        }
        (max, watches)
    }

    fn history(&mut self, raw: Option<&raw::History>) -> HistoryConfig {
        let absent = raw::History::default();
        let raw = raw.unwrap_or(&absent);
        self.unknown("cache.history", &raw.unknown, &["age", "bytes"]);
        let allowed = format!("{}, {}Mi at least", quantity::SIZE, HISTORY_BYTES_MIN >> 20);
        let enough = |text: &str| quantity::size(text).filter(|bytes| *bytes >= HISTORY_BYTES_MIN);
        HistoryConfig {
            age: self.duration("cache.history.age", raw.age.as_ref(), DEFAULT_HISTORY_AGE, &HISTORY_AGE),
            bytes: self.parsed("cache.history.bytes", raw.bytes.as_ref(), DEFAULT_HISTORY_BYTES, &allowed, enough),
        }
    }

    fn resources(&mut self, field: &str, raw: &[Scalar]) -> Vec<GroupResource> {
        let mut resources = Vec::new();
        for (index, text) in raw.iter().enumerate() {
            match group_resource(&text.0) {
                Some(resource) => resources.push(resource),
                None => self.misnamed(&format!("{field}[{index}]"), &text.0),
            }
        }
        resources
    }

    /// In other notations the resource is clear, so that it is named as it has to be written.
    fn misnamed(&mut self, field: &str, text: &str) {
        match meant(text) {
            Some(meant) => self.problem(field, &format!("{}; write {meant}", given(text)), RESOURCE),
            None => self.problem(field, &given(text), RESOURCE),
        }
    }

    pub(super) fn reads(&mut self, raw: Option<&raw::Reads>) -> ReadsConfig {
        let absent = raw::Reads::default();
        let raw = raw.unwrap_or(&absent);
        self.unknown("reads", &raw.unknown, &["freshnessWait", "fillWait", "mostRecentWatch", "mostRecent"]);
        let (wait, fill_wait) = (raw.freshness_wait.as_ref(), raw.fill_wait.as_ref());
        let words = [("prove", MostRecentWatch::Prove), ("forward", MostRecentWatch::Forward)];
        let reads =
            [("forward", MostRecentReads::Forward), ("auto", MostRecentReads::Auto), ("prove", MostRecentReads::Prove)];
        let most_recent = raw.most_recent.as_ref();
        ReadsConfig {
            freshness_wait: self.duration("reads.freshnessWait", wait, DEFAULT_FRESHNESS_WAIT, &FRESHNESS_WAIT),
            fill_wait: self.duration("reads.fillWait", fill_wait, DEFAULT_FILL_WAIT, &FILL_WAIT),
            most_recent_watch: self.word(
                "reads.mostRecentWatch",
                raw.most_recent_watch.as_ref(),
                MostRecentWatch::Prove,
                &words,
            ),
            most_recent: self.word("reads.mostRecent", most_recent, MostRecentReads::default(), &reads),
        }
    }
}

fn default_exclude(clients: &ClientsConfig) -> Vec<GroupResource> {
    let further = match clients {
        ClientsConfig::Trusted(_) => &[],
        ClientsConfig::Delegated(_) => DEFAULT_EXCLUDE_DELEGATED,
    };
    DEFAULT_EXCLUDE.iter().chain(further).filter_map(|text| group_resource(text)).collect()
}

/// `pods`, `deployments.apps`: resources and groups are lower-case DNS names.
fn group_resource(text: &str) -> Option<GroupResource> {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.')
    };
    let has_group = text.contains('.');
    let valid = is_name(resource) && (!has_group || is_name(group));
    valid.then(|| GroupResource { group: group.into(), resource: resource.into() })
}

/// The resource of a notation that others use: `core/v1/pods`, `apps/v1/deployments`, `/api/v1/pods`; or a kind:
/// `Deployment`, `Pods`.
fn meant(text: &str) -> Option<GroupResource> {
    let lower = text.to_ascii_lowercase();
    if let Some(name) = group_resource(&lower).filter(|_| lower != text) {
        return built_in(&name).or(Some(name));
    }
    let path = text.trim_matches('/');
    let parts: Vec<_> = path.strip_prefix("apis/").or(path.strip_prefix("api/")).unwrap_or(path).split('/').collect();
    let (group, resource) = match parts[..] {
        [first, resource] if is_version(first) => ("", resource),
        [group, version, resource] if is_version(version) => (group, resource),
        _ => return None,
    };
    let name = if matches!(group, "" | "core") { resource.to_owned() } else { format!("{resource}.{group}") };
    group_resource(&name)
}
