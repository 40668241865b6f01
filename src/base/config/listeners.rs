//! Where clients connect: `listeners`, and TLS of any socket that the gateway listens on.

use std::{collections::HashSet, ops::RangeInclusive, time::Duration};

use rustls::CipherSuite;
use serde_json::{Value, json};

use crate::config::fields::{Fields, Findings, Form, Maybe, PEM, Parsed, Refused, Time, Words, about, given};
use crate::config::{Address, ClientsConfig, TlsFiles, TlsPolicy, TlsVersion, tls_policy};

/// The address of a gateway without listeners: that of `kubectl proxy`, so that the gateway can replace it.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8001";
/// Below a minute, clients would reconnect too often; above a day, the limit would have little effect.
const MAX_CONNECTION_AGE: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(24 * 3600);

/// The form of an address to listen on.
pub(super) const ADDRESS: Parsed<Address> =
    Parsed { allowed: Address::ALLOWED, parse: |text| text.parse().map_err(|_| Refused::default()), pattern: "" };

const VERSIONS: Words<TlsVersion> = Words(&TlsVersion::WORDS);

/// One socket for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    pub address: Address,
    /// `None`: plain HTTP. Then the address is a loopback address or a Unix socket.
    pub tls: Option<ListenerTls>,
    /// After about this time a connection accepts no further requests. `None`: no limit.
    pub max_connection_age: Option<Duration>,
}

/// TLS of one socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerTls {
    pub files: TlsFiles,
    pub policy: TlsPolicy,
    /// Whether clients are asked for a certificate; it is optional.
    pub client_certificates: bool,
}

impl ListenerConfig {
    /// Plain HTTP.
    pub const fn plain(address: Address) -> Self {
        Self { address, tls: None, max_connection_age: None }
    }

    pub(super) fn fields(&mut self, fields: &mut Fields<'_>) {
        let text = "`IP:PORT` with a loopback address, `localhost:PORT` or `unix:/PATH`; in `delegated` mode any \
                    address, with TLS";
        fields.required("address", about(text), &mut self.address, &ADDRESS);
        fields.optional("tls", &mut self.tls, ListenerTls::fields);
        let text = "after about this time (a tenth more or less) a connection accepts no further requests, so that \
                    clients reconnect and reach replicas that were added later (like `--goaway-chance` of an API \
                    server). HTTP/2 clients get GOAWAY, HTTP/1.1 clients `Connection: close`; open watches continue \
                    until they end";
        let age = Maybe(Time(MAX_CONNECTION_AGE));
        fields.value("maxConnectionAge", about(text), &mut self.max_connection_age, &age);
    }
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self::plain(Address::default())
    }
}

impl ListenerTls {
    pub(super) fn fields(&mut self, fields: &mut Fields<'_>) {
        let about_files = about("").default("none: plain HTTP");
        fields.required("certFile", about_files, &mut self.files.cert_file, &PEM);
        fields.required("keyFile", about_files, &mut self.files.key_file, &PEM);
        let text = "like `--tls-min-version` of Kubernetes' components";
        fields.value("minVersion", about(text), &mut self.policy.min_version, &VERSIONS);
        let suites = Suite { min_version: self.policy.min_version };
        let text = "like `--tls-cipher-suites`: `TLS_AES_128_GCM_SHA256`, `TLS_AES_256_GCM_SHA384`, \
                    `TLS_CHACHA20_POLY1305_SHA256`, and `TLS_ECDHE_RSA_WITH_` or `TLS_ECDHE_ECDSA_WITH_` with one of \
                    these three; if the list has no suite of TLS 1.3, all three of them stay enabled";
        let mut listed = self.policy.cipher_suites.take().unwrap_or_default();
        fields.list("cipherSuites", about(text).default("all allowed ones"), &mut listed, &suites);
        fields.length("cipherSuites", 1, None);
        self.policy.cipher_suites = (!listed.is_empty()).then_some(listed);
    }
}

/// A cipher suite of versions that are not older than this one.
struct Suite {
    min_version: TlsVersion,
}

impl Form<CipherSuite> for Suite {
    fn allowed(&self) -> String {
        tls_policy::names().join(", ")
    }

    fn parse(&self, text: &str) -> Result<CipherSuite, Refused> {
        match (tls_policy::suite(text), self.min_version) {
            (None, _) => Err(Refused::default()),
            (Some((_, false)), TlsVersion::Tls13) => Err(Refused {
                why: ": a suite of TLS 1.2, but minVersion is VersionTLS13".to_owned(),
                allowed: Some("suites of TLS 1.3, or minVersion: VersionTLS12"),
            }),
            (Some((suite, _)), _) => Ok(suite),
        }
    }

    fn text(&self, value: &CipherSuite) -> Option<String> {
        tls_policy::name(*value)
    }

    fn schema(&self) -> Value {
        json!({"type": "string", "pattern": "^TLS_[A-Z0-9_]+$"})
    }
}

/// Where the gateway listens: as the file says, or at the one address of the command line; and the rules that listeners
/// have to keep.
pub(super) fn check(
    listeners: &mut Vec<ListenerConfig>,
    listen: Option<&str>,
    clients: &ClientsConfig,
    findings: &mut Findings,
) {
    if let Some(listen) = listen {
        *listeners = Vec::new();
        match listen.parse() {
            Ok(address) => listeners.push(ListenerConfig::plain(address)),
            Err(_) => findings.problem("--listen", &given(listen), Address::ALLOWED),
        }
    }
    let is_trusted = matches!(clients, ClientsConfig::Trusted(_));
    let mut seen = HashSet::new();
    for (index, listener) in listeners.iter_mut().enumerate() {
        let (field, tls) = match listen {
            Some(_) => ("--listen".to_owned(), "--listen".to_owned()),
            None => (format!("listeners[{index}].address"), format!("listeners[{index}].tls")),
        };
        let (address, is_local) = (listener.address.to_string(), listener.address.is_local());
        let why = if is_trusted { "clients.mode is trusted" } else { "--listen is plain HTTP" };
        if !is_local && (is_trusted || listen.is_some()) && !findings.has_problem("clients.mode") {
            let allowed = format!("a loopback address or unix:/PATH, because {why}");
            findings.problem(&field, &given(&address), &allowed);
        }
        if !is_local && listener.tls.is_none() && listen.is_none() {
            let allowed = "certFile and keyFile; plain HTTP is allowed only on loopback addresses and Unix sockets";
            findings.problem(&tls, "missing", allowed);
        }
        // Port 0 lets the system choose a free port.
        let any_port = matches!(listener.address, Address::Tcp(address) if address.port() == 0);
        if !any_port && !seen.insert(address.clone()) {
            let found = format!("\"{address}\" is already the address of another listener");
            findings.problem(&field, &found, "a different address for each listener");
        }
        if let Some(tls) = &mut listener.tls {
            tls.client_certificates = clients.by_certificate();
        }
    }
}
