//! Configuration: raw YAML in, a validated configuration or every problem at once out.
//!
//! Invariants: a [`Config`] is valid; no other code validates it again. Only this module reads the environment, and
//! files that are not a socket.

mod address;
mod builtin;
mod check;
mod client_kubeconfig;
mod clients;
mod effective;
mod files;
mod ineffective;
mod kubeconfig_file;
mod load;
mod location;
mod nearest;
mod own_upstream;
mod problem;
mod proxy_headers;
mod quantity;
mod raw;
mod redacted;
mod reload;
mod schema;
mod server_address;
mod shape;
mod surroundings;
mod tls_files;
mod tls_policy;
mod token_file;
mod upstream;
mod validate;

use std::{path::PathBuf, time::Duration};

use http::Uri;
use tracing::level_filters::LevelFilter;

use crate::apimachinery::GroupResource;

pub use address::{Address, InvalidAddress};
pub use client_kubeconfig::{ClientAccess, ClientAccessError};
pub use clients::{
    AuthenticationConfig, AuthorizationConfig, ClientsConfig, DEFAULT_ALLOWED_TTL, DEFAULT_DENIED_TTL,
    DEFAULT_TOKEN_FAILURE_TTL, DEFAULT_TOKEN_SUCCESS_TTL, DEFAULT_WATCH_INTERVAL, DelegatedConfig, FrontProxyConfig,
    IdentityConfig, RequestHeaderConfig, TrustedConfig,
};
pub use kubeconfig_file::MalformedKubeconfig;
pub use load::{Checked, LoadError, Overrides};
pub use location::Location;
pub use problem::{Problem, Problems};
pub use proxy_headers::ProxyHeaders;
pub use redacted::Redacted;
pub use reload::ConfigFile;
pub use schema::schema;
pub use server_address::{InvalidServerAddress, ServerAddress};
pub use tls_files::{PemError, PemFile, TlsFiles, TlsPem};
pub use tls_policy::{TlsPolicy, TlsVersion};
pub use token_file::{TokenFile, TokenFileError};
pub use upstream::{NoKubeconfig, UpstreamConfigError, is_clear_text, with_needed_authorities};

// Also used to read other documents.
pub use check::{Check, given, unexpanded};
pub use load::parse_document;
pub use nearest::meant;
pub use quantity::{DURATION, SIZE, duration, size};
pub use raw::{Scalar, Unknown};
pub use upstream::has_host_and_port;
use validate::default_answer_bytes_per_client;

/// `apiVersion` of a configuration file.
pub const API_VERSION: &str = "kube-fanout.io/v1alpha1";
/// `kind` of a configuration file.
pub const KIND: &str = "GatewayConfiguration";

/// The address of a gateway without listeners: that of `kubectl proxy`, so that the gateway can replace it.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8001";
/// Metrics and health are reachable from this machine only, unless configured otherwise.
pub const DEFAULT_ADMIN: &str = "127.0.0.1:9090";
/// Upstream does not cache events either; they change more often than they are listed.
pub const DEFAULT_EXCLUDE: &[&str] = &["events", "events.events.k8s.io"];
/// Excluded in addition in `delegated` mode: there this process decides what a client may read, and a mistake would be
/// worst with Secrets.
pub const DEFAULT_EXCLUDE_DELEGATED: &[&str] = &["secrets"];
/// Longer than the sync interval of most tools; short enough that a one-off list does not keep a cache for a day.
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Dashboards and relisting controllers list more often; the bytes of a burst are freed soon after it.
pub const DEFAULT_LIST_BYTES_TIMEOUT: Duration = Duration::from_secs(60);
/// As long as etcd keeps versions before compaction with the API server's defaults.
pub const DEFAULT_HISTORY_AGE: Duration = Duration::from_secs(5 * 60);
/// As often as an API server verifies its own cache. A verification costs upstream a list of metadata.
pub const DEFAULT_VERIFY_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// A busy minute of a large cluster; a collection with larger or faster changes has a shorter history.
pub const DEFAULT_HISTORY_BYTES: u64 = 256 << 20;
/// A change usually arrives within a few milliseconds; a read that would wait longer is forwarded.
pub const DEFAULT_FRESHNESS_WAIT: Duration = Duration::from_millis(100);
/// A fill of 10,000 pods takes one or two seconds, one of 100,000 ten to twenty. Half of the 60 s after which an API
/// server ends a list (`--request-timeout`), so that a read that is forwarded after all can still be answered in its
/// client's time.
pub const DEFAULT_FILL_WAIT: Duration = Duration::from_secs(30);
/// Several hundred clients with a handful of connections each, within common limits on open files.
pub const DEFAULT_CONNECTIONS: usize = 10_000;
/// A tenth of all: enough for the processes of a large machine, or for the clients behind one proxy. In `trusted` mode
/// all clients are on one machine and may use all connections.
pub const DEFAULT_CONNECTIONS_PER_ADDRESS: usize = 1_000;
/// A quarter of all concurrent requests upstream: three such clients still leave room for others.
pub const DEFAULT_FORWARDED_PER_CLIENT: usize = 1_000;
/// As many as connections: enough for a load test by one user, and a bound for a client that leaks watches.
pub const DEFAULT_WATCHES_PER_CLIENT: usize = 10_000;
/// The default of an API server's `--request-timeout`.
pub const DEFAULT_ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Enough for thousands of concurrent lists with 64 KiB in flight each; one client gets a quarter.
pub const DEFAULT_ANSWER_BYTES: u64 = 1 << 30;
/// The default of Kubernetes' components: OTLP over gRPC on this machine.
pub const DEFAULT_TRACING_ENDPOINT: &str = "localhost:4317";
/// More servers than the control plane of any usual cluster has.
pub const SERVERS_MAX: usize = 16;
/// Less than a pod's default termination grace period of 30 s.
pub const DEFAULT_DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// The configuration of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// At least one.
    pub listeners: Vec<ListenerConfig>,
    pub upstream: UpstreamConfig,
    /// The API servers of the upstream's cluster, dialled in place of its address. Empty: only that address is dialled.
    pub servers: Vec<ServerAddress>,
    pub clients: ClientsConfig,
    pub cache: CacheConfig,
    pub reads: ReadsConfig,
    pub admin: AdminConfig,
    pub limits: LimitsConfig,
    pub audit: AuditConfig,
    pub logging: LoggingConfig,
    /// `None`: nothing is traced.
    pub tracing: Option<TracingConfig>,
    pub drain: DrainConfig,
}

