//! Who asks: from a connection and its headers to a user.
//!
//! In `trusted` mode everybody who reaches the listener (loopback or a Unix socket, see
//! [`crate::config`]) acts with the gateway's own credentials, as with `kubectl proxy`.
//!
//! In `delegated` mode a request is from whom the API server would say that it is from (read-path 8.1). That is settled in two
//! steps. [`Authenticator::credentials`] takes what a request shows off its headers and verifies certificates and front proxies
//! here: that costs no IO, and decides how the request is forwarded. [`Authenticator::known`] is the user if that is known,
//! [`Authenticator::user`] asks upstream about a bearer token else; both are for requests that memory could answer. Whoever is not
//! authenticated is forwarded as he came, so that upstream says why.
//!
//! Invariant: nothing behind this module sees `Authorization` or `X-Remote-*` in a client's headers.

mod authorities;
mod certificates;
mod credentials;
mod front_proxy;
mod groups;
mod requester;
#[cfg(test)]
mod test_certificates;
#[cfg(test)]
mod tests;
mod token;
mod unauthenticated;
mod x509;

use std::{net::IpAddr, sync::Arc};

use http::HeaderMap;
use tokio::time::Instant;

use crate::apimachinery::UserInfo;
use crate::config::{PemFile, ProxyHeaders};
use crate::fairness::ClientKey;
use crate::lifecycle::Tasks;
use crate::listener::ClientCertificate;
use crate::upstream::Upstream;

pub use authorities::AuthoritiesError;
pub use certificates::RequestHeader;
pub use credentials::{BearerToken, Credentials};
pub use requester::{Requester, client_of};
pub use token::TokenReviews;
pub use unauthenticated::Unauthenticated;
pub use x509::CREDENTIAL_ID;

use certificates::{Certificates, Finding};
use front_proxy::{Asserted, Unreadable};
use groups::{add_authenticated, anonymous};
use requester::unknown_tokens;
use token::Tokens;

/// How clients show who they are in `delegated` mode. Bearer tokens are always taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Authorities of client certificates. Without it, none is believed.
    pub client_ca: Option<PemFile>,
    /// Who may assert users by `X-Remote-*`. Without it, nobody.
    pub request_header: Option<RequestHeader>,
    pub token_reviews: TokenReviews,
    /// The headers in which the gateway itself says so to upstream: of clients they mean nothing.
    pub asserted_upstream: Option<ProxyHeaders>,
    /// Whether who shows nothing is `system:anonymous`, and may be answered from memory.
    pub anonymous: bool,
}

/// Says who a request is from. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Authenticator {
    /// None in `trusted` mode.
    delegated: Option<Arc<Delegated>>,
}

#[derive(Debug)]
struct Delegated {
    /// The headers in which front proxies say for which user they ask.
    of_proxies: ProxyHeaders,
    /// The same, and those in which the gateway says so itself.
    all: Vec<ProxyHeaders>,
    certificates: Arc<Certificates>,
    tokens: Tokens,
    anonymous: Option<Arc<UserInfo>>,
}

impl Authenticator {
    /// Believes nobody, and lets everybody act with the gateway's own credentials.
    pub fn trusted() -> Self {
        Self { delegated: None }
    }

    /// Believes whom the API server would believe. `reviewer` is asked about tokens: its credentials need to be allowed to create
    /// `tokenreviews`, and it should have no other use, so that a flood of tokens delays nothing else. `tasks` runs the reviews, and
    /// what follows the files of authorities.
    ///
    /// # Errors
    /// The authorities cannot be read.
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

    /// Reviews tokens from now on as `config` says, if clients are told apart.
    pub fn set_token_reviews(&self, config: TokenReviews) {
        if let Some(delegated) = &self.delegated {
            delegated.tokens.set(config);
        }
    }

    /// Takes the client's credentials off a request: nothing behind this sees them, or may take them for its own. `certificate` is
    /// what its connection has shown.
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
            Ok(Finding::Nothing) => Credentials::of_authorization(authorization, impersonates),
            Ok(Finding::Wrong) => {
                let token = Credentials::of_authorization(authorization, impersonates);
                if matches!(token, Credentials::Bearer { .. }) { token } else { Credentials::Refused }
            }
            // Upstream would read it somehow: not as who the proxy is, nor whoever's token it passes on.
            Err(Unreadable) => Credentials::Refused,
        }
    }

    /// For whom a request with these credentials from this address counts: a user where one is known. A token's user is known when
    /// a review has said lately who it is; before that any text may be a token, and all of one address count together.
    pub fn requester(&self, credentials: &Credentials, address: Option<IpAddr>) -> Requester {
        let client = self.delegated.as_ref().map(|delegated| match credentials {
            Credentials::Verified { user, .. } => client_of(user, address),
            Credentials::Bearer { token, .. } => {
                let known = token.token().and_then(|token| delegated.tokens.client(token));
                known.unwrap_or_else(|| unknown_tokens(address))
            }
            Credentials::Gateway { .. } | Credentials::Passed { .. } | Credentials::Refused => {
                ClientKey::address(address)
            }
        });
        Requester { address, client }
    }

    /// The user that somebody with these credentials is, as far as that is known at `now`. `None` if upstream has to be asked:
    /// [`Self::user`]. Those of the gateway itself have none: see [`crate::authz::Authorizer::authorize_gateway`].
    ///
    /// # Errors
    /// There is none that the gateway could answer for: upstream decides, and words it.
    pub fn known(&self, credentials: &Credentials, now: Instant) -> Option<Result<Arc<UserInfo>, Unauthenticated>> {
        if credentials.impersonates() {
            return Some(Err(Unauthenticated::Impersonates));
        }
        let Some(delegated) = &self.delegated else { return Some(Err(Unauthenticated::Nobody)) };
        match credentials {
            Credentials::Verified { user, .. } => Some(Ok(user.clone())),
            Credentials::Bearer { token, .. } => match token.token() {
                Some(token) => delegated.tokens.known(token, now),
                None => Some(Err(Unauthenticated::Unavailable)),
            },
            Credentials::Passed { .. } => Some(delegated.anonymous.clone().ok_or(Unauthenticated::Nobody)),
            Credentials::Gateway { .. } | Credentials::Refused => Some(Err(Unauthenticated::Nobody)),
        }
    }

    /// The same, with what upstream says where it is not known. Asking counts for the address that the request came from.
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
                delegated.tokens.ask(token, ClientKey::address(address)).await
            }
            // Of all others it is known whether they have a user.
            _ => Err(Unauthenticated::Nobody),
        }
    }
}

impl Delegated {
    /// What a certificate proves: whom a front proxy asserts, else whose it is.
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
