//! Loads a [`Config`] from a file and the command line.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::config::fields::{Document, unexpanded};
use crate::config::memory::memory_limit;
use crate::config::{API_VERSION, Config, KIND, Problem, Problems};

/// The values of the command line; they override the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    /// Replaces all listeners with one for plain HTTP.
    pub listen: Option<String>,
    pub admin_listen: Option<String>,
    /// The memory limit of the process in bytes, from which defaults are derived.
    pub memory: Option<u64>,
}

/// A configuration whose fields are valid, and what its files, the machine and API servers have shown.
#[derive(Debug)]
pub struct Checked {
    pub config: Config,
    problems: Vec<Problem>,
    notes: Vec<Problem>,
    /// The content of the file.
    text: String,
}

impl Checked {
    /// Adds problems, and what is worth knowing though it is none.
    pub fn add(&mut self, problems: Vec<Problem>, notes: Vec<Problem>) {
        self.problems.extend(problems);
        self.notes.extend(notes);
    }

    /// All problems so far; empty if there is none.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        Problems(self.problems.clone()).located(&self.text).0
    }

    /// What the author may want to know though it is no problem. Fields with a problem have no note: the problem says
    /// more.
    #[must_use]
    pub fn notes(&self) -> Vec<Problem> {
        let has_problem = |field: &str| !field.is_empty() && self.problems.iter().any(|other| other.field == field);
        let notes = self.notes.iter().filter(|note| !has_problem(&note.field));
        Problems(notes.cloned().collect()).located(&self.text).0
    }
}

/// Why there is no usable configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read {}{}", path.display(), unexpanded(path))]
    Read { path: PathBuf, source: io::Error },
    #[error("the configuration has problems")]
    Invalid(#[source] Problems),
}

impl Config {
    pub(super) fn parse_file(text: &str, overrides: &Overrides) -> Result<Self, LoadError> {
        Self::parse(text, overrides).map_err(|problems| LoadError::Invalid(problems.located(text)))
    }

    /// Checks a file's configuration, the files that it names, and what it needs of this machine. Changes nothing, and
    /// reads the file once.
    ///
    /// # Errors
    /// The file cannot be read, or its fields have problems: all of them.
    pub async fn check(file: &Path) -> Result<Checked, LoadError> {
        let text = read(file)?;
        let memory = memory_limit();
        let config = Self::parse_file(&text, &Overrides { memory, ..Overrides::default() })?;
        let (problems, mut notes) = config.check_machine().await;
        notes.extend(config.memory_notes(memory));
        Ok(Checked { config, problems, notes, text })
    }

    /// The problems, and what is worth knowing, in the form of problems.
    async fn check_machine(&self) -> (Vec<Problem>, Vec<Problem>) {
        let mut problems = self.check_surroundings();
        problems.extend(self.is_own_upstream().await);
        problems.extend(self.check_files().await.err().into_iter().flat_map(|Problems(problems)| problems));
        let mut notes = self.doubtful_resources();
        notes.extend(self.ineffective_limits());
        match self.default_upstream().await {
            Ok(note) => notes.extend(note.map(|note| Problem::new("", &note, ""))),
            Err(Problems(more)) => problems.extend(more),
        }
        (problems, notes)
    }

    /// The configuration without a file.
    ///
    /// # Errors
    /// Every problem of the command line.
    pub fn defaults(overrides: &Overrides) -> Result<Self, Problems> {
        Self::read(&Document::of([("apiVersion", API_VERSION), ("kind", KIND)]), overrides)
    }

    /// Parses the configuration in `text`.
    ///
    /// # Errors
    /// Every problem in it. If the text is not valid YAML, only the first such place.
    pub fn parse(text: &str, overrides: &Overrides) -> Result<Self, Problems> {
        Self::read(&Document::parse(text)?, overrides)
    }
}

