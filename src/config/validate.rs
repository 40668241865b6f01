//! From the raw document to a [`Config`]: every rule, and every problem at once.

use std::{collections::HashSet, ops::RangeInclusive, path::PathBuf, time::Duration};

use tracing::level_filters::LevelFilter;

use crate::apimachinery::GroupResource;
use crate::config::raw::{self, Document, Scalar, Unknown};
use crate::config::{
    API_VERSION, Address, AdminConfig, CacheConfig, ClientMode, ClientsConfig, Config, DEFAULT_ADMIN,
    DEFAULT_CONNECTIONS, DEFAULT_DRAIN_TIMEOUT, DEFAULT_EXCLUDE, DEFAULT_FRESHNESS_WAIT, DEFAULT_HISTORY_AGE,
    DEFAULT_HISTORY_BYTES, DEFAULT_IDLE_TIMEOUT, DEFAULT_LIST_BYTES_TIMEOUT, DEFAULT_LISTEN, DrainConfig,
    HistoryConfig, KIND, LimitsConfig, ListenerConfig, LoggingConfig, LoggingFormat, MostRecentWatch, Overrides,
    Problem, Problems, ReadsConfig, TlsFiles, UpstreamConfig, quantity,
};

/// Shorter, and caches of resources in use would come and go.
const IDLE_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(7 * 24 * 3600);
/// Looked at every five seconds.
const LIST_BYTES_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(24 * 3600);
/// A client that reconnects needs some seconds; beyond a day nobody resumes.
const HISTORY_AGE: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(24 * 3600);
/// Room for a few changes of the largest objects (about 1.5 MiB each).
const HISTORY_BYTES_MIN: u64 = 8 << 20;
/// The API server itself waits up to 3 s for a version.
const FRESHNESS_WAIT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3);
const DRAIN_TIMEOUT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);
/// Above what one process can have open files on any usual system.
const CONNECTIONS: RangeInclusive<usize> = 1..=1_000_000;

/// The configuration that the document describes, under what the command line says.
pub(super) fn validate(document: &Document, overrides: &Overrides) -> Result<Config, Problems> {
    let mut check = Check { problems: Vec::new() };
    check.unknown("", &document.unknown, &DOCUMENT_FIELDS);
    check.exactly("apiVersion", document.api_version.as_ref(), API_VERSION);
    check.exactly("kind", document.kind.as_ref(), KIND);
    let config = Config {
        listeners: check.listeners(document.listeners.as_deref(), overrides.listen.as_deref()),
        upstream: check.upstream(document.upstream.as_ref(), overrides),
        clients: check.clients(document.clients.as_ref()),
        cache: check.cache(document.cache.as_ref()),
        reads: check.reads(document.reads.as_ref()),
        admin: check.admin(document.admin.as_ref(), overrides.admin_listen.as_deref()),
        limits: check.limits(document.limits.as_ref()),
        logging: check.logging(document.logging.as_ref()),
        drain: check.drain(document.drain.as_ref()),
    };
    if check.problems.is_empty() { Ok(config) } else { Err(Problems(check.problems)) }
}

const DOCUMENT_FIELDS: [&str; 11] =
    ["apiVersion", "kind", "listeners", "upstream", "clients", "cache", "reads", "admin", "limits", "logging", "drain"];

/// Collects problems. What is wrong gets a stand-in, so that the rest can be looked at.
struct Check {
    problems: Vec<Problem>,
}

impl Check {
    fn listeners(&mut self, raw: Option<&[raw::Listener]>, listen: Option<&str>) -> Vec<ListenerConfig> {
        let Some(raw) = raw.filter(|_| listen.is_none()) else {
            let address = self.address("--listen", listen.unwrap_or(DEFAULT_LISTEN));
            if !address.is_local() {
                self.not_local("--listen", &address);
            }
            return vec![ListenerConfig { address, tls: None }];
        };
        if raw.is_empty() {
            self.problem("listeners", "an empty list was given", "at least one listener");
        }
        let listeners: Vec<_> = raw.iter().enumerate().map(|(index, raw)| self.listener(index, raw)).collect();
        let mut seen = HashSet::new();
        for (index, listener) in listeners.iter().enumerate() {
            // Port 0 is a port of the system's choice, another one each time.
            let any_port = matches!(listener.address, Address::Tcp(address) if address.port() == 0);
            if !any_port && !seen.insert(&listener.address) {
                let found = format!("\"{}\" was given before", listener.address);
                self.problem(&format!("listeners[{index}].address"), &found, "each address once");
            }
        }
        listeners
    }

    fn listener(&mut self, index: usize, raw: &raw::Listener) -> ListenerConfig {
        let field = format!("listeners[{index}]");
        self.unknown(&field, &raw.unknown, &["address", "tls"]);
        let address = match &raw.address {
            Some(address) => self.address(&format!("{field}.address"), &address.0),
            None => {
                self.problem(&format!("{field}.address"), "missing", Address::ALLOWED);
                stand_in_address()
            }
        };
        let local = address.is_local();
        if !local {
            self.not_local(&format!("{field}.address"), &address);
        }
        let tls = raw.tls.as_ref().map(|tls| self.tls(&format!("{field}.tls"), tls));
        if tls.is_none() && !local {
            let allowed = "certFile and keyFile; plain HTTP is for loopback addresses and Unix sockets";
            self.problem(&format!("{field}.tls"), "missing", allowed);
        }
        ListenerConfig { address, tls }
    }

