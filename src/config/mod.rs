//! Configuration: raw YAML in, a validated configuration or every problem at once out.
//!
//! Invariants: a [`Config`] is valid, whoever holds one need not look again. Only this module reads the environment,
//! and files that are not a socket.

mod address;
mod check;
mod client_kubeconfig;
mod clients;
mod effective;
mod files;
mod load;
mod location;
mod problem;
mod proxy_headers;
mod quantity;
mod raw;
mod reload;
mod schema;
mod surroundings;
mod tls_files;
mod tls_policy;
mod upstream;
mod validate;

use std::{path::PathBuf, time::Duration};

use tracing::level_filters::LevelFilter;

use crate::apimachinery::GroupResource;

pub use address::{Address, InvalidAddress};
pub use client_kubeconfig::{ClientAccess, ClientAccessError};
pub use clients::{
    AuthenticationConfig, AuthorizationConfig, ClientsConfig, DEFAULT_ALLOWED_TTL, DEFAULT_DENIED_TTL,
    DEFAULT_TOKEN_FAILURE_TTL, DEFAULT_TOKEN_SUCCESS_TTL, DEFAULT_WATCH_INTERVAL, DelegatedConfig, FrontProxyConfig,
    IdentityConfig, RequestHeaderConfig, TrustedConfig,
};
pub use load::{LoadError, Overrides};
pub use location::Location;
pub use problem::{Problem, Problems};
pub use proxy_headers::ProxyHeaders;
pub use reload::ConfigFile;
pub use schema::schema;
pub use tls_files::{PemError, PemFile, TlsFiles, TlsPem};
pub use tls_policy::{TlsPolicy, TlsVersion};
pub use upstream::{UpstreamConfigError, is_clear_text};

// What other documents are read with.
pub(crate) use check::{Check, given};
pub(crate) use load::parse_document;
pub(crate) use quantity::{DURATION, SIZE, duration, size};
pub(crate) use raw::{Scalar, Unknown};

/// `apiVersion` of a configuration file.
pub const API_VERSION: &str = "kube-fanout.io/v1alpha1";
/// `kind` of a configuration file.
pub const KIND: &str = "GatewayConfiguration";

/// Where a gateway without listeners listens: the address of `kubectl proxy`, so that it can take its place.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8001";
/// Metrics and health are for this machine unless the operator says otherwise.
pub const DEFAULT_ADMIN: &str = "127.0.0.1:9090";
/// Events are not served from a watch cache upstream either, and change faster than anybody lists them.
pub const DEFAULT_EXCLUDE: &[&str] = &["events", "events.events.k8s.io"];
/// Besides these, where clients are told apart: what a client may see is decided in this process, and a mistake there costs
/// most with Secrets.
pub const DEFAULT_EXCLUDE_DELEGATED: &[&str] = &["secrets"];
/// Longer than the pause between two syncs of most tools, short enough that a one-off list does not stay for a day.
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Dashboards and relisting controllers come back sooner; a burst's bytes are gone soon after it.
pub const DEFAULT_LIST_BYTES_TIMEOUT: Duration = Duration::from_secs(60);
/// As long as etcd keeps versions before compaction with the API server's defaults.
pub const DEFAULT_HISTORY_AGE: Duration = Duration::from_secs(5 * 60);
/// As often as an API server looks at its own cache. A look costs upstream a list of metadata.
pub const DEFAULT_VERIFY_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// A busy minute of a large cluster; a collection with larger or faster changes has a shorter history.
pub const DEFAULT_HISTORY_BYTES: u64 = 256 << 20;
/// A change usually arrives within a few milliseconds: who waits longer is better served by upstream.
pub const DEFAULT_FRESHNESS_WAIT: Duration = Duration::from_millis(100);
/// A fill of 10,000 pods takes one or two seconds, one of 100,000 ten to twenty. Half of the 60 s after which an API server ends
/// a list (`--request-timeout`), so that a read that is forwarded after all can still be answered in its client's time.
pub const DEFAULT_FILL_WAIT: Duration = Duration::from_secs(30);
/// Several hundred clients with a handful of connections each, within common limits on open files.
pub const DEFAULT_CONNECTIONS: usize = 10_000;
/// A tenth of all: room for the processes of a large machine, or of the clients behind one proxy. Trusted clients, all on
/// one machine, may have all connections.
pub const DEFAULT_CONNECTIONS_PER_ADDRESS: usize = 1_000;
/// A quarter of all that go upstream at once: three others can do the same, and nobody is kept out.
pub const DEFAULT_FORWARDED_PER_CLIENT: usize = 1_000;
/// As many as connections: a load test of one user is not stopped, a client that leaks watches is.
pub const DEFAULT_WATCHES_PER_CLIENT: usize = 10_000;
/// As long as an API server gives a request by default (`--request-timeout`).
pub const DEFAULT_ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Room for thousands of lists at once, each with a piece of 64 KiB on its way; one client may have a quarter of it.
pub const DEFAULT_ANSWER_BYTES: u64 = 1 << 30;
/// That of OTLP over gRPC on this machine, as Kubernetes' components have it.
pub const DEFAULT_TRACING_ENDPOINT: &str = "localhost:4317";
/// Below the 30 s that Kubernetes gives a pod to end.
pub const DEFAULT_DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// What a gateway is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// At least one.
    pub listeners: Vec<ListenerConfig>,
    pub upstream: UpstreamConfig,
    pub clients: ClientsConfig,
    pub cache: CacheConfig,
    pub reads: ReadsConfig,
    pub admin: AdminConfig,
    pub limits: LimitsConfig,
    pub audit: AuditConfig,
    pub logging: LoggingConfig,
    /// None: nothing is traced.
    pub tracing: Option<TracingConfig>,
    pub drain: DrainConfig,
}