/// One socket for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    pub address: Address,
    /// `None`: plain HTTP. Then the address is a loopback address or a Unix socket.
    pub tls: Option<ListenerTls>,
    /// After about this time a connection accepts no further requests. `None`: no limit.
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
    /// Whether clients are asked for a certificate; it is optional.
    pub client_certificates: bool,
}

/// The API server. If neither field is set, it is found as kubectl finds it.
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
    /// Bytes that were joined or compressed for lists are freed when no list has used them for this time, or up to
    /// twice as long.
    pub list_bytes_timeout: Duration,
    pub history: HistoryConfig,
    /// Whether a cache whose version upstream no longer knows is brought to the new state with its watches kept.
    pub bridge: bool,
    /// Other gateways of the same cluster, which are asked for the state of a new cache before upstream. `None`: none.
    pub peers: Option<PeersConfig>,
    /// The gateway is not ready while a cache has had no contact to upstream for this time. `None`: no limit.
    pub max_staleness: Option<Duration>,
    /// What happens to the watches of a cache that has had no contact for longer than `max_staleness`.
    pub stale_watches: StaleWatches,
    /// How often each cache is compared with upstream. `None`: never.
    pub verify_interval: Option<Duration>,
}

/// Other gateways of the same cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersConfig {
    /// At least one: a Service's, or a gateway's own. HTTPS, or HTTP at a loopback address.
    pub addresses: Vec<Uri>,
    /// The authorities of their certificates; `None` only without TLS.
    pub ca: Option<PemFile>,
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

/// How reads are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadsConfig {
    /// How long a read waits for its version to arrive before it is forwarded.
    pub freshness_wait: Duration,
    /// How long a read waits for its cache to be filled before it is forwarded.
    pub fill_wait: Duration,
    pub most_recent_watch: MostRecentWatch,
    pub most_recent: MostRecentReads,
}

/// How a get or a list of the most recent state is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MostRecentReads {
    /// Forwarded.
    #[default]
    Forward,
    /// Served from memory after a freshness proof where that is neither slower nor more expensive than forwarding.
    Auto,
    /// Served from memory after a freshness proof.
    Prove,
}

/// How a watch from the most recent state is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MostRecentWatch {
    /// Served from memory after a freshness proof.
    Prove,
    /// Forwarded.
    Forward,
}

/// The admin port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    pub address: Address,
    /// `None`: plain HTTP on any address, since probes and most scrapers send no credentials.
    pub tls: Option<ListenerTls>,
    pub metrics_authorization: MetricsAuthorization,
}

/// Which clients may read the metrics and the status. Health endpoints are open to all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAuthorization {
    /// Every client that reaches the port.
    #[default]
    None,
    /// Users that upstream permits to `get` the path. The port is then local, or has TLS.
    Delegated,
}

impl AdminConfig {
    /// The admin port as a listener.
    pub fn listener(&self) -> ListenerConfig {
        ListenerConfig { tls: self.tls.clone(), ..ListenerConfig::plain(self.address.clone()) }
    }
}

/// Limits of one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Open connections of all listeners together; further ones wait in the kernel's queue.
    pub connections: usize,
    /// Open connections from one IP address, at most as many as `connections`; further ones are closed. If both are
    /// equal, they wait in the kernel's queue.
    pub connections_per_address: usize,
    /// Concurrent forwarded requests of one client; further ones are answered with 429.
    pub forwarded_per_client: usize,
    /// Concurrent watches of one client from memory; further ones are answered with 429.
    pub watches_per_client: usize,
    /// How long a client may take to read an answer that is not long-running; then its stream or connection is closed.
    pub answer_timeout: Duration,
    /// Bytes that all answers from memory may hold while they are sent; further ones are answered with 429.
    pub answer_bytes: u64,
    /// The same for one client, at most `answer_bytes`. Applies in `delegated` mode, where clients are distinguished.
    pub answer_bytes_per_client: u64,
}

/// The audit log of requests that the gateway itself answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditConfig {
    /// The file that events are appended to; `-` is standard output. `None`: no audit log.
    pub path: Option<PathBuf>,
    pub mode: AuditMode,
}

/// What happens to a read whose event cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditMode {
    /// It is forwarded, not served from memory.
    #[default]
    Blocking,
    /// It is served from memory.
    BestEffort,
}

/// The format and amount of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggingConfig {
    pub format: LoggingFormat,
    pub level: LevelFilter,
    /// Which finished requests and watches are logged, at level info and below.
    pub access: LoggingAccess,
}

/// Which finished requests and watches are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggingAccess {
    All,
    /// Errors, refusals and slow requests.
    Notable,
    None,
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggingFormat {
    Text,
    Json,
}

/// Traces of requests, for an OpenTelemetry collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingConfig {
    /// `host:port`, over gRPC without TLS.
    pub endpoint: String,
    /// How many of a million requests are traced, among those whose client has not decided.
    pub sampling_rate_per_million: u32,
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainConfig {
    /// Tasks that still run after this time are aborted.
    pub timeout: Duration,
}