    fn tls(&mut self, field: &str, raw: &raw::Tls) -> TlsFiles {
        self.unknown(field, &raw.unknown, &["certFile", "keyFile"]);
        TlsFiles {
            cert_file: self.path(&format!("{field}.certFile"), raw.cert_file.as_ref()),
            key_file: self.path(&format!("{field}.keyFile"), raw.key_file.as_ref()),
        }
    }

    fn path(&mut self, field: &str, raw: Option<&Scalar>) -> PathBuf {
        if raw.is_none_or(|path| path.0.is_empty()) {
            self.problem(field, "missing", "the path of a PEM file");
        }
        raw.map(|path| PathBuf::from(&path.0)).unwrap_or_default()
    }

    fn not_local(&mut self, field: &str, address: &Address) {
        let allowed = "a loopback address or unix:/PATH, as clients.mode is trusted";
        self.problem(field, &given(&address.to_string()), allowed);
    }

    fn upstream(&mut self, raw: Option<&raw::Upstream>, overrides: &Overrides) -> UpstreamConfig {
        let mut config = UpstreamConfig::default();
        if let Some(raw) = raw {
            self.unknown("upstream", &raw.unknown, &["kubeconfig", "context"]);
            config.kubeconfig = self.text("upstream.kubeconfig", raw.kubeconfig.as_ref()).map(PathBuf::from);
            config.context = self.text("upstream.context", raw.context.as_ref());
        }
        config.kubeconfig = overrides.kubeconfig.clone().or(config.kubeconfig);
        config.context = overrides.context.clone().or(config.context);
        config
    }

    fn text(&mut self, field: &str, raw: Option<&Scalar>) -> Option<String> {
        let text = raw?.0.clone();
        if text.is_empty() {
            self.problem(field, &given(&text), "a text that is not empty, or no such field");
        }
        Some(text)
    }

    fn clients(&mut self, raw: Option<&raw::Clients>) -> ClientsConfig {
        if let Some(raw) = raw {
            self.unknown("clients", &raw.unknown, &["mode"]);
        }
        let words = [("trusted", ClientMode::Trusted)];
        ClientsConfig {
            mode: self.word("clients.mode", raw.and_then(|raw| raw.mode.as_ref()), ClientMode::Trusted, &words),
        }
    }

    fn cache(&mut self, raw: Option<&raw::Cache>) -> CacheConfig {
        let absent = raw::Cache::default();
        let raw = raw.unwrap_or(&absent);
        self.unknown("cache", &raw.unknown, &["exclude", "prewarm", "idleTimeout", "listBytesTimeout", "history"]);
        let exclude = match &raw.exclude {
            Some(exclude) => self.resources("cache.exclude", exclude),
            None => DEFAULT_EXCLUDE.iter().filter_map(|text| group_resource(text)).collect(),
        };
        let prewarm = self.resources("cache.prewarm", raw.prewarm.as_deref().unwrap_or_default());
        for (index, resource) in prewarm.iter().enumerate() {
            if exclude.contains(resource) {
                let found = format!("\"{resource}\" is in cache.exclude too");
                self.problem(&format!("cache.prewarm[{index}]"), &found, "a resource that is not excluded");
            }
        }
        let idle = raw.idle_timeout.as_ref();
        let idle_timeout = self.duration("cache.idleTimeout", idle, DEFAULT_IDLE_TIMEOUT, &IDLE_TIMEOUT);
        let list_bytes = raw.list_bytes_timeout.as_ref();
        let list_bytes_timeout =
            self.duration("cache.listBytesTimeout", list_bytes, DEFAULT_LIST_BYTES_TIMEOUT, &LIST_BYTES_TIMEOUT);
        let history = self.history(raw.history.as_ref());
        CacheConfig { exclude, prewarm, idle_timeout, list_bytes_timeout, history }
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
        let allowed = "the plural name, with the API group unless it is the core one: pods, deployments.apps";
        let mut resources = Vec::new();
        for (index, text) in raw.iter().enumerate() {
            match group_resource(&text.0) {
                Some(resource) => resources.push(resource),
                None => self.problem(&format!("{field}[{index}]"), &given(&text.0), allowed),
            }
        }
        resources
    }

    fn reads(&mut self, raw: Option<&raw::Reads>) -> ReadsConfig {
        let absent = raw::Reads::default();
        let raw = raw.unwrap_or(&absent);
        self.unknown("reads", &raw.unknown, &["freshnessWait", "mostRecentWatch"]);
        let wait = raw.freshness_wait.as_ref();
        let words = [("prove", MostRecentWatch::Prove), ("forward", MostRecentWatch::Forward)];
        ReadsConfig {
            freshness_wait: self.duration("reads.freshnessWait", wait, DEFAULT_FRESHNESS_WAIT, &FRESHNESS_WAIT),
            most_recent_watch: self.word(
                "reads.mostRecentWatch",
                raw.most_recent_watch.as_ref(),
                MostRecentWatch::Prove,
                &words,
            ),
        }
    }