/// One socket for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    pub address: Address,
    /// None: plain HTTP. Then the address is a loopback address or a Unix socket.
    pub tls: Option<ListenerTls>,
    /// After about so long a connection takes no further requests. None: connections last as long as clients use them.
    pub max_connection_age: Option<Duration>,
}

impl ListenerConfig {
    /// Plain HTTP.
    pub const fn plain(address: Address) -> Self {
        Self { address, tls: None, max_connection_age: None }
    }
}

/// TLS of one socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTls {
    pub files: TlsFiles,
    pub policy: TlsPolicy,
    /// Clients are asked for a certificate, which they need not have.
    pub client_certificates: bool,
}

/// Which API server. Neither field set: found as kubectl finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamConfig {
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
}

/// What is cached, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Always forwarded.
    pub exclude: Vec<GroupResource>,
    /// Cached from the start, and never stopped for being idle.
    pub prewarm: Vec<GroupResource>,
    /// A cache without any request or watch for this long is stopped.
    pub idle_timeout: Duration,
    /// What was joined or compressed for lists is given back when no list has asked for it for this long, twice that at most.
    pub list_bytes_timeout: Duration,
    pub history: HistoryConfig,
    /// A cache whose version upstream has forgotten is led to the new state, and its watches go on.
    pub bridge: bool,
    /// A cache that has not heard from upstream for so long makes the gateway not ready. None: none does.
    pub max_staleness: Option<Duration>,
    /// What becomes of watches then.
    pub stale_watches: StaleWatches,
    /// How often each cache is compared with upstream. None: never.
    pub verify_interval: Option<Duration>,
}

/// What becomes of the watches of a cache that is staler than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleWatches {
    /// They stay open, and silent.
    Keep,
    /// They end, and new ones are forwarded, so that clients look for another gateway.
    End,
}

/// How far back a watch may start, per cache. The smaller bound wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryConfig {
    pub age: Duration,
    /// An estimate of what the window costs beside the newest state.
    pub bytes: u64,
}

/// How reads are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadsConfig {
    /// How long a read waits for its version to arrive before it is forwarded.
    pub freshness_wait: Duration,
    /// How long a read that memory will be able to answer waits for its cache to be filled before it is forwarded.
    pub fill_wait: Duration,
    pub most_recent_watch: MostRecentWatch,
    pub most_recent: MostRecentReads,
}

/// What becomes of a get or a list of the most recent state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MostRecentReads {
    /// Forwarded.
    #[default]
    Forward,
    /// Served from memory after a freshness proof where that is neither slower nor dearer than forwarding.
    Auto,
    /// Served from memory after a freshness proof.
    Prove,
}

/// What becomes of a watch that wants the most recent state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MostRecentWatch {
    /// Served from memory after a freshness proof.
    Prove,
    /// Forwarded.
    Forward,
}

/// The operator's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    pub address: Address,
    /// None: plain HTTP wherever it is, for probes and most scrapes send no credentials.
    pub tls: Option<ListenerTls>,
    pub metrics_authorization: MetricsAuthorization,
}

/// Who may read the metrics. Health is for everybody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAuthorization {
    /// Whoever reaches the port.
    #[default]
    None,
    /// Whoever upstream lets `get` the path `/metrics`. Then the address is a local one, or there is TLS.
    Delegated,
}

impl AdminConfig {
    /// The operator's port as a listener.
    pub fn listener(&self) -> ListenerConfig {
        ListenerConfig { tls: self.tls.clone(), ..ListenerConfig::plain(self.address.clone()) }
    }
}

/// What one gateway takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Open connections of all listeners together; further ones wait in the kernel's queue.
    pub connections: usize,
    /// Open connections from one IP address, `connections` at most; further ones are closed if it is fewer than those.
    pub connections_per_address: usize,
    /// Requests of one client on their way upstream at once; further ones are answered with 429.
    pub forwarded_per_client: usize,
    /// Watches of one client that are served from memory at once; further ones are answered with 429.
    pub watches_per_client: usize,
    /// How long a client may take to read an answer that ends by itself; then its stream or connection is ended.
    pub answer_timeout: Duration,
    /// Bytes that answers from memory hold for themselves while they are sent; further ones are answered with 429.
    pub answer_bytes: u64,
    /// The same of one client, `answer_bytes` at most. In delegated mode, where clients are told apart.
    pub answer_bytes_per_client: u64,
}

/// What is kept of the gateway's own answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditConfig {
    /// The file that events are appended to; `-` is standard output. None: there is no audit log.
    pub path: Option<PathBuf>,
    pub mode: AuditMode,
}

/// What becomes of a read whose event cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditMode {
    /// Memory does not answer it: it is forwarded.
    #[default]
    Blocking,
    /// Memory answers it.
    BestEffort,
}

/// Form and amount of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggingConfig {
    pub format: LoggingFormat,
    pub level: LevelFilter,
    /// Which finished requests and watches have a line, at level info and below.
    pub access: LoggingAccess,
}

/// Which finished requests and watches have a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggingAccess {
    All,
    /// Errors, refusals, and what was slow.
    Notable,
    None,
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggingFormat {
    Text,
    Json,
}

/// Traces of requests, for a collector of OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingConfig {
    /// `host:port`, over gRPC without TLS.
    pub endpoint: String,
    /// Of a million requests that no client decides about, how many are traced.
    pub sampling_rate_per_million: u32,
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainConfig {
    /// What still runs after this long is aborted.
    pub timeout: Duration,
}
