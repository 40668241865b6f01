//! The fields of the status, as `/status.json` has them. The manual's chapter `status` explains them.
//!
//! Fields may be added within a version; none changes its meaning. A reader finds a default where a gateway of another
//! version lacks a field.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub const API_VERSION: &str = "kube-fanout.io/v1alpha1";
pub const KIND: &str = "GatewayStatus";

/// A gateway at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GatewayStatus {
    pub api_version: String,
    pub kind: String,
    /// RFC 3339.
    pub time: String,
    pub gateway: Gateway,
    pub upstream: Upstream,
    /// Other gateways of the cluster, by address; empty without `cache.peers`.
    pub peers: Vec<Peer>,
    pub savings: Savings,
    pub reads: Reads,
    pub last_hour: LastHour,
    pub caches: Vec<Cache>,
    /// The most frequently read first.
    pub resources: Vec<Resource>,
    /// Why reads were forwarded, the most frequent reason first.
    pub forwarded: Vec<Forwarded>,
    pub limits: Vec<Limit>,
    /// The clients with the most requests and watches.
    pub clients: Vec<ClientStatus>,
    /// The watchers that have had a change waiting for the longest time.
    pub slowest_watchers: Vec<SlowWatcher>,
    pub configuration: Vec<Setting>,
    pub reload: Reload,
    /// Whether names of users, namespaces and objects, and the configuration, are left out, because anyone who reaches
    /// the port may read the status.
    pub names_withheld: bool,
}

/// The process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Gateway {
    pub version: String,
    /// `trusted`, `delegated`.
    pub mode: String,
    pub uptime_seconds: u64,
    pub state: State,
    pub checks: Vec<CheckStatus>,
    pub cpu_seconds: f64,
    /// Cores in use over the last minute.
    pub cpu_cores: f64,
    pub memory_bytes: u64,
    pub connections: u64,
}

/// Whether the gateway accepts requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    Ready,
    Draining,
    /// As `/readyz` reports it; also stands for states that only a newer gateway has.
    #[default]
    #[serde(other)]
    NotReady,
}

/// One line of `/readyz?verbose`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CheckStatus {
    pub name: String,
    pub ready: bool,
    pub required: bool,
    /// Why it is not ready, or what happens meanwhile, as far as that is known.
    pub reason: String,
}

/// The API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Upstream {
    /// Its address, without credentials.
    pub server: String,
    /// The version that it last reported; `None` until it has answered.
    pub version: Option<String>,
    /// How many other gateways are between this one and it.
    pub gateways: u64,
    /// Those of `upstream.servers`; empty if there is only the address of the kubeconfig.
    pub servers: Vec<Server>,
    /// What keeps the gateway from it, and from other servers that it asks for reviews; the worst first.
    pub troubles: Vec<Trouble>,
}

/// One of several API servers of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Server {
    /// Host and port.
    pub server: String,
    /// `inUse`; `aside`: of the cluster, used only if no other is in use; `unknown`: not used, since it cannot be
    /// checked; `foreign`: never used, since it is not of the cluster.
    pub state: String,
    /// The version that it last reported.
    pub version: Option<String>,
    /// Those of the gateway, open or being opened.
    pub connections: u64,
    /// Why it is not in use. Empty if names are withheld.
    pub error: String,
}

/// The gateways behind one address of `cache.peers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Peer {
    /// Without credentials.
    pub address: String,
    /// `notAsked`; `works`; `itself`: it is this gateway, and no other one answers there; or why it does not work:
    /// `unreachable`, `unverified`, `timed_out`, `unauthorized`, `refused`, `foreign`, `cluster`, `ahead`, `malformed`,
    /// `broken`.
    pub state: String,
    /// Since when it does not work, RFC 3339. `None` if it does.
    pub since: Option<String>,
    /// When it was last asked for the state of a cache, RFC 3339.
    pub last_asked: Option<String>,
    /// When a cache was last filled with its state, RFC 3339.
    pub last_used: Option<String>,
    /// The last error. Empty if names are withheld.
    pub error: String,
}