    /// Any address: probes and scrapes come from other machines.
    fn admin(&mut self, raw: Option<&raw::Admin>, admin_listen: Option<&str>) -> AdminConfig {
        if let Some(raw) = raw {
            self.unknown("admin", &raw.unknown, &["address"]);
        }
        let (field, address) = match (admin_listen, raw.and_then(|raw| raw.address.as_ref())) {
            (Some(address), _) => ("--admin-listen", address),
            (None, Some(address)) => ("admin.address", address.0.as_str()),
            (None, None) => ("admin.address", DEFAULT_ADMIN),
        };
        AdminConfig { address: self.address(field, address) }
    }

    fn limits(&mut self, raw: Option<&raw::Limits>) -> LimitsConfig {
        let absent = raw::Limits::default();
        let raw = raw.unwrap_or(&absent);
        self.unknown("limits", &raw.unknown, &["connections"]);
        let allowed = format!("a number from {} to {}", CONNECTIONS.start(), CONNECTIONS.end());
        let parse = |text: &str| text.parse().ok().filter(|connections| CONNECTIONS.contains(connections));
        let connections = raw.connections.as_ref();
        LimitsConfig {
            connections: self.parsed("limits.connections", connections, DEFAULT_CONNECTIONS, &allowed, parse),
        }
    }

    fn logging(&mut self, raw: Option<&raw::Logging>) -> LoggingConfig {
        let absent = raw::Logging::default();
        let raw = raw.unwrap_or(&absent);
        self.unknown("logging", &raw.unknown, &["format", "level"]);
        let formats = [("text", LoggingFormat::Text), ("json", LoggingFormat::Json)];
        let levels = [
            ("off", LevelFilter::OFF),
            ("error", LevelFilter::ERROR),
            ("warn", LevelFilter::WARN),
            ("info", LevelFilter::INFO),
            ("debug", LevelFilter::DEBUG),
            ("trace", LevelFilter::TRACE),
        ];
        LoggingConfig {
            format: self.word("logging.format", raw.format.as_ref(), LoggingFormat::Text, &formats),
            level: self.word("logging.level", raw.level.as_ref(), LevelFilter::INFO, &levels),
        }
    }

    fn drain(&mut self, raw: Option<&raw::Drain>) -> DrainConfig {
        if let Some(raw) = raw {
            self.unknown("drain", &raw.unknown, &["timeout"]);
        }
        let timeout = raw.and_then(|raw| raw.timeout.as_ref());
        DrainConfig { timeout: self.duration("drain.timeout", timeout, DEFAULT_DRAIN_TIMEOUT, &DRAIN_TIMEOUT) }
    }

    fn address(&mut self, field: &str, text: &str) -> Address {
        text.parse().unwrap_or_else(|_| {
            self.problem(field, &given(text), Address::ALLOWED);
            stand_in_address()
        })
    }

    fn duration(
        &mut self,
        field: &str,
        raw: Option<&Scalar>,
        default: Duration,
        range: &RangeInclusive<Duration>,
    ) -> Duration {
        let [from, to] = [range.start(), range.end()].map(|bound| quantity::duration_text(*bound));
        let allowed = format!("{}, from {from} to {to}", quantity::DURATION);
        let parse = |text: &str| quantity::duration(text).filter(|duration| range.contains(duration));
        self.parsed(field, raw, default, &allowed, parse)
    }

    fn word<T: Copy>(&mut self, field: &str, raw: Option<&Scalar>, default: T, words: &[(&str, T)]) -> T {
        let allowed = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        let parse = |text: &str| words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        self.parsed(field, raw, default, &allowed, parse)
    }

    fn parsed<T>(
        &mut self,
        field: &str,
        raw: Option<&Scalar>,
        default: T,
        allowed: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> T {
        let Some(raw) = raw else { return default };
        parse(&raw.0).unwrap_or_else(|| {
            self.problem(field, &given(&raw.0), allowed);
            default
        })
    }

    fn exactly(&mut self, field: &str, raw: Option<&Scalar>, allowed: &str) {
        match raw {
            Some(raw) if raw.0 == allowed => {}
            Some(raw) => self.problem(field, &given(&raw.0), allowed),
            None => self.problem(field, "missing", allowed),
        }
    }

    fn unknown(&mut self, parent: &str, unknown: &Unknown, known: &[&str]) {
        for field in unknown.keys() {
            let field = if parent.is_empty() { field.clone() } else { format!("{parent}.{field}") };
            self.problem(&field, "no such field", &known.join(", "));
        }
    }

    fn problem(&mut self, field: &str, found: &str, allowed: &str) {
        self.problems.push(Problem { field: field.to_owned(), found: found.to_owned(), allowed: allowed.to_owned() });
    }
}

fn given(text: &str) -> String {
    format!("{text:?} was given")
}

/// Local, so that it is no second problem.
fn stand_in_address() -> Address {
    DEFAULT_LISTEN.parse().expect("the default is an address")
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
