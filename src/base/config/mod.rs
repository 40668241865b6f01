//! Configuration: raw YAML in, a validated configuration or every problem at once out.
//!
//! Invariants: a [`Config`] is valid; no other code validates it again. Only this module reads the environment, and
//! files that are not a socket.

mod address;
mod admin;
mod audit;
mod builtin_resources;
mod cache;
mod client_kubeconfig;
mod clients;
mod effective;
mod fallback;
mod fields;
mod files;
mod kubeconfig_file;
mod limits;
mod listeners;
mod load;
mod location;
mod logging;
mod memory;
mod nearest;
mod own_upstream;
mod peers;
mod persist;
mod preflight;
mod problem;
mod proxy_headers;
mod quantity;
mod reads;
mod redacted;
mod reload;
mod schema;
mod server_address;
#[cfg(test)]
mod tests;
mod tls_files;
mod tls_policy;
mod token_file;
mod upstream;

use std::{ops::RangeInclusive, time::Duration};

pub use address::{Address, InvalidAddress};
pub use admin::{AdminConfig, DEFAULT_ADMIN, MetricsAuthorization};
pub use audit::{AuditConfig, AuditMode};
pub use cache::{CacheConfig, CacheScope, DEFAULT_EXCLUDE, HistoryConfig, Prewarm, StaleWatches};
pub use client_kubeconfig::{ClientAccess, ClientAccessError};
pub use clients::{
    AuthenticationConfig, AuthorizationConfig, ClientsConfig, DelegatedConfig, FrontProxyConfig, IdentityConfig,
    RequestHeaderConfig, TrustedConfig,
};
pub use fallback::{FALLBACK_CA_FILE, FallbackConfig};
pub use kubeconfig_file::MalformedKubeconfig;
pub use limits::LimitsConfig;
pub use listeners::{DEFAULT_LISTEN, ListenerConfig, ListenerTls};
pub use load::{Checked, LoadError, Overrides};
pub use location::Location;
pub use logging::{LoggingConfig, LoggingFormat, TracingConfig};
pub use memory::memory_limit;
pub use peers::PeersConfig;
pub use persist::PersistConfig;
pub use problem::{Problem, Problems};
pub use proxy_headers::ProxyHeaders;
pub use reads::{MostRecentReads, MostRecentWatch, ReadsConfig, Shards};
pub use redacted::Redacted;
pub use reload::ConfigFile;
pub use schema::schema;
pub use server_address::{InvalidServerAddress, ServerAddress};
pub use tls_files::{PemError, PemFile, TlsFiles, TlsPem};
pub use tls_policy::{TlsPolicy, TlsVersion};
pub use token_file::{TokenFile, TokenFileError};
pub use upstream::{NoKubeconfig, UpstreamConfig, UpstreamConfigError, is_clear_text, with_needed_authorities};

// Also used to read other documents.
pub use fields::{
    About, Document, FLAG, Fields, Findings, Form, Maybe, Number, Parsed, Refused, Size, Text, Time, Words, about,
    given, unexpanded,
};
pub use nearest::meant;
pub use quantity::{DURATION, SIZE, duration, size};
pub use upstream::has_host_and_port;

/// `apiVersion` of a configuration file.
pub const API_VERSION: &str = "kube-fanout.io/v1alpha1";
/// `kind` of a configuration file.
pub const KIND: &str = "GatewayConfiguration";

const DRAIN_TIMEOUT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);

/// The configuration of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// At least one.
    pub listeners: Vec<ListenerConfig>,
    pub upstream: UpstreamConfig,
    /// The API servers of the upstream's cluster, dialled in place of its address. Empty: only that address is dialled.
    pub servers: Vec<ServerAddress>,
    /// Dialled while none of them can be used.
    pub fallback: Option<FallbackConfig>,
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

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainConfig {
    /// Tasks that still run after this time are aborted.
    pub timeout: Duration,
}

impl Config {
    /// Every field that a configuration file may have.
    fn fields(&mut self, fields: &mut Fields<'_>) {
        fields.constant("apiVersion", API_VERSION);
        fields.constant("kind", KIND);
        fields.sections("listeners", &mut self.listeners, ListenerConfig::fields);
        fields.length("listeners", 1, None);
        fields.section("upstream", |fields| self.upstream.fields(&mut self.servers, &mut self.fallback, fields));
        fields.section("clients", |fields| self.clients.fields(fields));
        fields.section("cache", |fields| self.cache.fields(&self.clients, fields));
        fields.section("reads", |fields| self.reads.fields(fields));
        fields.section("admin", |fields| self.admin.fields(fields));
        fields.section("limits", |fields| self.limits.fields(&self.clients, fields));
        fields.section("audit", |fields| self.audit.fields(fields));
        fields.section("logging", |fields| self.logging.fields(fields));
        fields.optional("tracing", &mut self.tracing, TracingConfig::fields);
        fields.section("drain", |fields| {
            let text = "after SIGTERM, what still runs after this time is aborted";
            fields.value("timeout", about(text), &mut self.drain.timeout, &Time(DRAIN_TIMEOUT));
        });
    }

    /// The configuration of a document; values of the command line override it.
    fn read(document: &Document, overrides: &Overrides) -> Result<Self, Problems> {
        let clients = ClientsConfig::of_mode(document.text(&["clients", "mode"]));
        let limits = overrides.memory.map_or_else(LimitsConfig::default, LimitsConfig::within);
        let mut config = Self { clients, limits, ..Self::default() };
        let mut findings = Findings::read(document, |fields| config.fields(fields));
        let Overrides { kubeconfig, context, listen, admin_listen, memory } = overrides;
        listeners::check(&mut config.listeners, listen.as_deref(), &config.clients, &mut findings);
        config.admin.check(admin_listen.as_deref(), &config.listeners, &config.clients, &mut findings);
        let UpstreamConfig { kubeconfig: of_file, context: of_file_context } = config.upstream;
        let (kubeconfig, context) = (kubeconfig.clone().or(of_file), context.clone().or(of_file_context));
        config.upstream = UpstreamConfig { kubeconfig, context };
        let of_memory = memory.map(|memory| CacheConfig::default_bytes(memory, &config.limits));
        config.cache.bytes = config.cache.bytes.or(of_memory);
        findings.result(config)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listeners: vec![ListenerConfig::plain(DEFAULT_LISTEN.parse().unwrap_or_default())],
            upstream: UpstreamConfig::default(),
            servers: Vec::new(),
            fallback: None,
            clients: ClientsConfig::default(),
            cache: CacheConfig::default(),
            reads: ReadsConfig::default(),
            admin: AdminConfig::default(),
            limits: LimitsConfig::default(),
            audit: AuditConfig::default(),
            logging: LoggingConfig::default(),
            tracing: None,
            drain: DrainConfig { timeout: Duration::from_secs(20) },
        }
    }
}
