//! How clients are authenticated and authorized, and under which identity they are forwarded: the two modes.

use std::{ops::RangeInclusive, time::Duration};

use serde_json::json;

use crate::apimachinery::Origin;
use crate::config::fields::{ANY_FILE, FLAG, Fields, Maybe, PEM, Parsed, Refused, Text, Time, Words, about};
use crate::config::{PemFile, ProxyHeaders, TlsFiles, UpstreamConfig};

/// Bounds how long a removed user or a revoked permission stays in effect.
const REVIEW_TTL: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(10 * 60);
/// How long the API server may stay away until users and rights that were known have to be asked for again.
const AWAY_TTL: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);
/// Each interval costs one review per watch; the API server itself never authorizes a watch again.
const WATCH_INTERVAL: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(24 * 3600);

const MODES: Words<Mode> = Words(&[("trusted", Mode::Trusted), ("delegated", Mode::Delegated)]);
const HOST: Parsed<String> = Parsed {
    allowed: "the exact name or IP address that clients use, without scheme and port",
    parse: |text| host(text).ok_or_else(Refused::default),
    pattern: "",
};
const ORIGIN: Parsed<Origin> =
    Parsed { allowed: Origin::ALLOWED, parse: |text| text.parse().map_err(|_| Refused::default()), pattern: "" };

/// The fields of [`DelegatedConfig`].
const DELEGATED: [&str; 4] = ["authentication", "authorization", "identity", "awayTTL"];