/// Something that is wrong between the gateway and an API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Trouble {
    /// `unreachable`, `loop`, `foreign`, `unanswered`, `unauthorized` (401), `forbidden` (403).
    pub kind: String,
    pub server: String,
    /// RFC 3339.
    pub since: String,
    pub seconds: u64,
    /// The path of the gateway's own request that is refused.
    pub path: Option<String>,
    /// The last error, in its own words. Empty if names are withheld, since a refusal names the gateway's user.
    pub error: String,
}

/// The load that the API server is spared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Savings {
    /// Watches served from memory now.
    pub watchers: u64,
    /// Watches that the gateway has open upstream for them.
    pub upstream_watches: u64,
    pub watches_avoided: u64,
    /// Answered from memory, since the start.
    pub gets: u64,
    pub lists: u64,
    /// Watches that have ended.
    pub watches: u64,
    pub events_sent: u64,
    pub events_per_second: f64,
    /// Bytes of answers from memory.
    pub bytes: u64,
    /// An estimate by the figures of the manual: the least that the API server would have spent on the same answers.
    pub estimated_api_server_cpu_seconds: f64,
}

/// Finished gets, lists and watches of resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Reads {
    pub served: u64,
    pub forwarded: u64,
    pub rejected: u64,
    /// The share of served among served and forwarded; `None` if there were none.
    pub hit_ratio: Option<f64>,
    pub hit_ratio_last_minute: Option<f64>,
    pub hit_ratio_last_hour: Option<f64>,
}

/// The last hour in steps, or as much of it as there is; the oldest step comes first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LastHour {
    pub step_seconds: u64,
    pub served: Vec<u64>,
    pub forwarded: Vec<u64>,
    pub events_sent: Vec<u64>,
    pub cpu_cores: Vec<f64>,
}

/// A resource in one encoding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Cache {
    /// `deployments.apps`.
    pub resource: String,
    pub version: String,
    /// `json`, `protobuf`.
    pub encoding: String,
    /// What the cache covers: `a`, `spec.nodeName=n` or `a,spec.nodeName=n`; empty for the whole cluster.
    pub scope: String,
    /// `ready`, `stale`, or why reads are forwarded.
    pub state: String,
    /// What the API server cannot do for a cache that answers, for which some requests are forwarded: `watchList`.
    pub lacks: Vec<String>,
    pub objects: u64,
    pub bytes: CacheBytes,
    /// A string, as in Kubernetes.
    pub resource_version: String,
    pub progress_version: String,
    pub lag_seconds: f64,
    /// Fills since the cache was started.
    pub epoch: u64,
    pub history_changes: u64,
    /// How far back a watch can start, at least.
    pub history_seconds: Option<u64>,
    pub watchers: u64,
    pub upstream_watches: u64,
    pub events_sent: u64,
    pub events_per_second: f64,
    pub relayed_watches_ended: u64,
    /// Freshness proofs by outcome.
    pub proofs: BTreeMap<String, u64>,
    /// How often upstream had to be asked anew, by cause.
    pub restarts: BTreeMap<String, u64>,
    pub last_restart: Option<Restart>,
}

/// Memory of one cache by purpose, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CacheBytes {
    pub objects: u64,
    /// Those of `objects` that are kept only in compressed blocks.
    pub cold: u64,
    pub joined: u64,
    pub deflated: u64,
    pub derived: u64,
    pub history: u64,
}

/// When and why upstream had to be asked anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Restart {
    pub cause: String,
    pub seconds_ago: u64,
}

/// How one resource was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Resource {
    pub resource: String,
    pub served: u64,
    pub forwarded: u64,
    pub hit_ratio: Option<f64>,
    /// Why reads were forwarded.
    pub reasons: BTreeMap<String, u64>,
}

