//! How clients are authenticated and authorized, and under which identity they are forwarded: the two modes.

use std::time::Duration;

use crate::apimachinery::Origin;
use crate::config::{PemFile, ProxyHeaders, TlsFiles, UpstreamConfig};

/// As long as kube-apiserver caches a verified token.
pub const DEFAULT_TOKEN_SUCCESS_TTL: Duration = Duration::from_secs(10);
/// As in kube-apiserver: a rejected token may become valid when its signer is known.
pub const DEFAULT_TOKEN_FAILURE_TTL: Duration = Duration::ZERO;
/// As in aggregated API servers (delegated authorization): a revoked role loses its effect soon.
pub const DEFAULT_ALLOWED_TTL: Duration = Duration::from_secs(10);
/// As in aggregated API servers (delegated authorization): a granted role takes effect soon.
pub const DEFAULT_DENIED_TTL: Duration = Duration::from_secs(10);
/// Each watch is reviewed a few times an hour: one review a second for every 300 watches.
pub const DEFAULT_WATCH_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// How clients are authenticated, authorized and forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientsConfig {
    /// Clients are not told apart: every client that reaches a listener acts with the gateway's own credentials. All
    /// listeners are loopback addresses or Unix sockets.
    Trusted(TrustedConfig),
    /// Each client authenticates, and may do what upstream permits.
    Delegated(Box<DelegatedConfig>),
}

/// What is required of clients that do not authenticate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedConfig {
    /// Further host names that requests over TCP may use for the gateway, in lower case, without a port; addresses
    /// without brackets.
    pub accept_hosts: Vec<String>,
    /// Origins of web pages that may send requests over TCP as other clients do, besides the gateway's own origin.
    pub accept_origins: Vec<Origin>,
}

/// How clients are authenticated and authorized, and how their identity is passed to upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegatedConfig {
    pub authentication: AuthenticationConfig,
    pub authorization: AuthorizationConfig,
    /// `Some` exactly if there are clients that cannot authenticate to upstream themselves: those with a certificate or
    /// behind a front proxy.
    pub identity: Option<IdentityConfig>,
}

/// How clients are authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationConfig {
    /// Certificate authorities for clients. `None`: certificates identify no user.
    pub client_ca: Option<PemFile>,
    /// `None`: `X-Remote-*` is trusted from no client.
    pub request_header: Option<RequestHeaderConfig>,
    /// Where tokens are reviewed, and with which credentials. `None`: by upstream, with the gateway's own credentials.
    pub reviews: Option<UpstreamConfig>,
    /// Audiences that tokens have to be for. Empty: the reviewer's own audiences.
    pub audiences: Vec<String>,
    /// How long the review of a valid token is cached; the token's expiry ends that earlier.
    pub success_ttl: Duration,
    pub failure_ttl: Duration,
    /// Whether reads without credentials may be answered from memory, if `system:anonymous` is permitted to make them.
    /// Otherwise they are forwarded, and upstream decides.
    pub anonymous: bool,
}

/// Front proxies, which name the user of a request in its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaderConfig {
    /// Authorities of their certificates.
    pub ca: PemFile,
    /// Common names of their certificates. Empty: any.
    pub allowed_names: Vec<String>,
    /// The headers that name the user.
    pub headers: ProxyHeaders,
}

/// How clients' reads are authorized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationConfig {
    /// Where access is reviewed, and with which credentials. `None`: by upstream, with the gateway's own credentials.
    pub reviews: Option<UpstreamConfig>,
    pub allowed_ttl: Duration,
    pub denied_ttl: Duration,
    /// A watch is authorized again after this time.
    pub watch_interval: Duration,
}

/// How the identity of users that only the gateway has verified is passed to upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityConfig {
    /// `X-Remote-*`, with a certificate that upstream accepts as a front proxy's.
    FrontProxy(FrontProxyConfig),
    /// `Impersonate-*` with the gateway's own credentials.
    Impersonation,
}

/// The gateway as a front proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontProxyConfig {
    pub files: TlsFiles,
    /// The headers that upstream reads, one of each kind.
    pub headers: ProxyHeaders,
}

impl ClientsConfig {
    /// Whether a client's certificate can identify its user.
    pub fn by_certificate(&self) -> bool {
        match self {
            Self::Trusted(_) => false,
            Self::Delegated(delegated) => delegated.authentication.by_certificate(),
        }
    }
}

impl AuthenticationConfig {
    /// Whether certificate authorities for clients are configured.
    pub fn by_certificate(&self) -> bool {
        self.client_ca.is_some() || self.request_header.is_some()
    }
}

impl Default for ClientsConfig {
    fn default() -> Self {
        Self::Trusted(TrustedConfig::default())
    }
}
