//! Authentication: which user a request is from.
//!
//! In `trusted` mode every client that reaches the listener (loopback or a Unix socket, see [`base::config`]) acts
//! with the gateway's own credentials, as with `kubectl proxy`.
//!
//! In `delegated` mode a request is from the user that the API server would determine (read-path 8.1). That takes two
//! steps. [`Authenticator::credentials`] removes the credentials from a request's headers and verifies certificates and
//! front proxies locally: it does no IO, and decides how the request is forwarded. For requests that could be answered
//! from memory, [`Authenticator::known`] returns the user if it is known, and [`Authenticator::user`] otherwise asks
//! upstream about a bearer token. A request that cannot be authenticated is forwarded unchanged, so that upstream
//! explains why.
//!
//! Invariant: code that runs after this module sees no `Authorization` or `X-Remote-*` in a client's headers.

mod authorities;
mod certificates;
mod credentials;
mod front_proxy;
mod groups;
mod refusals;
mod requester;
#[cfg(test)]
mod tests;
mod token;
mod unauthenticated;
mod x509;

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use crate::listener::{ClientCertificate, Connection};
use crate::upstream::Upstream;
use base::apimachinery::UserInfo;
use base::config::{PemFile, ProxyHeaders};
use base::fairness::ClientKey;
use base::lifecycle::Tasks;

pub use authorities::AuthoritiesError;
pub use certificates::RequestHeader;
pub use credentials::{BearerToken, Credentials};
pub use refusals::{PendingVerification, UnverifiedSender};
pub use requester::{CostClass, Requester, client_of};
pub use token::{Grant, TokenReviews};
pub use unauthenticated::Unauthenticated;
pub use x509::CREDENTIAL_ID;

use certificates::{Certificates, Finding};
use front_proxy::{Asserted, Unreadable};
use groups::{add_authenticated, anonymous};
use requester::unknown_tokens;
use token::Tokens;

/// How clients authenticate in `delegated` mode. Bearer tokens are always accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Authorities of client certificates. `None`: client certificates prove no user.
    pub client_ca: Option<PemFile>,
    /// Front proxies, which may assert users by `X-Remote-*`. `None`: there are none.
    pub request_header: Option<RequestHeader>,
    pub token_reviews: TokenReviews,
    /// The headers in which the gateway itself asserts users to upstream. They are removed from clients' requests.
    pub asserted_upstream: Option<ProxyHeaders>,
    /// Whether a request without credentials is `system:anonymous`, and may be answered from memory.
    pub anonymous: bool,
}

/// Determines which user a request is from. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Authenticator {
    /// `None` in `trusted` mode.
    delegated: Option<Arc<Delegated>>,
}

#[derive(Debug)]
struct Delegated {
    /// The headers in which front proxies name the user.
    of_proxies: ProxyHeaders,
    /// All headers to remove: `of_proxies`, and those in which the gateway asserts users itself.
    all: Vec<ProxyHeaders>,
    certificates: Arc<Certificates>,
    tokens: Tokens,
    anonymous: Option<Arc<UserInfo>>,
}

impl Authenticator {
    /// Authenticates no client: all act with the gateway's own credentials.
    pub fn trusted() -> Self {
        Self { delegated: None }
    }

    /// Authenticates as the API server would. Tokens are reviewed by `reviewer`, whose credentials must be allowed to
    /// create `tokenreviews`; it should have no other use, so that a flood of tokens delays nothing else. `tasks` runs
    /// the reviews and the reloading of authorities.
    ///
    /// # Errors
    /// The authorities cannot be loaded.
    pub async fn delegated(config: Config, reviewer: Upstream, tasks: &Tasks) -> Result<Self, AuthoritiesError> {
        let of_proxies = config.request_header.as_ref().map(|proxies| proxies.headers.clone()).unwrap_or_default();
        let all = [of_proxies.clone()].into_iter().chain(config.asserted_upstream).collect();
        let certificates = Arc::new(Certificates::load(config.client_ca, config.request_header).await?);
        let (followed, token) = (certificates.clone(), tasks.token().clone());
        tasks.spawn("certificate authorities", async move {
            let _ended = token.run_until_cancelled(followed.follow()).await;
        });
        let anonymous = config.anonymous.then(|| Arc::new(anonymous()));
        let tokens = Tokens::new(config.token_reviews, reviewer, tasks.clone());
        Ok(Self { delegated: Some(Arc::new(Delegated { of_proxies, all, certificates, tokens, anonymous })) })
    }

    /// Reviews tokens according to `config` from now on. Has no effect in `trusted` mode.
    pub fn set_token_reviews(&self, config: TokenReviews) {
        if let Some(delegated) = &self.delegated {
            delegated.tokens.set(config);
        }
    }

    /// Stands for these credentials being given what is at `path`, to be believed while upstream is away; `None` if
    /// they are not a token, or nothing is believed.
    pub fn grant(&self, credentials: &Credentials, path: &str) -> Option<Grant> {
        match (credentials, &self.delegated) {
            (Credentials::Bearer { token, impersonates: false }, Some(delegated)) => {
                delegated.tokens.grant(token.text()?, path)
            }
            _ => None,
        }
    }

