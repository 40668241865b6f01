//! Validates the raw document into a [`Config`]: applies every rule, and reports every problem at once.

mod answers;
mod cache;
mod clients;
mod listeners;
mod peers;
mod proxy_headers;
mod servers;
#[cfg(test)]
mod tests;
mod tls;
mod traces;

pub(super) use answers::default_answer_bytes_per_client;
pub(super) use cache::RESOURCE;

use std::{ops::RangeInclusive, time::Duration};

use tracing::level_filters::LevelFilter;

use crate::config::check::Check;
use crate::config::raw::{self, Document};
use crate::config::{
    API_VERSION, AdminConfig, AuditConfig, AuditMode, ClientsConfig, Config, DEFAULT_ADMIN, DEFAULT_CONNECTIONS,
    DEFAULT_CONNECTIONS_PER_ADDRESS, DEFAULT_DRAIN_TIMEOUT, DEFAULT_FORWARDED_PER_CLIENT, DEFAULT_WATCHES_PER_CLIENT,
    DrainConfig, KIND, LimitsConfig, LoggingAccess, LoggingConfig, LoggingFormat, MetricsAuthorization, Overrides,
    Problems, UpstreamConfig,
};

const DRAIN_TIMEOUT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);
/// The maximum is above the number of files that one process can have open on any usual system.
const CONNECTIONS: RangeInclusive<usize> = 1..=1_000_000;
/// The maximum is a quarter of the 4,000 that share connections, as for everything that clients share
/// ([`crate::fairness`]).
const FORWARDED_PER_CLIENT: RangeInclusive<usize> = 1..=1_000;
const WATCHES_PER_CLIENT: RangeInclusive<usize> = 1..=10_000_000;

/// The configuration that the document describes; values of the command line override it.
pub(super) fn validate(document: &Document, overrides: &Overrides) -> Result<Config, Problems> {
    let mut check = Check::default();
    check.unknown("", &document.unknown, &DOCUMENT_FIELDS);
    check.exactly("apiVersion", document.api_version.as_ref(), API_VERSION);
    check.exactly("kind", document.kind.as_ref(), KIND);
    // Which listeners are allowed depends on the clients; problems keep the order of the fields.
    let mut of_clients = Check::default();
    let clients = of_clients.clients(document.clients.as_ref());
    check.mode_is_known = of_clients.mode_is_known;
    let listeners = check.listeners(document.listeners.as_deref(), overrides.listen.as_deref(), &clients);
    let upstream = check.upstream(document.upstream.as_ref(), overrides);
    let servers = check.servers(document.upstream.as_ref().and_then(|upstream| upstream.servers.as_deref()));
    check.problems.append(&mut of_clients.problems);
    let (cache, reads) = (check.cache(document.cache.as_ref(), &clients), check.reads(document.reads.as_ref()));
    let admin = check.admin(document.admin.as_ref(), overrides.admin_listen.as_deref(), &clients);
    if listeners.iter().any(|listener| listener.address.overlaps(&admin.address)) {
        let field = if overrides.admin_listen.is_some() { "--admin-listen" } else { "admin.address" };
        check.problem(
            field,
            &format!("\"{}\" is already the address of a listener", admin.address),
            "an address that no listener uses",
        );
    }
    let limits = check.limits(document.limits.as_ref(), &clients);
    let config = Config {
        listeners,
        upstream,
        servers,
        clients,
        cache,
        reads,
        admin,
        limits,
        audit: check.audit(document.audit.as_ref()),
        logging: check.logging(document.logging.as_ref()),
        tracing: check.tracing(document.tracing.as_ref()),
        drain: check.drain(document.drain.as_ref()),
    };
    if check.problems.is_empty() { Ok(config) } else { Err(Problems(check.problems)) }
}

const DOCUMENT_FIELDS: [&str; 13] = [
    "apiVersion",
    "kind",
    "listeners",
    "upstream",
    "clients",
    "cache",
    "reads",
    "admin",
    "limits",
    "audit",
    "logging",
    "tracing",
    "drain",
];

impl Check {
    fn upstream(&mut self, raw: Option<&raw::Upstream>, overrides: &Overrides) -> UpstreamConfig {
        let mut config = UpstreamConfig::default();
        if let Some(raw) = raw {
            self.unknown("upstream", &raw.unknown, &["kubeconfig", "context", "servers"]);
            config.kubeconfig = self.optional_path("upstream.kubeconfig", raw.kubeconfig.as_ref());
            config.context = self.text("upstream.context", raw.context.as_ref());
        }
        config.kubeconfig = overrides.kubeconfig.clone().or(config.kubeconfig);
        config.context = overrides.context.clone().or(config.context);
        config
    }