/// One reason for forwarding reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Forwarded {
    pub reason: String,
    pub meaning: String,
    pub requests: u64,
}

/// One limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Limit {
    pub name: String,
    /// `None` if it is only known when the limit is reached.
    pub used: Option<u64>,
    pub most: Option<u64>,
    /// How often it was reached.
    pub reached: u64,
}

/// A user agent, and its user where one is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClientStatus {
    pub user_agent: String,
    pub user: Option<String>,
    /// Watches that are open now.
    pub watches: u64,
    /// Finished requests, by outcome.
    pub served: u64,
    pub forwarded: u64,
    pub rejected: u64,
    /// The most by which the counts may be too high, because of requests that other clients made.
    pub uncertain: u64,
    pub bytes: u64,
}

/// A watcher with a waiting change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SlowWatcher {
    pub resource: String,
    pub encoding: String,
    pub user_agent: String,
    pub user: Option<String>,
    /// The part of the resource that it watches: everything, a namespace, an object, a value of its indexed field.
    /// `None` if names are withheld.
    pub interest: Option<String>,
    pub open_seconds: u64,
    /// Time since the first change that waits for it.
    pub behind_seconds: u64,
    pub behind_changes: u64,
}

/// What of the configuration file is not in effect since it has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Reload {
    /// When the file was refused, RFC 3339. `None` if it is in effect.
    pub failed_at: Option<String>,
    /// Why it was refused. Empty if names are withheld, since it quotes the file.
    pub error: String,
    /// The fields that have changed and need a restart.
    pub needs_restart: Vec<String>,
}

/// One field of the configuration that is in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Setting {
    pub field: String,
    pub value: String,
}

impl GatewayStatus {
    /// Whether the gateway is ready. `kube-fanout status` ends with this, and the page shows it first.
    pub fn is_healthy(&self) -> bool {
        self.gateway.state == State::Ready
    }
}

impl Trouble {
    /// One sentence: what is wrong.
    pub fn headline(&self) -> String {
        match self.kind.as_str() {
            "unreachable" => format!("The API server {} cannot be reached", self.server),
            "loop" => format!("The API server's address {} leads back to this gateway", self.server),
            "foreign" => format!("The server {} does not look like an API server", self.server),
            "unanswered" => format!("The API server {} does not answer GET /version with its version", self.server),
            "unauthorized" => format!("The API server {} does not accept the gateway's credentials", self.server),
            "forbidden" if self.path.is_none() => {
                "No server of upstream is usable, since the gateway may not list namespaces".to_owned()
            }
            _ => format!(
                "The API server {} refuses {} to the gateway",
                self.server,
                self.path.as_deref().unwrap_or("a request")
            ),
        }
    }
}

impl CheckStatus {
    /// Its name, and why it is not ready.
    pub(super) fn line(&self) -> String {
        let because = if self.reason.is_empty() { String::new() } else { format!(": {}", self.reason) };
        format!("{}{because}", self.name)
    }
}

impl Cache {
    /// The resource, and what part of it is cached: `pods`, `pods of a`.
    pub(super) fn name(&self) -> String {
        let Self { resource, scope, .. } = self;
        if scope.is_empty() { resource.clone() } else { format!("{resource} of {scope}") }
    }

    /// The state, and what is lacking: `ready, no watchList`.
    pub(super) fn state_words(&self) -> String {
        self.lacks.iter().fold(self.state.clone(), |words, lacking| words + ", no " + lacking)
    }
}

impl CacheBytes {
    pub fn all(&self) -> u64 {
        self.objects.saturating_sub(self.cold) + self.joined + self.deflated + self.derived + self.history
    }
}

impl Limit {
    /// The used share, from 0 to 1; 0 if it is not known.
    pub fn share(&self) -> f64 {
        match (self.used, self.most) {
            (Some(used), Some(most)) if most > 0 => used as f64 / most as f64,
            (_, _) => 0.0,
        }
    }
}
