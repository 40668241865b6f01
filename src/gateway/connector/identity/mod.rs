//! The identity with which a client's request goes upstream.
//!
//! Invariants: an [`Outbound`] is only made by adding an identity to a request, after removing the client's own
//! credentials; each identity has its own connections, and one without credentials has connections without any. So code
//! that holds only an [`AsClient`] and an [`AsFrontProxy`] or [`AsImpersonator`] cannot send a client's request as the
//! gateway.

mod as_client;
mod as_front_proxy;
mod as_gateway;
mod as_impersonator;
mod known_tokens;
mod probe;
mod strip;
#[cfg(test)]
mod tests;
mod user_headers;

use std::{fmt, sync::Arc};

use http::{Request, Response};
use kube_client::Config;

use super::{
    BuildError, RequestBody, ResponseBody, SendError,
    access::Access,
    delivery::{deliver, deliver_unnoted},
    dialer::Protocols,
    pool::{IDLE_CONNECTIONS_MAX, Pool, PoolSettings, Windows},
    servers::Choice,
    target::Target,
};

pub use as_client::AsClient;
pub use as_front_proxy::AsFrontProxy;
pub use as_gateway::AsGateway;
pub use as_impersonator::AsImpersonator;

use base::config::{Redacted, ServerAddress, is_clear_text};
use base::fairness::{ClientKey, ConcurrencyLimit, Turn};
use strip::strip_credentials;

/// Why a request cannot be sent under its user's identity. It is never sent under a less exact one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Upstream would merge the two impersonations.
    #[error(
        "impersonations cannot be nested, and the gateway itself impersonates a user already: with \
         identity.impersonation each client without a token (present a token, or configure identity.frontProxy), \
         otherwise the user that its kubeconfig names"
    )]
    Impersonation,
    /// Upstream would treat the gateway as the user.
    #[error("the user has no name")]
    Nameless,
    /// Upstream would read another value: none, or one without the spaces around it.
    #[error("{0} contains characters that an HTTP header cannot carry")]
    Unsendable(UserPart),
    #[error("the user has more extra keys than a request can carry")]
    TooMuch,
    /// Upstream puts a user that is impersonated by that name into `system:unauthenticated`.
    #[error("system:anonymous cannot be impersonated: the API server would change its groups")]
    Anonymous,
    /// The result of a probe: see [`NotBelieved`](super::NotBelieved).
    #[error("the API server does not accept the gateway's front-proxy certificate")]
    NotBelieved,
    /// No probe has had a result yet.
    #[error("the API server has not shown yet whether it accepts the gateway's front-proxy certificate")]
    Undecided,
}

/// The parts of a user that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserPart {
    Name,
    Uid,
    Group,
    ExtraKey,
    ExtraValue,
}

/// A client's request with an identity on it, and the connections of that identity.
pub struct Outbound {
    connections: Arc<Connections>,
    request: Request<RequestBody>,
    /// The token whose acceptance the answer shows; `None` if the request has none.
    token: Option<known_tokens::PresentedToken>,
    /// The turns that the request has to wait for; `None` if it has not.
    turns: Option<Arc<ConcurrencyLimit>>,
    long_running: bool,
    /// `None` if clients are not distinguished.
    client: Option<ClientKey>,
}

/// The connections of one identity.
#[derive(Debug)]
struct Connections {
    target: Target,
    exclusive: Pool,
    /// For long-running requests, and for those that get no place in `exclusive`. `None`: no request shares a
    /// connection.
    shared: Option<Pool>,
    upgrades: Pool,
    /// Whether they lead only to those of several servers that accept the identity. If these cannot be reached, others
    /// may.
    is_partial: bool,
}

/// Names of an identity's limits in the metrics.
struct Limits {
    requests: &'static str,
    upgrades: &'static str,
}

/// Limits of requests that upstream may treat as anonymous, for every identity.
const UNKNOWN_LIMITS: Limits = Limits { requests: "upstream_unknown_requests", upgrades: "upstream_unknown_upgrades" };
/// Pool of shared connections: 4,000 requests at once.
const SHARED_LANES: usize = 40;
/// Name of the limit on exclusive connections, for identities whose further requests share connections.
const EXCLUSIVE_LIMIT: &str = "upstream_exclusive_requests";
/// Pool of upgrades, which need a connection each: 1,000 at once.
const UPGRADE_LANES: usize = 10;

impl Outbound {
    /// Sets whether the request is long-running: the client decides when it ends. Such requests share connections, so
    /// that thousands of them need few.
    pub fn long_running(self, long_running: bool) -> Self {
        Self { long_running, ..self }
    }

    /// The same request, counted for `client`'s share of the connections; `None` if clients are not distinguished.
    pub fn counted(self, client: Option<ClientKey>) -> Self {
        Self { client, ..self }
    }

    /// Whether upstream has recently accepted the request's token.
    pub fn is_accepted(&self) -> bool {
        self.token.as_ref().is_some_and(known_tokens::PresentedToken::is_known)
    }

