//! Who may ask, and as whom: the two modes.

use std::time::Duration;

use crate::apimachinery::Origin;
use crate::config::{PemFile, ProxyHeaders, TlsFiles, UpstreamConfig};

/// As kube-apiserver remembers a token that it has verified.
pub const DEFAULT_TOKEN_SUCCESS_TTL: Duration = Duration::from_secs(10);
/// As kube-apiserver: a token that is refused may be good a moment later, when its signer is known.
pub const DEFAULT_TOKEN_FAILURE_TTL: Duration = Duration::ZERO;
/// As servers do that delegate their authorization: a role that is taken away stops to count soon.
pub const DEFAULT_ALLOWED_TTL: Duration = Duration::from_secs(10);
/// As servers do that delegate their authorization: a role that is given counts soon.
pub const DEFAULT_DENIED_TTL: Duration = Duration::from_secs(10);
/// A few watches of each client, a few times an hour: one review a second for every 300 watches.
pub const DEFAULT_WATCH_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Who may ask, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientsConfig {
    /// Nobody is told apart: whoever reaches a listener acts with the gateway's own credentials. All listeners are
    /// loopback addresses or Unix sockets.
    Trusted(TrustedConfig),
    /// Each client is who it shows to be, and gets what upstream lets it have.
    Delegated(Box<DelegatedConfig>),
}

/// What is asked of clients that are nobody in particular.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedConfig {
    /// Further names by which requests over TCP may call the gateway, in lower case, without a port; addresses without
    /// brackets.
    pub accept_hosts: Vec<String>,
    /// Web pages that may ask over TCP as every other client does, besides those of the gateway's own origin.
    pub accept_origins: Vec<Origin>,
}

/// How clients are known, permitted and represented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegatedConfig {
    pub authentication: AuthenticationConfig,
    pub authorization: AuthorizationConfig,
    /// There is one exactly if there are clients who cannot show themselves to upstream: those with a certificate or
    /// behind a front proxy.
    pub identity: Option<IdentityConfig>,
}

/// How it is found out who a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationConfig {
    /// Authorities of clients' certificates. None: no certificate names a user.
    pub client_ca: Option<PemFile>,
    /// None: `X-Remote-*` is believed of nobody.
    pub request_header: Option<RequestHeaderConfig>,
    /// Where tokens are reviewed, and as whom. None: by upstream, with the gateway's own credentials.
    pub reviews: Option<UpstreamConfig>,
    /// Whom tokens have to be for. Empty: the reviewer's own audiences.
    pub audiences: Vec<String>,
    /// How long a good token is not asked about again; its expiry ends that earlier.
    pub success_ttl: Duration,
    pub failure_ttl: Duration,
    /// Reads without credentials may be answered from memory, if `system:anonymous` may have them. Otherwise they are
    /// forwarded, and upstream decides.
    pub anonymous: bool,
}

/// Front proxies, which say in headers whom they ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaderConfig {
    /// Authorities of their certificates.
    pub ca: PemFile,
    /// Common names of their certificates. Empty: any.
    pub allowed_names: Vec<String>,
    /// The headers in which they say so.
    pub headers: ProxyHeaders,
}

/// How it is found out what a client may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationConfig {
    /// Where access is reviewed, and as whom. None: by upstream, with the gateway's own credentials.
    pub reviews: Option<UpstreamConfig>,
    pub allowed_ttl: Duration,
    pub denied_ttl: Duration,
    /// After this long a watch is authorized again.
    pub watch_interval: Duration,
}

/// How upstream is told of users that only the gateway has verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityConfig {
    /// `X-Remote-*` under a certificate that upstream knows as a front proxy's.
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
    /// A client's certificate may say who it is.
    pub fn by_certificate(&self) -> bool {
        match self {
            Self::Trusted(_) => false,
            Self::Delegated(delegated) => delegated.authentication.by_certificate(),
        }
    }
}

impl AuthenticationConfig {
    /// There are authorities that could have signed a client's certificate.
    pub fn by_certificate(&self) -> bool {
        self.client_ca.is_some() || self.request_header.is_some()
    }
}

impl Default for ClientsConfig {
    fn default() -> Self {
        Self::Trusted(TrustedConfig::default())
    }
}
