//! Connections to the API server: dials it, adds an identity to each request, and sends it. The counterpart of
//! `listener`, and the only module that opens outbound connections for requests.
//!
//! A client's request is sent as an [`Outbound`], which can only be made by the types that add an identity:
//! [`AsClient`], [`AsFrontProxy`], [`AsImpersonator`], and [`AsGateway`] where clients are trusted. [`OwnRequests`]
//! sends the gateway's own requests with the gateway's own credentials; only `upstream` may use it, so that no other
//! module can send anything else with them. The gateway's own requests, forwarded requests and upgrades have separate
//! connections, so that none can starve another; so does each identity, so that none is used in place of another. Brief
//! forwarded requests have a connection each, which costs least (`exclusive`); long-running ones share connections
//! (`pool`). TLS, rotating credentials, exec plugins and proxies come from kube-client's configuration. Answers have no
//! time limit, since watches and logs can last arbitrarily long; dead connections are detected by pings and keep-alive.

mod acceptance;
mod access;
mod build_error;
mod client_certificate;
mod connection_closer;
mod delivery;
mod dialer;
mod error;
mod exclusive;
mod health;
mod identity;
mod own_requests;
mod peer_requests;
mod pool;
mod request_body;
mod response_body;
mod server_checks;
mod servers;
mod silence;
mod slot;
mod socket;
mod target;
#[cfg(test)]
pub(crate) mod test_authority;
#[cfg(test)]
pub(crate) mod test_server;
#[cfg(test)]
mod tests;
mod unprocessed;
mod via;

use std::{fmt, slice, sync::Arc};

use tokio::time::Instant;

pub use acceptance::{NotBelieved, Verdict};
pub use build_error::BuildError;
pub use client_certificate::CertificateError;
pub use error::{Fault, Retry, SendError};
pub use health::{Probe, Trouble, TroubleKind};
pub use identity::{AsClient, AsFrontProxy, AsGateway, AsImpersonator, IdentityError, Outbound};
pub use own_requests::OwnRequests;
pub use peer_requests::PeerRequests;
pub use request_body::RequestBody;
pub use response_body::ResponseBody;
pub use server_checks::ServerChecks;
pub use servers::{Denial, Finding, ServerState, Servers, Usage};
pub use slot::Slot;
pub use socket::{Socket, SocketOpener};
pub use via::{
    ACCEPTS_BRIDGE, BRIDGE, WRITTEN_BY, accepts_bridge, comes_from_gateway, has_passed, has_passed_too_many, tell_gone,
    written_by,
};

use access::Access;
use connection_closer::ConnectionCloser;
use identity::InsecureTransport;
use target::Target;

use base::{
    config::{FallbackConfig, ProxyHeaders, ServerAddress, TlsFiles},
    lifecycle::Tasks,
};

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The address of the API server and the gateway's own credentials, resolved once. Makes the types that send requests
/// with these credentials, each with connections of its own. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Connector {
    shared: Arc<Shared>,
}

struct Shared {
    target: Target,
    access: Access,
}

