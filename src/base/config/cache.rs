//! What is cached, and for how long: `cache`.

use std::{collections::BTreeSet, fmt, ops::RangeInclusive, time::Duration};

use crate::apimachinery::{CollectionScope, GroupResource};
use crate::config::builtin_resources::{built_in, is_version};
use crate::config::fields::{FLAG, Fields, Maybe, Number, Parsed, Refused, Size, Time, TimeOrNever, Words, about};
use crate::config::{ClientsConfig, PeersConfig, PersistConfig};

/// Upstream does not cache events either; they change more often than they are listed.
pub const DEFAULT_EXCLUDE: &[&str] = &["events", "events.events.k8s.io"];
/// Excluded in addition in `delegated` mode: there this process decides what a client may read, and a mistake would be
/// worst with Secrets.
const DEFAULT_EXCLUDE_DELEGATED: &[&str] = &["secrets"];
/// Below the minimum, caches of resources in use would come and go.
const IDLE_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(7 * 24 * 3600);
/// Checked every five seconds.
const LIST_BYTES_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(24 * 3600);
/// After a day, what is read again within an hour would be compressed never.
const COMPRESS_AFTER: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(24 * 3600);
/// Space for the largest objects (about 1.5 MiB each), and a few others.
const BYTES: RangeInclusive<u64> = 16 << 20..=u64::MAX;
/// One answer takes a third at most: the largest page of OpenAPI of an API server itself is 1.6 MB in JSON.
const DISCOVERY_BYTES: RangeInclusive<u64> = 6 << 20..=1 << 30;
/// A client that reconnects needs some seconds; after a day no client resumes.
const HISTORY_AGE: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(24 * 3600);
/// Space for a few changes of the largest objects (about 1.5 MiB each).
const HISTORY_BYTES: RangeInclusive<u64> = 8 << 20..=u64::MAX;
/// Checked every five seconds; a watch that breaks is seldom resumed in less.
const MAX_STALENESS: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(24 * 3600);
/// More often, verification would cost upstream more than all other requests of a cache; with more than a day between,
/// it would be of no use.
const VERIFY_INTERVAL: RangeInclusive<Duration> = Duration::from_secs(30)..=Duration::from_secs(24 * 3600);

/// The maximum keeps the number of upstream watches of one resource within what an API server takes from one client.
const SCOPES_PER_RESOURCE: RangeInclusive<usize> = 1..=1_000;

const SCOPES: Words<CacheScope> =
    Words(&[("auto", CacheScope::Auto), ("requested", CacheScope::Requested), ("cluster", CacheScope::Cluster)]);
const STALE_WATCHES: Words<StaleWatches> = Words(&[("keep", StaleWatches::Keep), ("end", StaleWatches::End)]);

/// The form of a resource's name.
const RESOURCE: Parsed<GroupResource> = Parsed {
    allowed: "a plural name, with its API group unless that is the core group: pods, deployments.apps",
    // In other notations the resource is clear, so that it is named as it has to be written.
    parse: |text| {
        let why = || meant(text).map_or_else(String::new, |meant| format!("; write {meant}"));
        group_resource(text).ok_or_else(|| Refused { why: why(), allowed: None })
    },
    pattern: "^[a-z0-9-]+([.][a-z0-9.-]+)?$",
};

/// The short form of a resource to prewarm.
const PREWARM: Parsed<Prewarm> = Parsed {
    allowed: RESOURCE.allowed,
    parse: |text| (RESOURCE.parse)(text).map(Prewarm::from),
    pattern: RESOURCE.pattern,
};

const NAMESPACE: Parsed<String> = Parsed {
    allowed: "the name of a namespace: lower-case letters, digits, -",
    parse: |text| {
        let is_namespace = text.len() <= 63 && CollectionScope::of_namespace(text).is_some();
        if is_namespace { Ok(text.to_owned()) } else { Err(Refused::default()) }
    },
    pattern: "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
};