    /// Sends the request; its answer is read at the client's pace. Only path and query of the URI are used.
    ///
    /// GET and HEAD without a body are sent a second time if a connection that had worked turns out to be dead.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn send(self) -> Result<Response<ResponseBody>, SendError> {
        let Connections { exclusive, shared, .. } = &*self.connections;
        let pools: &[&Pool] = match shared {
            None => &[exclusive],
            Some(shared) if self.long_running => &[shared],
            Some(shared) => &[exclusive, shared],
        };
        let answer = self.connections.deliver(pools, self.client, self.request).await?;
        if let Some(token) = self.token {
            token.learn(answer.status());
        }
        Ok(answer)
    }

    /// As [`Outbound::send`], for a request for an upgrade: always over HTTP/1.1, and not sent a second time.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn send_http1(self) -> Result<Response<ResponseBody>, SendError> {
        self.connections.deliver(&[&self.connections.upgrades], self.client, self.request).await
    }

    /// Waits for the turn of the request, to be held until its answer begins; `None` if it needs none, or none came in
    /// time.
    pub async fn turn(&self) -> Option<Turn> {
        let (turns, client) = self.turns.as_ref().zip(self.client)?;
        turns.wait(client).await
    }
}

impl Connections {
    fn new(access: &Access, target: Target, limits: Limits) -> Arc<Self> {
        let shared = PoolSettings {
            protocols: Protocols::Any,
            choice: Choice::Any,
            windows: Windows::PATIENT,
            idle: IDLE_CONNECTIONS_MAX,
            count: SHARED_LANES,
            limit: limits.requests,
            client_limit: Some("client_shared_requests"),
        };
        let exclusive = Pool::exclusive(access, &target, EXCLUSIVE_LIMIT, "client_exclusive_requests");
        Arc::new(Self {
            target,
            exclusive,
            shared: Some(Pool::new(access, shared)),
            upgrades: Pool::new(access, upgrades(limits.upgrades, "client_upgrades")),
            is_partial: access.is_partial(),
        })
    }

    /// For connections that never carry more than one request at a time.
    fn one_at_a_time(access: &Access, target: Target, limits: Limits) -> Arc<Self> {
        let exclusive = Pool::exclusive(access, &target, limits.requests, "client_unknown_requests");
        let upgrades = Pool::new(access, upgrades(limits.upgrades, "client_unknown_upgrades"));
        Arc::new(Self { target, exclusive, shared: None, upgrades, is_partial: access.is_partial() })
    }

    /// Whether few more long-running requests of that client would get a place.
    fn are_scarce_for(&self, client: Option<ClientKey>) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.is_scarce_for(client))
    }

    async fn deliver(
        &self,
        pools: &[&Pool],
        client: Option<ClientKey>,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        if self.is_partial {
            deliver_unnoted(&self.target, pools, client, request).await
        } else {
            deliver(&self.target, pools, client, request).await
        }
    }

    fn outbound(self: &Arc<Self>, request: Request<RequestBody>) -> Outbound {
        Outbound { connections: self.clone(), request, token: None, turns: None, long_running: false, client: None }
    }
}

fn upgrades(limit: &'static str, client_limit: &'static str) -> PoolSettings {
    PoolSettings {
        protocols: Protocols::Http1,
        choice: Choice::Any,
        windows: Windows::PATIENT,
        idle: IDLE_CONNECTIONS_MAX,
        count: UPGRADE_LANES,
        limit,
        client_limit: Some(client_limit),
    }
}

impl UserPart {
    fn as_str(self) -> &'static str {
        match self {
            Self::Name => "the user's name",
            Self::Uid => "the user's uid",
            Self::Group => "a group of the user",
            Self::ExtraKey => "a key of the user's extra values",
            Self::ExtraValue => "an extra value of the user",
        }
    }
}

impl fmt::Display for UserPart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl fmt::Debug for Outbound {
    /// Without headers: they may contain credentials.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (method, path) = (self.request.method(), self.request.uri().path());
        formatter.debug_struct("Outbound").field("method", method).field("path", &path).finish_non_exhaustive()
    }
}

/// Whether a configuration impersonates a user other than that of its credentials.
pub(super) fn impersonates(config: &Config) -> bool {
    let identity = &config.auth_info;
    identity.impersonate.is_some()
        || identity.impersonate_uid.is_some()
        || identity.impersonate_groups.is_some()
        || identity.impersonate_user_extra.is_some()
        || config.headers.iter().any(|(name, _)| strip::is_impersonation(name))
}

/// Why clients' credentials, and reviews of clients, must not be sent to upstream.
#[derive(Clone, Debug)]
pub(super) enum InsecureTransport {
    ClearText(http::Uri),
    Unverified(http::Uri),
}

impl InsecureTransport {
    /// Anyone who can read the traffic could impersonate the client; plain HTTP is allowed only to loopback, for a
    /// proxy or a sidecar of this machine. Unverified TLS is refused even on loopback, where it is only used
    /// for tunnels to other machines.
    pub(super) fn of(config: &Config, servers: &[ServerAddress]) -> Option<Self> {
        let is_tls = config.cluster_url.scheme() == Some(&http::uri::Scheme::HTTPS);
        let remote = servers.iter().find(|server| !server.is_loopback());
        match (is_tls, remote) {
            (true, _) if config.accept_invalid_certs => Some(Self::Unverified(config.cluster_url.clone())),
            (false, Some(server)) => Some(Self::ClearText(server.authority().clone().into())),
            (false, None) if servers.is_empty() && is_clear_text(config) => {
                Some(Self::ClearText(config.cluster_url.clone()))
            }
            _ => None,
        }
    }
}

impl From<InsecureTransport> for BuildError {
    fn from(insecure: InsecureTransport) -> Self {
        match insecure {
            InsecureTransport::ClearText(address) => Self::ClearText(Redacted::url(&address)),
            InsecureTransport::Unverified(address) => Self::Unverified(Redacted::url(&address)),
        }
    }
}