/// The two variants of [`ClientsConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Trusted,
    Delegated,
}

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelegatedConfig {
    pub authentication: AuthenticationConfig,
    pub authorization: AuthorizationConfig,
    /// `Some` exactly if there are clients that cannot authenticate to upstream themselves: those with a certificate or
    /// behind a front proxy.
    pub identity: Option<IdentityConfig>,
    /// How long a token and a right that the API server has confirmed are believed while it cannot be asked. Zero: no
    /// longer than at other times.
    pub away_ttl: Duration,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontProxyConfig {
    pub files: TlsFiles,
    /// The headers that upstream reads, one of each kind.
    pub headers: ProxyHeaders,
}

impl ClientsConfig {
    /// The defaults of a mode by its name; of `trusted`, if there is no such mode.
    pub(super) fn of_mode(mode: Option<&str>) -> Self {
        if mode == Some("delegated") { Self::Delegated(Box::default()) } else { Self::default() }
    }

    /// Whether a client's certificate can identify its user.
    pub fn by_certificate(&self) -> bool {
        match self {
            Self::Trusted(_) => false,
            Self::Delegated(delegated) => delegated.authentication.by_certificate(),
        }
    }

    /// The fields of this mode: a document is read into the defaults of the mode that it has.
    pub(super) fn fields(&mut self, fields: &mut Fields<'_>) {
        let mut mode = if matches!(self, Self::Trusted(_)) { Mode::Trusted } else { Mode::Delegated };
        fields.value("mode", about("see the chapter `identity`"), &mut mode, &MODES);
        match self {
            Self::Trusted(trusted) => {
                trusted.fields(fields);
                if fields.describes() {
                    DelegatedConfig::default().fields(fields);
                } else if fields.has_problem("mode") {
                    // The mode may be the other one.
                    DELEGATED.into_iter().for_each(|name| fields.any(name));
                } else {
                    for name in DELEGATED {
                        fields.foreign(name, "clients.mode: trusted", "clients.mode: delegated");
                    }
                }
            }
            Self::Delegated(delegated) => {
                for name in ["acceptHosts", "acceptOrigins"] {
                    fields.foreign(name, "clients.mode: delegated", "clients.mode: trusted");
                }
                delegated.fields(fields);
            }
        }
    }
}

impl TrustedConfig {
    fn fields(&mut self, fields: &mut Fields<'_>) {
        let text = "names and addresses that clients may use for the gateway, besides `localhost`, `127.0.0.1`, \
                    `[::1]` and the listeners' own addresses; for requests over TCP in `trusted` mode";
        fields.list("acceptHosts", about(text), &mut self.accept_hosts, &HOST);
        let text = "origins of web pages that may send requests over TCP, such as `http://localhost:4466`; in \
                    `trusted` mode, see the chapter `request_path`";
        fields.list("acceptOrigins", about(text), &mut self.accept_origins, &ORIGIN);
    }
}

impl DelegatedConfig {
    fn fields(&mut self, fields: &mut Fields<'_>) {
        fields.section("authentication", |fields| self.authentication.fields(fields));
        fields.section("authorization", |fields| self.authorization.fields(fields));
        let text = "how long a token and a right that the API server has confirmed are believed while it cannot be \
                    reached; see the chapter `identity`";
        fields.value("awayTTL", about(text), &mut self.away_ttl, &Time(AWAY_TTL));
        if fields.describes() || fields.is_given("identity") || self.identity.is_some() {
            fields.section("identity", |fields| IdentityConfig::fields(&mut self.identity, fields));
        } else {
            fields.any("identity");
        }
        match (&self.identity, self.authentication.by_certificate()) {
            // An empty field is already a problem of its own.
            (None, true) if !fields.is_given("identity") => {
                let found =
                    "missing; clientCAFile and requestHeader need it to forward requests under their users' identities";
                let allowed = "one of clients.identity.frontProxy and clients.identity.impersonation";
                fields.problem("identity", found, allowed);
            }
            (Some(_), false) => {
                let found = "not needed without clientCAFile and requestHeader";
                let allowed = "clients.authentication.clientCAFile or .requestHeader, or remove this field";
                fields.problem("identity", found, allowed);
            }
            (None, _) | (Some(_), true) => {}
        }
    }
}

impl AuthenticationConfig {
    /// Whether certificate authorities for clients are configured.
    pub fn by_certificate(&self) -> bool {
        self.client_ca.is_some() || self.request_header.is_some()
    }

    fn fields(&mut self, fields: &mut Fields<'_>) {
        let text = about("authorities of clients' certificates").default("none: certificates identify no user");
        fields.value("clientCAFile", text, &mut self.client_ca, &Maybe(PEM));
        fields.optional("requestHeader", &mut self.request_header, |proxies, fields| {
            let text = about("authorities of front proxies' certificates");
            fields.required(
                "caFile",
                text.default("none: `X-Remote-*` is trusted from no client"),
                &mut proxies.ca,
                &PEM,
            );
            let text = about("common names; required if an authority is in `clientCAFile` too").default("any");
            fields.set("allowedNames", text, &mut proxies.allowed_names, &Text);
            proxies.headers.lists(fields);
        });
        reviews(&mut self.reviews, "the server for TokenReviews", fields);
        fields.section("tokenReview", |fields| {
            let text = about("audiences that tokens have to be for").default("those of the server that reviews tokens");
            fields.set("audiences", text, &mut self.audiences, &Text);
            let text = "how long the review of a valid token is kept; its expiry ends that earlier";
            fields.value("successTTL", about(text), &mut self.success_ttl, &Time(REVIEW_TTL));
            fields.value(
                "failureTTL",
                about("the same for a token that is not valid"),
                &mut self.failure_ttl,
                &Time(REVIEW_TTL),
            );
        });
        let text = "whether reads without credentials are answered from memory if `system:anonymous` may make them";
        fields.value("anonymous", about(text), &mut self.anonymous, &FLAG);
    }
}

impl AuthorizationConfig {
    fn fields(&mut self, fields: &mut Fields<'_>) {
        reviews(&mut self.reviews, "the server for SubjectAccessReviews", fields);
        let text = "how long it is kept that a request is allowed";
        fields.value("allowedTTL", about(text), &mut self.allowed_ttl, &Time(REVIEW_TTL));
        let text = "how long it is kept that a request is denied";
        fields.value("deniedTTL", about(text), &mut self.denied_ttl, &Time(REVIEW_TTL));
        let text = "how often a watch is authorized again";
        fields.value("watchInterval", about(text), &mut self.watch_interval, &Time(WATCH_INTERVAL));
    }
}

/// Where reviews are made.
fn reviews(reviews: &mut Option<UpstreamConfig>, text: &'static str, fields: &mut Fields<'_>) {
    let mut kubeconfig = reviews.take().and_then(|reviews| reviews.kubeconfig);
    fields.value("kubeconfig", about(text).default("none: `upstream`"), &mut kubeconfig, &Maybe(ANY_FILE));
    *reviews = kubeconfig.map(|path| UpstreamConfig { kubeconfig: Some(path), context: None });
}

impl IdentityConfig {
    /// One of two sections.
    fn fields(identity: &mut Option<Self>, fields: &mut Fields<'_>) {
        let (mut front_proxy, mut impersonation) = match identity.take() {
            None => (None, None),
            Some(Self::FrontProxy(proxy)) => (Some(proxy), None),
            Some(Self::Impersonation) => (None, Some(())),
        };
        fields.optional("frontProxy", &mut front_proxy, |proxy, fields| {
            let text = about("this pair or `impersonation` is needed with `clientCAFile` or `requestHeader`");
            fields.required("certFile", text, &mut proxy.files.cert_file, &PEM);
            fields.required("keyFile", about(""), &mut proxy.files.key_file, &PEM);
            proxy.headers.singles(fields);
        });
        fields.optional("impersonation", &mut impersonation, |(), fields| {
            fields.empty(about("with the gateway's own credentials"));
        });
        fields.keyword("", "minProperties", json!(1));
        fields.keyword("", "maxProperties", json!(1));
        *identity = match (front_proxy, impersonation) {
            (Some(proxy), None) => Some(Self::FrontProxy(proxy)),
            (None, Some(())) => Some(Self::Impersonation),
            (both, _) => {
                let found = if both.is_some() { "both were given" } else { "neither was given" };
                let allowed =
                    "one of frontProxy and impersonation; a field without a value is not given: impersonation: {}";
                fields.problem("", found, allowed);
                None
            }
        };
    }
}

impl Default for ClientsConfig {
    fn default() -> Self {
        Self::Trusted(TrustedConfig::default())
    }
}

impl Default for AuthenticationConfig {
    fn default() -> Self {
        Self {
            client_ca: None,
            request_header: None,
            reviews: None,
            audiences: Vec::new(),
            // As long as kube-apiserver caches a verified token.
            success_ttl: Duration::from_secs(10),
            // As in kube-apiserver: a rejected token may become valid when its signer is known.
            failure_ttl: Duration::ZERO,
            anonymous: false,
        }
    }
}

impl Default for AuthorizationConfig {
    fn default() -> Self {
        Self {
            reviews: None,
            // As in aggregated API servers (delegated authorization): a revoked role loses its effect soon, and a
            // granted one takes effect soon.
            allowed_ttl: Duration::from_secs(10),
            denied_ttl: Duration::from_secs(10),
            // Each watch is reviewed a few times an hour: one review a second for every 300 watches.
            watch_interval: Duration::from_secs(5 * 60),
        }
    }
}

/// A host in the form in which requests are compared with it; `None` if no request could contain it.
fn host(text: &str) -> Option<String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let is_name = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
    };
    let is_address = bare.parse::<std::net::IpAddr>().is_ok();
    (is_address || is_name(text)).then(|| bare.to_ascii_lowercase())
}