/// The form of an API group's name; the core group needs no trust.
const GROUP: Parsed<String> = Parsed {
    allowed: "the name of an API group: apps, example.com",
    parse: |text| if is_name(text) { Ok(text.to_owned()) } else { Err(Refused::default()) },
    pattern: "^[a-z0-9.-]+$",
};

/// What is cached, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Always forwarded.
    pub exclude: Vec<GroupResource>,
    /// Cached from the start, and never stopped for being idle.
    pub prewarm: Vec<Prewarm>,
    pub scope: CacheScope,
    /// The maximum number of parts of one resource that are cached by themselves.
    pub scopes_per_resource: usize,
    /// Groups that the API server itself serves, and whose definitions do not change while the gateway runs: said by
    /// the operator where the gateway may not look.
    pub trusted_groups: Vec<String>,
    /// A cache without any request or watch for this long is stopped.
    pub idle_timeout: Duration,
    /// Bytes that were joined or compressed for lists are freed when no list has used them for this time, or up to
    /// twice as long.
    pub list_bytes_timeout: Duration,
    /// The maximum of what all caches take. `None`: no limit.
    pub bytes: Option<u64>,
    /// The maximum of the kept answers to discovery and OpenAPI.
    pub discovery_bytes: u64,
    /// Objects that have not changed for this time, or up to twice as long, are kept compressed. `None`: never.
    pub compress_after: Option<Duration>,
    pub history: HistoryConfig,
    /// Whether a cache whose version upstream no longer knows is brought to the new state with its watches kept.
    pub bridge: bool,
    /// Other gateways of the same cluster, which are asked for the state of a new cache before upstream. `None`: none.
    pub peers: Option<PeersConfig>,
    /// Where states survive the process. `None`: they do not.
    pub persist: Option<PersistConfig>,
    /// The gateway is not ready while a cache has had no contact to upstream for this time. `None`: no limit.
    pub max_staleness: Option<Duration>,
    /// What happens to the watches of a cache that has had no contact for longer than `max_staleness`.
    pub stale_watches: StaleWatches,
    /// How often each cache is compared with upstream. `None`: never.
    pub verify_interval: Option<Duration>,
}

/// A resource whose caches are filled from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prewarm {
    pub resource: GroupResource,
    /// Those that are cached, each by itself if need be; empty for the whole cluster.
    pub namespaces: Vec<String>,
}

/// What a cache covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheScope {
    /// The cluster where the gateway may list and watch the resource there, otherwise each requested namespace.
    Auto,
    /// The narrowest part of the collection that covers the request: a namespace, the pods of a node.
    Requested,
    /// Always the cluster.
    Cluster,
}

/// What happens to the watches of a cache that exceeds `cache.maxStaleness`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleWatches {
    /// They stay open, without events.
    Keep,
    /// They end, and new ones are forwarded, so that clients can move to another gateway.
    End,
}

/// How far back a watch may start, per cache. The stricter bound applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryConfig {
    pub age: Duration,
    /// Estimated bytes of the history, without the newest state.
    pub bytes: u64,
}

