//! The admin port: `admin`.

use crate::config::fields::{Fields, Findings, Words, about, given};
use crate::config::listeners::ADDRESS;
use crate::config::{Address, ClientsConfig, ListenerConfig, ListenerTls};

/// Metrics and health are reachable from this machine only, unless configured otherwise.
pub const DEFAULT_ADMIN: &str = "127.0.0.1:9090";

const AUTHORIZATIONS: Words<MetricsAuthorization> =
    Words(&[("none", MetricsAuthorization::None), ("delegated", MetricsAuthorization::Delegated)]);

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

    pub(super) fn fields(&mut self, fields: &mut Fields<'_>) {
        fields.value("address", about("any address"), &mut self.address, &ADDRESS);
        fields.optional("tls", &mut self.tls, ListenerTls::fields);
        let text = "who may read metrics and status; `delegated` needs TLS, a loopback address or a Unix socket";
        fields.value("metricsAuthorization", about(text), &mut self.metrics_authorization, &AUTHORIZATIONS);
    }

    /// Takes the address of the command line, and checks what the port has to be like beside listeners and clients.
    pub(super) fn check(
        &mut self,
        admin_listen: Option<&str>,
        listeners: &[ListenerConfig],
        clients: &ClientsConfig,
        findings: &mut Findings,
    ) {
        let field = if admin_listen.is_some() { "--admin-listen" } else { "admin.address" };
        if let Some(text) = admin_listen {
            match text.parse() {
                Ok(address) => self.address = address,
                Err(_) => findings.problem(field, &given(text), Address::ALLOWED),
            }
        }
        let delegated = self.metrics_authorization == MetricsAuthorization::Delegated;
        if let Some(tls) = &mut self.tls {
            tls.client_certificates = delegated && clients.by_certificate();
        } else if delegated && !self.address.is_local() {
            let found = "missing; required because metricsAuthorization is delegated and the address is not local";
            findings.problem("admin.tls", found, "certFile and keyFile, so that tokens are not sent in clear text");
        }
        if !findings.has_problem(field) && listeners.iter().any(|listener| listener.address.overlaps(&self.address)) {
            let found = format!("\"{}\" is already the address of a listener", self.address);
            findings.problem(field, &found, "an address that no listener uses");
        }
    }
}

impl Default for AdminConfig {
    fn default() -> Self {
        let address = DEFAULT_ADMIN.parse().unwrap_or_default();
        Self { address, tls: None, metrics_authorization: MetricsAuthorization::None }
    }
}