    /// Removes the client's credentials from a request, so that later code neither sees nor forwards them by mistake.
    /// `certificate` is the one that the connection presented.
    pub fn credentials(&self, headers: &mut HeaderMap, certificate: Option<&ClientCertificate>) -> Credentials {
        let asserted = match &self.delegated {
            Some(delegated) => Asserted::take(headers, &delegated.all),
            None => Asserted::take(headers, &[ProxyHeaders::default()]),
        };
        let authorization = credentials::take_authorization(headers);
        let impersonates = credentials::impersonates(headers);
        let Some(delegated) = &self.delegated else { return Credentials::Gateway { impersonates } };
        let verified = match certificate {
            None => Ok(Finding::Nothing),
            Some(certificate) => delegated.verified(certificate, &asserted),
        };
        match verified {
            Ok(Finding::Proven(user)) => Credentials::Verified { user, impersonates },
            Ok(Finding::Nothing) => Credentials::of_headers(authorization, headers, impersonates),
            Ok(Finding::Wrong) => {
                let token = Credentials::of_authorization(authorization, impersonates);
                if matches!(token, Credentials::Bearer { .. }) { token } else { Credentials::Refused }
            }
            // Upstream would read some user from such a header: neither the proxy itself, nor the owner of a token that
            // it passes on.
            Err(Unreadable) => Credentials::Refused,
        }
    }

    /// The client and address that a request is accounted to: a user if it is known. A token's user is known once a
    /// recent review has accepted it; until then any text may be a token, and all unknown tokens of one address count
    /// as one client.
    pub fn requester(&self, credentials: &Credentials, connection: &Connection) -> Requester {
        let address = connection.peer.map(|peer| peer.ip());
        let Some(delegated) = &self.delegated else {
            return Requester { address, client: None, unverified: None, cost: CostClass::Usual };
        };
        let tokens = &delegated.tokens;
        let unverified = || Some(tokens.unverified(connection));
        let (client, unverified) = match credentials {
            Credentials::Verified { user, .. } => (client_of(user, address), None),
            Credentials::Bearer { token, .. } => match token.token().and_then(|token| tokens.client(token)) {
                Some(known) => (known, None),
                None => (unknown_tokens(address), unverified()),
            },
            Credentials::Subprotocol { .. } => (unknown_tokens(address), unverified()),
            Credentials::Passed { authorization: Some(_), .. } | Credentials::Refused => {
                (ClientKey::address(address), unverified())
            }
            // A load balancer's probe, for example: upstream has nothing to verify.
            Credentials::Passed { authorization: None, .. } | Credentials::Gateway { .. } => {
                (ClientKey::address(address), None)
            }
        };
        Requester { address, client: Some(client), unverified, cost: CostClass::Usual }
    }

    /// Learns from the status with which upstream answered a forwarded request whether its credentials are valid.
    pub fn learn(&self, credentials: &Credentials, address: Option<IpAddr>, status: StatusCode) {
        let Some(delegated) = &self.delegated else { return };
        let token = match credentials {
            Credentials::Bearer { token, .. } => token.text(),
            Credentials::Passed { authorization: Some(_), .. }
            | Credentials::Subprotocol { .. }
            | Credentials::Refused => None,
            Credentials::Passed { authorization: None, .. }
            | Credentials::Verified { .. }
            | Credentials::Gateway { .. } => return,
        };
        delegated.tokens.learn(token, ClientKey::address(address), status);
    }

    /// The user of these credentials as far as it is known at `now`. `None` if upstream has to be asked:
    /// [`Self::user`]. The gateway's own credentials have no user: see [`crate::authz::Authorizer::authorize_gateway`].
    ///
    /// # Errors
    /// The gateway cannot answer for any user; upstream decides, and words the error.
    pub fn known(&self, credentials: &Credentials, now: Instant) -> Option<Result<Arc<UserInfo>, Unauthenticated>> {
        if credentials.impersonates() {
            return Some(Err(Unauthenticated::Impersonates));
        }
        let Some(delegated) = &self.delegated else { return Some(Err(Unauthenticated::NoCredentials)) };
        match credentials {
            Credentials::Verified { user, .. } => Some(Ok(user.clone())),
            Credentials::Bearer { token, .. } => match token.token() {
                Some(token) => delegated.tokens.known(token, now),
                None => Some(Err(Unauthenticated::Unavailable)),
            },
            Credentials::Passed { authorization: None, .. } => {
                Some(delegated.anonymous.clone().ok_or(Unauthenticated::NoCredentials))
            }
            // Upstream may read more in the header, and warns where there is a second space before a token.
            Credentials::Passed { authorization: Some(_), .. }
            | Credentials::Subprotocol { .. }
            | Credentials::Gateway { .. }
            | Credentials::Refused => Some(Err(Unauthenticated::NoCredentials)),
        }
    }

    /// As [`Self::known`], but asks upstream about a token that is not known. The review is accounted to `address`.
    ///
    /// # Errors
    /// As [`Self::known`].
    pub async fn user(
        &self,
        credentials: &Credentials,
        address: Option<IpAddr>,
    ) -> Result<Arc<UserInfo>, Unauthenticated> {
        if let Some(known) = self.known(credentials, Instant::now()) {
            return known;
        }
        match (credentials, &self.delegated) {
            (Credentials::Bearer { token, .. }, Some(delegated)) => {
                let token = token.text().ok_or(Unauthenticated::Unavailable)?;
                let address = ClientKey::address(address);
                delegated.tokens.ask(token, address).await
            }
            // For all other credentials `known` has an answer.
            _ => Err(Unauthenticated::NoCredentials),
        }
    }
}

impl Delegated {
    /// The user that a certificate proves: the one asserted by a front proxy, or else the one it names.
    fn verified(
        &self,
        certificate: &ClientCertificate,
        asserted: &Asserted,
    ) -> Result<Finding<Arc<UserInfo>>, Unreadable> {
        let proof = self.certificates.proof(certificate);
        let asserted = match proof.front_proxy {
            Finding::Proven(()) => {
                let user = asserted.user(&self.of_proxies)?;
                user.map_or(Finding::Nothing, |user| Finding::Proven(Arc::new(add_authenticated(user))))
            }
            Finding::Nothing => Finding::Nothing,
            Finding::Wrong => Finding::Wrong,
        };
        Ok(asserted.or(proof.user))
    }
}