impl CacheConfig {
    pub(super) fn fields(&mut self, clients: &ClientsConfig, fields: &mut Fields<'_>) {
        if !fields.is_given("exclude") && fields.reads() {
            self.exclude = default_exclude(clients);
        }
        let text = about(
            "plural names with their group (`deployments.apps`), always forwarded; the list replaces \
                          the default, and may be `[]`",
        )
        .default("`[events, events.events.k8s.io]`, in `delegated` mode `secrets` too");
        fields.list("exclude", text, &mut self.exclude, &RESOURCE);
        let text = "cached from the start, in JSON: plural names with their group, for the whole cluster; or \
                    `{resource: pods, namespaces: [a, b]}`";
        fields.short_sections("prewarm", about(text), &mut self.prewarm, &PREWARM, Prewarm::fields);
        let text = "what a cache covers: the whole cluster where the gateway may list and watch the resource there, \
                    otherwise each namespace that clients ask for (`auto`); the least that covers a request: a \
                    namespace, the pods of a node (`requested`); or always the cluster";
        fields.value("scope", about(text), &mut self.scope, &SCOPES);
        let text = "parts of one resource that are cached by themselves; beyond them the cluster is cached with \
                    `requested`, and requests are forwarded with `auto`";
        fields.value("scopesPerResource", about(text), &mut self.scopes_per_resource, &Number(SCOPES_PER_RESOURCE));
        self.check_prewarm(fields);
        let text = "API groups that the API server itself serves, and whose definitions do not change while the \
                    gateway runs: for a gateway that may not read API services and definitions, as with a Role. See \
                    the chapter `topologies`";
        fields.set("trustedGroups", about(text), &mut self.trusted_groups, &GROUP);
        let text = "a cache without any request or watch for this long is stopped";
        fields.value("idleTimeout", about(text), &mut self.idle_timeout, &Time(IDLE_TIMEOUT));
        let text = "bytes that were made for lists are freed when no list has used them for this long";
        fields.value("listBytesTimeout", about(text), &mut self.list_bytes_timeout, &Time(LIST_BYTES_TIMEOUT));
        let text = "objects that have not changed for this long are kept compressed, and inflated when they are read; \
                    `0s`: at once, for tests";
        fields.value("compressAfter", about(text), &mut self.compress_after, &TimeOrNever(COMPRESS_AFTER));
        let text = about("what all caches together may take, see the chapter `sizing`").default(
            "five eighths of the memory limit of the process (its control group's), less `limits.answerBytes` and \
             32 KiB for each of `limits.connections`; no limit without one",
        );
        fields.value("bytes", text, &mut self.bytes, &Maybe(Size(BYTES)));
        let text = "what the kept answers to discovery and OpenAPI may take beside `cache.bytes`, one of them a third \
                    of it; at most `1Gi`, see the chapter `sizing`";
        fields.value("discoveryBytes", about(text), &mut self.discovery_bytes, &Size(DISCOVERY_BYTES));
        fields.section("history", |fields| self.history.fields(fields));
        let text = "whether watches continue when upstream no longer has the changes after their version, see the \
                    chapter `consistency`";
        fields.value("bridge", about(text), &mut self.bridge, &FLAG);
        fields.optional("peers", &mut self.peers, PeersConfig::fields);
        fields.optional("persist", &mut self.persist, PersistConfig::fields);
        let text = about("the gateway is not ready while a cache had no contact to upstream for this long");
        let form = Maybe(Time(MAX_STALENESS));
        fields.value("maxStaleness", text.default("none: no limit"), &mut self.max_staleness, &form);
        let text = "what happens to the watches of such a cache; needs `cache.maxStaleness`";
        fields.value("staleWatches", about(text), &mut self.stale_watches, &STALE_WATCHES);
        if self.max_staleness.is_none() && self.stale_watches == StaleWatches::End {
            fields.problem("staleWatches", "\"end\" needs cache.maxStaleness", "keep, or set both fields");
        }
        let text = "how often each cache of at least 100 objects is compared with upstream";
        fields.value("verifyInterval", about(text), &mut self.verify_interval, &TimeOrNever(VERIFY_INTERVAL));
    }

    fn check_prewarm(&self, fields: &mut Fields<'_>) {
        let by = if fields.is_given("exclude") { "is also in cache.exclude" } else { "is excluded by default" };
        for (index, Prewarm { resource, namespaces }) in self.prewarm.iter().enumerate() {
            let place = format!("prewarm[{index}]");
            if self.exclude.contains(resource) {
                let found = format!("\"{resource}\" {by}");
                fields.problem(&place, &found, "a resource that cache.exclude does not contain");
            }
            if !namespaces.is_empty() && self.scope == CacheScope::Cluster {
                let found = "cache.scope \"cluster\" caches no single namespaces";
                fields.problem(
                    &format!("{place}.namespaces"),
                    found,
                    "another scope, or the name of the resource alone",
                );
            }
            let earlier = self.prewarm[..=index].iter().filter(|other| other.resource == *resource);
            let all: BTreeSet<_> = earlier.flat_map(|other| &other.namespaces).collect();
            if !namespaces.is_empty() && all.len() > self.scopes_per_resource {
                let most = self.scopes_per_resource;
                let found = format!("{} namespaces of {resource} are more than cache.scopesPerResource", all.len());
                fields.problem(&format!("{place}.namespaces"), &found, &format!("at most {most} of them"));
            }
        }
    }
}