pub(super) fn read(path: &Path) -> Result<String, LoadError> {
    std::fs::read_to_string(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        Address, AuditConfig, AuditMode, ClientsConfig, DEFAULT_LISTEN, ListenerTls, LoggingFormat,
        MetricsAuthorization, MostRecentReads, MostRecentWatch, TlsFiles, TlsPolicy, TlsVersion, TracingConfig,
        TrustedConfig,
    };
    use crate::telemetry::AccessLines;
    use std::time::Duration;

    fn problems(text: &str) -> Vec<String> {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{text}");
        let problems = Config::parse(&text, &Overrides::default()).unwrap_err();
        problems.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn defaults_serve_local_clients_like_kubectl_proxy() {
        let config = Config::defaults(&Overrides::default()).unwrap();
        assert_eq!(config.listeners.len(), 1);
        assert_eq!(config.listeners[0].address.to_string(), DEFAULT_LISTEN);
        assert_eq!(config.listeners[0].tls, None);
        assert_eq!(config.clients, ClientsConfig::default());
        assert_eq!(config.cache.history.bytes, 256 << 20);
        assert_eq!(config.reads.most_recent_watch, MostRecentWatch::Prove);
        assert_eq!(config.reads.most_recent, MostRecentReads::Forward);
    }

    #[test]
    fn every_example_loads() {
        for name in ["minimal", "sidecar", "replicas", "delegated"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../config/{name}.yaml"));
            if let Err(error) = Config::parse_file(&read(&path).unwrap(), &Overrides::default()) {
                panic!("{name}: {error:?}");
            }
        }
    }

    #[test]
    fn every_field_arrives() {
        let text = "
apiVersion: kube-fanout.io/v1alpha1
kind: GatewayConfiguration
listeners:
- address: '127.0.0.1:7443'
  tls: {certFile: /c, keyFile: /k, minVersion: VersionTLS13, cipherSuites: [TLS_AES_256_GCM_SHA384]}
- address: 'unix:/run/s'
upstream: {kubeconfig: /kc, context: here}
clients: {mode: trusted, acceptHosts: [Gateway.example, '[::2]', 10.0.0.1], acceptOrigins: ['http://localhost:4466']}
cache: {exclude: [deployments.apps], prewarm: [pods], idleTimeout: 1h, listBytesTimeout: 5m,
  history: {age: 90s, bytes: 1Gi}, verifyInterval: 0}
reads: {freshnessWait: 0, fillWait: 45s, mostRecentWatch: forward, mostRecent: auto}
admin: {address: '0.0.0.0:9000', tls: {certFile: /ac, keyFile: /ak}, metricsAuthorization: delegated}
limits: {connections: 7, connectionsPerAddress: 3}
audit: {path: /a, mode: bestEffort}
logging: {format: json, level: warn, access: all}
tracing: {endpoint: 'otel.example:4317', samplingRatePerMillion: 100}
drain: {timeout: 3s}
";
        let config = Config::parse(text, &Overrides::default()).unwrap();
        let files = TlsFiles { cert_file: "/c".into(), key_file: "/k".into() };
        let cipher_suites = Some(vec![rustls::CipherSuite::TLS13_AES_256_GCM_SHA384]);
        let policy = TlsPolicy { min_version: TlsVersion::Tls13, cipher_suites };
        assert_eq!(config.listeners[0].tls, Some(ListenerTls { files, policy, client_certificates: false }));
        let accept_hosts = ["gateway.example", "::2", "10.0.0.1"].map(str::to_owned).to_vec();
        let accept_origins = vec!["http://localhost:4466".parse().unwrap()];
        assert_eq!(config.clients, ClientsConfig::Trusted(TrustedConfig { accept_hosts, accept_origins }));
        assert_eq!(config.listeners[1].address, Address::Unix("/run/s".into()));
        assert_eq!(config.upstream.kubeconfig, Some("/kc".into()));
        assert_eq!(config.upstream.context.as_deref(), Some("here"));
        assert_eq!(config.cache.exclude[0].to_string(), "deployments.apps");
        assert_eq!(config.cache.exclude[0].group.as_ref(), "apps");
        assert_eq!(config.cache.prewarm[0].to_string(), "pods");
        assert_eq!(config.cache.idle_timeout, Duration::from_secs(3600));
        assert_eq!(config.cache.list_bytes_timeout, Duration::from_secs(300));
        assert_eq!((config.cache.history.age, config.cache.history.bytes), (Duration::from_secs(90), 1 << 30));
        assert_eq!(config.cache.verify_interval, None);
        assert_eq!(config.reads.freshness_wait, Duration::ZERO);
        assert_eq!(config.reads.fill_wait, Duration::from_secs(45));
        assert_eq!(config.reads.most_recent_watch, MostRecentWatch::Forward);
        assert_eq!(config.reads.most_recent, MostRecentReads::Auto);
        assert_eq!(config.admin.address.to_string(), "0.0.0.0:9000");
        assert_eq!(config.admin.listener().tls.unwrap().files.cert_file, Path::new("/ac"));
        assert_eq!(config.admin.metrics_authorization, MetricsAuthorization::Delegated);
        assert_eq!((config.limits.connections, config.limits.connections_per_address), (7, 3));
        assert_eq!(config.audit, AuditConfig { path: Some("/a".into()), mode: AuditMode::BestEffort });
        assert_eq!(config.logging.format, LoggingFormat::Json);
        assert_eq!(config.logging.access, AccessLines::All);
        let tracing = TracingConfig { endpoint: "otel.example:4317".to_owned(), sampling_rate_per_million: 100 };
        assert_eq!(config.tracing, Some(tracing));
        assert_eq!(config.drain.timeout, Duration::from_secs(3));
    }

    #[test]
    fn invalid_yaml_is_reported_with_its_position() {
        for (text, expected) in [
            (
                "reads:\n  fillWait: 1s\n freshnessWait: 2s",
                "line 3, column 2: this line's indentation is that of no field",
            ),
            ("reads:\n\tfillWait: 1s", "line 2, column 2: tabs disallowed"),
            ("reads: {fillWait: 1s\n", "line 1, column 8: unclosed bracket '{'"),
            ("reads: 'fillWait", "unclosed quote"),
        ] {
            let found = Config::parse(text, &Overrides::default()).unwrap_err().to_string();
            assert!(found.contains(expected) && found.lines().count() == 1, "{text:?}: {found}");
        }
    }

    #[test]
    fn the_command_line_wins() {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\nlisteners: [{{address: '127.0.0.1:1'}}]");
        let overrides = Overrides {
            kubeconfig: Some("/other".into()),
            context: Some("there".to_owned()),
            listen: Some("127.0.0.1:2".to_owned()),
            admin_listen: Some("127.0.0.1:3".to_owned()),
            memory: None,
        };
        let config = Config::parse(&text, &overrides).unwrap();
        assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:2");
        assert_eq!(config.admin.address.to_string(), "127.0.0.1:3");
        assert_eq!(config.upstream.kubeconfig, Some("/other".into()));
        assert_eq!(config.upstream.context.as_deref(), Some("there"));
        let overrides = Overrides { listen: Some("0.0.0.0:80".to_owned()), ..Overrides::default() };
        let problems = Config::defaults(&overrides).unwrap_err();
        assert!(problems.0.iter().all(|problem| problem.field.starts_with("--listen")), "{problems}");
    }

    #[test]
    fn all_problems_are_named_at_once() {
        let found = problems(
            "listeners: [{address: nowhere, tsl: {}}, {address: '0.0.0.0:1', tls: {certFile: /c}}]
clients: {mode: open, acceptHosts: ['http://x'], acceptOrigins: ['*', 'http://x/y'], identity: {}}
cache: {exclude: [Pods, 'a/b'], idleTimeout: 10, history: {age: 5m, bytes: lots}, verifyInterval: 5s}
reads: {freshnessWait: 100, mostRecentWatch: true, mostRecent: always}
audit: {mode: none}
logging: {level: loud, access: most}
limits: {connections: 0, connectionsPerAddress: -1}
tracing: {endpoint: 'http://collector:4317', samplingRatePerMillion: 1000001}
colour: red",
        );
        let expected = [
            "colour: no such field; allowed: ",
            "listeners[0].tsl: no such field; allowed: address, tls",
            "listeners[0].address: \"nowhere\" was given; allowed: IP:PORT",
            "listeners[1].tls.keyFile: missing",
            "clients.mode: \"open\" was given; allowed: trusted, delegated",
            "clients.acceptHosts[0]: \"http://x\" was given; allowed: the exact name",
            "clients.acceptOrigins[0]: \"*\" was given; allowed: SCHEME://HOST",
            "clients.acceptOrigins[1]: \"http://x/y\" was given; allowed: SCHEME://HOST",
            "cache.exclude[0]: \"Pods\" was given; write pods; allowed: ",
            "cache.exclude[1]: \"a/b\" was given; allowed: ",
            "cache.idleTimeout: \"10\" was given; allowed: a duration like",
            "cache.history.bytes: \"lots\" was given; allowed: a size",
            "cache.verifyInterval: \"5s\" was given; allowed: 0 for never, or a duration",
            "reads.freshnessWait: \"100\" was given; allowed: a duration",
            "reads.mostRecentWatch: \"true\" was given; allowed: prove, forward",
            "reads.mostRecent: \"always\" was given; allowed: forward, auto, prove",
            "limits.connections: \"0\" was given; allowed: ",
            "limits.connectionsPerAddress: \"-1\" was given; allowed: a number from 1 to 10000",
            "audit.mode: needs audit.path; allowed: ",
            "audit.mode: \"none\" was given; allowed: blocking, bestEffort",
            "tracing.endpoint: \"http://collector:4317\" was given; allowed: HOST:PORT",
            "tracing.samplingRatePerMillion: \"1000001\" was given; allowed: a number from 0 to 1000000",
            "logging.level: \"loud\" was given; allowed: ",
            "logging.access: \"most\" was given; allowed: all, notable, none",
        ];
        for start in expected {
            assert!(found.iter().any(|line| line.starts_with(start)), "{start}\nin {found:#?}");
        }
        assert_eq!(found.len(), expected.len(), "{found:#?}");
    }

    #[test]
    fn the_admin_port_has_an_address_of_its_own() {
        for (listener, admin, is_free) in [
            ("127.0.0.1:8001", "127.0.0.1:8001", false),
            ("127.0.0.1:8001", "0.0.0.0:8001", false),
            ("127.0.0.1:8001", "127.0.0.2:8001", true),
            ("127.0.0.1:0", "127.0.0.1:0", true),
            ("unix:/a", "unix:/a", false),
        ] {
            let text = format!("listeners: [{{address: '{listener}'}}]\nadmin: {{address: '{admin}'}}");
            let found = if is_free { Vec::new() } else { problems(&text) };
            let expected = format!(
                "admin.address: \"{admin}\" is already the address of a listener; allowed: an address that no listener \
                 uses"
            );
            assert_eq!(found, if is_free { Vec::new() } else { vec![expected] }, "{listener} {admin}");
            let parsed =
                Config::parse(&format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{text}"), &Overrides::default());
            assert_eq!(parsed.is_ok(), is_free, "{listener} {admin}");
        }
    }

    #[test]
    fn trusted_clients_and_plain_http_are_local() {
        let found = problems("listeners: [{address: '0.0.0.0:80'}]");
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(found[0].starts_with("listeners[0].address: \"0.0.0.0:80\""), "{found:#?}");
        assert!(found[0].contains("clients.mode"), "{found:#?}");
        assert!(found[1].starts_with("listeners[0].tls: missing"), "{found:#?}");
    }

    #[test]
    fn tokens_for_metrics_are_not_sent_in_clear_text() {
        let found = problems("admin: {address: '0.0.0.0:9090', metricsAuthorization: delegated}");
        assert!(found.len() == 1 && found[0].starts_with("admin.tls: missing"), "{found:#?}");
        let found = problems("admin: {metricsAuthorization: yes, tls: {}}");
        assert!(found[0].starts_with("admin.tls.certFile: missing"), "{found:#?}");
        assert!(found[2].starts_with("admin.metricsAuthorization: "), "{found:#?}");
    }

    #[test]
    fn versions_and_suites_of_tls_are_those_of_kubernetes() {
        let of = |tls: &str| {
            problems(&format!("listeners: [{{address: '127.0.0.1:1', tls: {{certFile: /c, keyFile: /k, {tls}}}}}]"))
        };
        assert_eq!(
            of("minVersion: VersionTLS11"),
            ["listeners[0].tls.minVersion: \"VersionTLS11\" was given; allowed: VersionTLS12, VersionTLS13"]
        );
        let found = of("cipherSuites: [TLS_RSA_WITH_AES_128_CBC_SHA]");
        assert!(
            found[0].contains("allowed: TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256, TLS_CHACHA20"),
            "{found:?}"
        );
        let found = of("cipherSuites: []");
        assert!(found[0].starts_with("listeners[0].tls.cipherSuites: the list is empty"), "{found:?}");
        let found = of("minVersion: VersionTLS13, cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]");
        assert!(found[0].starts_with("listeners[0].tls.cipherSuites[0]: "), "{found:?}");
        let found = of("tlsMinVersion: VersionTLS13");
        assert!(found[0].ends_with("allowed: certFile, keyFile, minVersion, cipherSuites"), "{found:?}");
    }

    #[test]
    fn the_type_is_checked() {
        let problems = Config::parse("apiVersion: v1", &Overrides::default()).unwrap_err().to_string();
        assert!(problems.contains("apiVersion: \"v1\" was given; allowed: kube-fanout.io/v1alpha1"), "{problems}");
        assert!(problems.contains("kind: missing; allowed: GatewayConfiguration"), "{problems}");
    }

    #[test]
    fn a_wrong_shape_is_one_problem_with_its_path() {
        for (text, field) in [
            (
                "listeners: {address: x}",
                "listeners: this is not a list; allowed: a list, each item: the fields address, tls, maxConnectionAge",
            ),
            ("listeners: [x]", "listeners[0]: this has no fields; allowed: the fields address, tls, maxConnectionAge"),
            ("cache: {history: 5m}", "cache.history: this has no fields; allowed: the fields age, bytes"),
            ("cache: {idleTimeout: {}}", "cache.idleTimeout: a mapping was given; allowed: a duration like 100ms"),
            ("cache: {exclude: pods}", "cache.exclude: this is not a list; allowed: a list, each item: a plural name"),
            ("cache: {exclude: [pods, [a]]}", "cache.exclude[1]: a list was given; allowed: a plural name"),
            ("cache: {prewarm: [~]}", "cache.prewarm[0]: nothing was given; allowed: a plural name"),
            ("cache: {prewarm: [{resource: pods, namespaces: a}]}", "cache.prewarm[0].namespaces: this is not a list"),
            (
                "clients: {acceptHosts: [{a: b}]}",
                "clients.acceptHosts[0]: a mapping was given; allowed: the exact name or IP address",
            ),
            ("reads: {mostRecent: [auto]}", "reads.mostRecent: a list was given; allowed: forward, auto, prove"),
            ("audit: {path: [a]}", "audit.path: a list was given; allowed: the path of a file"),
            ("cache: {bridge: []}", "cache.bridge: a list was given; allowed: true, false"),
            ("limits: {connections: []}", "limits.connections: a list was given; allowed: a number"),
            (
                "clients: {mode: delegated, authentication: {clientCAFile: /c}, identity: {impersonation: 3}}",
                "clients.identity.impersonation: this has no fields; allowed: {}",
            ),
            ("drain: {timeout: 1s, timeout: 2s}", "line 3, column 22: drain.timeout: given twice"),
        ] {
            let found = problems(text);
            assert_eq!(found.len(), 1, "{found:#?}");
            assert!(found[0].starts_with(field), "{field}: {found:#?}");
        }
    }

    #[tokio::test]
    async fn problems_of_a_file_say_where_they_are() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, expected) in [
            ("listeners:\n- address: 127.0.0.1:1\n- {address: x}\n", "line 5, column 4: listeners[1].address: "),
            ("audit:\n  mode: blocking\n", "line 4, column 3: audit.mode: needs audit.path"),
            ("listeners:\n- x\n", "line 4, column 3: listeners[0]: "),
            ("upstream:\n  kubeconfig: /not/there\n", "line 4, column 3: upstream.kubeconfig: "),
        ] {
            std::fs::write(file.path(), format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{text}")).unwrap();
            let problems = match Config::check(file.path()).await {
                Ok(checked) => checked.problems(),
                Err(LoadError::Invalid(Problems(problems))) => problems,
                Err(error) => panic!("{text}: {error}"),
            };
            let [problem] = &problems[..] else { panic!("{text}: {problems:?}") };
            assert!(problem.to_string().starts_with(expected), "{problem}");
        }
    }

    #[test]
    fn no_text_panics() {
        for text in ["", "[", "x", "- a", "a: b: c", "{}", "\0", "&a [*a]"] {
            assert!(Config::parse(text, &Overrides::default()).is_err(), "{text}");
        }
    }
}