impl Connector {
    /// Builds the connector from a resolved kubeconfig or in-cluster configuration. Runs its exec plugin, if any, and
    /// reads its client certificate; connects on first use.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn new(config: &kube_client::Config) -> Result<Self, BuildError> {
        Self::to_servers(config, &[], None, None)
    }

    /// The same, to several API servers of the cluster in place of the configuration's address, if there are any, to
    /// those of `fallback` while none of these can be used, and over sockets that `sockets` opens in place of TCP. None
    /// of the servers is used before it was checked ([`Self::server_checks`]).
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn to_servers(
        config: &kube_client::Config,
        servers: &[ServerAddress],
        fallback: Option<&FallbackConfig>,
        sockets: Option<SocketOpener>,
    ) -> Result<Self, BuildError> {
        let target = Target::of(config)?;
        // A fallback makes the configuration's address one of several servers.
        let only = fallback.filter(|_| servers.is_empty()).map(|_| target.server());
        let servers = Servers::new(only.as_ref().map_or(servers, slice::from_ref), fallback);
        let sockets = sockets.unwrap_or_else(socket::tcp);
        let access = Access::new(config.clone(), sockets, servers, ConnectionCloser::default())?;
        Ok(Self { shared: Arc::new(Shared { target, access }) })
    }

    /// The address and credentials of another configuration of the same cluster. Its connections break together with
    /// those of `self`.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn beside(&self, config: &kube_client::Config) -> Result<Self, BuildError> {
        let access = Access::new(config.clone(), socket::tcp(), None, self.shared.access.cluster().clone())?;
        Ok(Self { shared: Arc::new(Shared { target: Target::of(config)?, access }) })
    }

    /// Several API servers in place of the configuration's address; `None` if there is only that.
    pub fn servers(&self) -> Option<&Servers> {
        self.shared.access.servers()
    }

    /// Requests to check each of several API servers; `None` if there is only the configuration's address.
    pub fn server_checks(&self) -> Option<ServerChecks> {
        let servers = self.servers()?.clone();
        Some(ServerChecks::new(servers, &self.shared.access, self.target()))
    }

    /// Breaks all connections, and those of connectors made by [`Self::beside`], because the cluster behind them was
    /// replaced. Forgets what was learned of clients there. Later requests are sent on new connections.
    pub fn break_all(&self) {
        self.shared.access.cluster().trip();
        if let Some(servers) = self.servers() {
            servers.break_all();
        }
    }

    /// Resolves when one of several API servers has come into use, after none of them was, after `time`.
    pub async fn recovered_since(&self, time: Instant) {
        match self.servers() {
            Some(servers) => servers.recovered_since(time).await,
            None => std::future::pending().await,
        }
    }

    /// The address of the API server, without credentials.
    pub fn address(&self) -> String {
        self.shared.target.to_string()
    }

    fn target(&self) -> Target {
        self.shared.target.clone()
    }

    /// Whether the last requests did not reach upstream or were refused because of the gateway's credentials, or the
    /// last probe failed.
    pub fn is_in_trouble(&self) -> bool {
        self.shared.target.health.is_in_trouble()
    }

    /// Whether the last request had no connection.
    pub fn is_unreachable(&self) -> bool {
        self.shared.target.health.is_unreachable()
    }

    /// Whether a request had no connection after `time`.
    pub fn was_unreachable_since(&self, time: Instant) -> bool {
        self.shared.target.health.was_unreachable_since(time)
    }

    /// Whether upstream does not accept the gateway's credentials.
    pub fn is_unauthorized(&self) -> bool {
        self.shared.target.health.is_unauthorized()
    }

    /// Records what asking for upstream's version has found out.
    pub fn note_probe(&self, probe: Probe) {
        let target = &self.shared.target;
        target.health.probed(target, probe);
    }

    /// What is wrong now, the worst first. Empty if the gateway's last requests were answered and allowed, or if there
    /// were none.
    pub fn troubles(&self) -> Vec<Trouble> {
        let target = &self.shared.target;
        target.health.troubles(&target.to_string())
    }

    /// Makes new connections show what the files of the client certificate currently hold, if the configuration names
    /// files. A task of `tasks` checks them until the drain begins. Tokens in files, and plugins' tokens, are followed
    /// anyway.
    pub fn follow_files(&self, tasks: &Tasks) {
        self.shared.access.follow_files(tasks);
    }

    /// Notices that the API server is silent, in a task of `tasks`, until the drain begins. Of several servers this is
    /// known from [`Self::server_checks`].
    pub fn notice_silence(&self, tasks: &Tasks) {
        if self.servers().is_some() {
            return;
        }
        let (access, token) = (&self.shared.access, tasks.token().clone());
        let checks = access.silence().clone().keep_checked(self.target(), pool::unpooled(access));
        tasks.spawn("upstream silence", async move {
            let _ended = token.run_until_cancelled(checks).await;
        });
    }

    /// Sends requests of the gateway itself.
    pub fn own_requests(&self) -> OwnRequests {
        OwnRequests::new(&self.shared.access, self.target())
    }

    /// Sends questions of the gateway itself to other gateways, if the address is theirs.
    pub fn peer_requests(&self) -> PeerRequests {
        PeerRequests::new(&self.shared.access, self.target())
    }

    /// Sends clients' requests with the gateway's own credentials: for clients that may do everything the gateway may.
    pub fn as_gateway(&self) -> AsGateway {
        AsGateway::new(&self.shared.access, self.target(), identity::impersonates(self.shared.access.config()))
    }

    /// Sends clients' requests with the gateway's own credentials, impersonating the user of each.
    ///
    /// # Errors
    /// The credentials already impersonate a user, or the connection has no TLS or unverified TLS.
    pub fn as_impersonator(&self) -> Result<AsImpersonator, BuildError> {
        self.refuse_exposed()?;
        if identity::impersonates(self.shared.access.config()) {
            return Err(BuildError::Impersonates);
        }
        Ok(AsImpersonator::new(&self.shared.access, self.target()))
    }

    /// Sends clients' requests with their own credentials, on connections without the gateway's.
    ///
    /// # Errors
    /// The configuration cannot be used, or tokens would cross a network without TLS or over unverified TLS.
    pub fn as_client(&self) -> Result<AsClient, BuildError> {
        self.refuse_exposed()?;
        AsClient::new(&self.shared.access, self.target())
    }

    /// Sends clients' requests with a front proxy's certificate and the user of each. `headers` are those that upstream
    /// reads, one of each kind. Reads the files, blocking; a task of `tasks` checks them until the drain begins, and
    /// new connections show what they currently hold.
    ///
    /// # Errors
    /// The configuration or the files cannot be used, or TLS to upstream is missing or not verified.
    pub fn as_front_proxy(
        &self,
        certificate: &TlsFiles,
        headers: ProxyHeaders,
        tasks: &Tasks,
    ) -> Result<AsFrontProxy, BuildError> {
        self.refuse_exposed()?;
        AsFrontProxy::new(&self.shared.access, self.target(), certificate, headers, tasks)
    }

    /// Checks that clients' credentials, and questions about clients, may be sent to this API server.
    ///
    /// # Errors
    /// They would cross a network without TLS or over unverified TLS.
    pub fn refuse_exposed(&self) -> Result<(), BuildError> {
        let (config, servers) = (self.shared.access.config(), self.servers().map_or(&[][..], Servers::addresses));
        InsecureTransport::of(config, servers).map_or(Ok(()), |insecure| Err(insecure.into()))
    }
}

impl fmt::Debug for Shared {
    /// Without the configuration, which contains credentials.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shared").field("target", &self.target).finish_non_exhaustive()
    }
}