    /// Any address is allowed: probes and scrapes come from other machines.
    fn admin(&mut self, raw: Option<&raw::Admin>, admin_listen: Option<&str>, clients: &ClientsConfig) -> AdminConfig {
        let absent = raw::Admin::default();
        let raw = raw.unwrap_or(&absent);
        self.unknown("admin", &raw.unknown, &["address", "tls", "metricsAuthorization"]);
        let (field, address) = match (admin_listen, raw.address.as_ref()) {
            (Some(address), _) => ("--admin-listen", address),
            (None, Some(address)) => ("admin.address", address.0.as_str()),
            (None, None) => ("admin.address", DEFAULT_ADMIN),
        };
        let address = self.address(field, address);
        let words = [("none", MetricsAuthorization::None), ("delegated", MetricsAuthorization::Delegated)];
        let raw_authorization = raw.metrics_authorization.as_ref();
        let metrics_authorization =
            self.word("admin.metricsAuthorization", raw_authorization, MetricsAuthorization::None, &words);
        let delegated = metrics_authorization == MetricsAuthorization::Delegated;
        let tls =
            raw.tls.as_ref().map(|raw| self.listener_tls("admin.tls", raw, delegated && clients.by_certificate()));
        if delegated && tls.is_none() && !address.is_local() {
            let found = "missing; required because metricsAuthorization is delegated and the address is not local";
            self.problem("admin.tls", found, "certFile and keyFile, so that tokens are not sent in clear text");
        }
        AdminConfig { address, tls, metrics_authorization }
    }

    fn limits(&mut self, raw: Option<&raw::Limits>, clients: &ClientsConfig) -> LimitsConfig {
        let absent = raw::Limits::default();
        let raw = raw.unwrap_or(&absent);
        let fields = [
            "connections",
            "connectionsPerAddress",
            "forwardedPerClient",
            "watchesPerClient",
            "answerTimeout",
            "answerBytes",
            "answerBytesPerClient",
        ];
        self.unknown("limits", &raw.unknown, &fields);
        let answers = self.answers(raw);
        let mut number = |field, raw: &Option<_>, default, range: &RangeInclusive<usize>| {
            self.number(&format!("limits.{field}"), raw.as_ref(), default, range)
        };
        let connections = number("connections", &raw.connections, DEFAULT_CONNECTIONS, &CONNECTIONS);
        let each = match clients {
            ClientsConfig::Trusted(_) => connections,
            ClientsConfig::Delegated(_) => DEFAULT_CONNECTIONS_PER_ADDRESS.min(connections),
        };
        let (per_address, all) = (&raw.connections_per_address, *CONNECTIONS.start()..=connections);
        let (forwarded, watches) = (&raw.forwarded_per_client, &raw.watches_per_client);
        LimitsConfig {
            connections,
            connections_per_address: number("connectionsPerAddress", per_address, each, &all),
            forwarded_per_client: number(
                "forwardedPerClient",
                forwarded,
                DEFAULT_FORWARDED_PER_CLIENT,
                &FORWARDED_PER_CLIENT,
            ),
            watches_per_client: number("watchesPerClient", watches, DEFAULT_WATCHES_PER_CLIENT, &WATCHES_PER_CLIENT),
            answer_timeout: answers.timeout,
            answer_bytes: answers.bytes,
            answer_bytes_per_client: answers.bytes_per_client,
        }
    }

    fn audit(&mut self, raw: Option<&raw::Audit>) -> AuditConfig {
        let Some(raw) = raw else { return AuditConfig::default() };
        self.unknown("audit", &raw.unknown, &["path", "mode"]);
        if raw.mode.is_some() && raw.path.is_none() {
            self.problem("audit.mode", "needs audit.path", "set audit.path, or remove this field");
        }
        let modes = [("blocking", AuditMode::Blocking), ("bestEffort", AuditMode::BestEffort)];
        AuditConfig {
            path: self.optional_path("audit.path", raw.path.as_ref()),
            mode: self.word("audit.mode", raw.mode.as_ref(), AuditMode::default(), &modes),
        }
    }

    fn logging(&mut self, raw: Option<&raw::Logging>) -> LoggingConfig {
        let absent = raw::Logging::default();
        let raw = raw.unwrap_or(&absent);
        self.unknown("logging", &raw.unknown, &["format", "level", "access"]);
        let formats = [("text", LoggingFormat::Text), ("json", LoggingFormat::Json)];
        let levels = [
            ("off", LevelFilter::OFF),
            ("error", LevelFilter::ERROR),
            ("warn", LevelFilter::WARN),
            ("info", LevelFilter::INFO),
            ("debug", LevelFilter::DEBUG),
            ("trace", LevelFilter::TRACE),
        ];
        let access = [("all", LoggingAccess::All), ("notable", LoggingAccess::Notable), ("none", LoggingAccess::None)];
        LoggingConfig {
            format: self.word("logging.format", raw.format.as_ref(), LoggingFormat::Text, &formats),
            level: self.word("logging.level", raw.level.as_ref(), LevelFilter::INFO, &levels),
            access: self.word("logging.access", raw.access.as_ref(), LoggingAccess::Notable, &access),
        }
    }

    fn drain(&mut self, raw: Option<&raw::Drain>) -> DrainConfig {
        if let Some(raw) = raw {
            self.unknown("drain", &raw.unknown, &["timeout"]);
        }
        let timeout = raw.and_then(|raw| raw.timeout.as_ref());
        DrainConfig { timeout: self.duration("drain.timeout", timeout, DEFAULT_DRAIN_TIMEOUT, &DRAIN_TIMEOUT) }
    }
}