impl Prewarm {
    fn fields(&mut self, fields: &mut Fields<'_>) {
        fields.required(
            "resource",
            about("plural name with its group").default("none: it has to be given"),
            &mut self.resource,
            &RESOURCE,
        );
        let text = "the namespaces to cache where the gateway may not read the whole cluster, or with `cache.scope: \
                    requested`; without it, the whole cluster";
        fields.set("namespaces", about(text).default("all"), &mut self.namespaces, &NAMESPACE);
        fields.length("namespaces", 1, None);
    }

    /// What is cached of the resource.
    pub fn scopes(&self) -> Vec<CollectionScope> {
        let of_namespaces = self.namespaces.iter().filter_map(|name| CollectionScope::of_namespace(name));
        if self.namespaces.is_empty() { vec![CollectionScope::CLUSTER] } else { of_namespaces.collect() }
    }
}

impl From<GroupResource> for Prewarm {
    /// In the whole cluster.
    fn from(resource: GroupResource) -> Self {
        Self { resource, namespaces: Vec::new() }
    }
}

impl Default for Prewarm {
    fn default() -> Self {
        GroupResource { group: "".into(), resource: "".into() }.into()
    }
}

impl fmt::Display for Prewarm {
    /// As in the configuration.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, namespaces } = self;
        match namespaces.is_empty() {
            true => resource.fmt(formatter),
            false => write!(formatter, "{{resource: {resource}, namespaces: [{}]}}", namespaces.join(", ")),
        }
    }
}

impl HistoryConfig {
    fn fields(&mut self, fields: &mut Fields<'_>) {
        fields.value("age", about("how far back a watch may start"), &mut self.age, &Time(HISTORY_AGE));
        fields.value(
            "bytes",
            about("of each cache; the stricter bound applies"),
            &mut self.bytes,
            &Size(HISTORY_BYTES),
        );
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            exclude: default_exclude(&ClientsConfig::default()),
            prewarm: Vec::new(),
            scope: CacheScope::Auto,
            // More namespaces than most applications use.
            scopes_per_resource: 64,
            trusted_groups: Vec::new(),
            // Longer than the sync interval of most tools; short enough that a one-off list does not keep a cache for a
            // day.
            idle_timeout: Duration::from_secs(10 * 60),
            // Dashboards and relisting controllers list more often; the bytes of a burst are freed soon after it.
            list_bytes_timeout: Duration::from_secs(60),
            compress_after: Some(Duration::from_secs(30)),
            bytes: None,
            // Those of a client-go program in a cluster with 1,000 definitions take some 100 KB in gzip, and OpenAPI
            // some megabytes.
            discovery_bytes: 12 << 20,
            history: HistoryConfig::default(),
            bridge: true,
            peers: None,
            persist: None,
            max_staleness: None,
            stale_watches: StaleWatches::Keep,
            // As often as an API server verifies its own cache. A verification costs upstream a list of metadata.
            verify_interval: Some(Duration::from_secs(5 * 60)),
        }
    }
}

impl Default for HistoryConfig {
    fn default() -> Self {
        // As long as etcd keeps versions before compaction with the API server's defaults; and a busy minute of a large
        // cluster: a collection with larger or faster changes has a shorter history.
        Self { age: Duration::from_secs(5 * 60), bytes: 256 << 20 }
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
    let has_group = text.contains('.');
    let valid = is_name(resource) && (!has_group || is_name(group));
    valid.then(|| GroupResource { group: group.into(), resource: resource.into() })
}

/// A lower-case DNS name.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.')
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
