//! The API server behind the gateway: the only module that opens outbound connections.
//!
//! [`Upstream`] sends the gateway's own requests with the gateway's own credentials; no other module can send anything
//! else with it. A client's request is sent as an [`Outbound`], which only the types that put an identity on it can
//! make: [`AsClient`], [`AsFrontProxy`], [`AsImpersonator`], and [`AsGateway`] where clients are trusted. The gateway's
//! own requests, forwarded requests and upgrades have separate connections, so that none can starve another; so does
//! each identity, so that none can be mistaken for another. Brief forwarded requests have a connection each, which
//! costs least (`exclusive`); long-running ones share connections (`lanes`). TLS, rotating credentials, exec plugins
//! and proxies come from kube-client's configuration. Answers have no time limit, since watches and logs last as long
//! as they like; dead connections are found by pings and keep-alive.

mod access;
mod body;
mod build_error;
mod client_certificate;
mod crd;
mod delivery;
mod dialer;
mod discovery;
mod error;
mod exclusive;
mod fetch;
mod hop;
mod identity;
mod lanes;
mod list_watch;
mod reachable;
mod review;
mod server_version;
mod slot;
mod target;
#[cfg(test)]
pub(crate) mod test_authority;
#[cfg(test)]
pub(crate) mod test_server;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::{Request, Response};

pub use body::{RequestBody, ResponseBody};
pub use build_error::BuildError;
pub use client_certificate::CertificateError;
pub use crd::Crd;
pub use discovery::{ApiResource, Discovery, DiscoveryError, ServedBy};
pub use error::{Fault, Retry, SendError};
pub use fetch::FetchError;
pub use hop::{comes_from_gateway, has_passed};
pub use identity::{AsClient, AsFrontProxy, AsGateway, AsImpersonator, IdentityError, NotBelieved, Outbound};
pub use list_watch::ResourceListWatch;
pub use review::ReviewError;
pub use slot::Slot;

use access::Access;
use dialer::Protocols;
use lanes::{LaneGroup, Lanes, Windows};
use reachable::Reachable;
use server_version::ServerVersion;
use target::Target;

use crate::lifecycle::Tasks;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The gateway's own requests (one watch for each cache, proofs, discovery): 2,000 at once.
const OWN: LaneGroup = LaneGroup {
    protocols: Protocols::Any,
    windows: Windows::EAGER,
    count: 20,
    limit: "upstream_own_requests",
    // Of no effect: the gateway's own requests are counted for no client.
    client_limit: "upstream_own_requests",
};
/// The API server, asked with the gateway's own credentials. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Upstream {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: Target,
    access: Access,
    own: Lanes,
    server_version: ServerVersion,
    impersonates: bool,
    exposed: Option<identity::Exposed>,
}

impl Upstream {
    /// Builds it from a resolved kubeconfig or in-cluster configuration. Runs its exec plugin, if any, and reads its
    /// client certificate; connects on first use.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn new(config: &kube_client::Config) -> Result<Self, BuildError> {
        let access = Access::new(config)?;
        let shared = Shared {
            target: Target::of(config)?,
            own: Lanes::new(&access, OWN),
            server_version: ServerVersion::default(),
            access,
            impersonates: identity::impersonates(config),
            exposed: identity::Exposed::of(config),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The address of the API server, without credentials.
    pub fn address(&self) -> String {
        self.shared.target.to_string()
    }

    /// Makes new connections show what the files of the client certificate currently hold, if the configuration names
    /// files. A task of `tasks` checks them until the drain begins. Tokens in files, and plugins' tokens, are followed
    /// anyway.
    pub fn follow_files(&self, tasks: &Tasks) {
        self.shared.access.follow_files(tasks);
    }

    /// Sends clients' requests with the gateway's own credentials: for clients that may do everything the gateway may.
    pub fn as_gateway(&self) -> AsGateway {
        AsGateway::new(&self.shared.access, self.shared.target.clone(), self.shared.impersonates)
    }

    /// Sends clients' requests with the gateway's own credentials, impersonating the user of each.
    ///
    /// # Errors
    /// The credentials already impersonate a user, or users would be named without TLS or over unverified TLS.
    pub fn as_impersonator(&self) -> Result<AsImpersonator, BuildError> {
        self.refuse_exposed()?;
        if self.shared.impersonates {
            return Err(BuildError::Impersonates);
        }
        Ok(AsImpersonator::new(&self.shared.access, self.shared.target.clone()))
    }

    /// The same upstream, for reviews of clients' tokens and permissions.
    ///
    /// # Errors
    /// Tokens and answers would cross a network without TLS or over unverified TLS.
    pub fn as_reviewer(self) -> Result<Self, BuildError> {
        self.refuse_exposed()?;
        Ok(self)
    }

    fn refuse_exposed(&self) -> Result<(), BuildError> {
        self.shared.exposed.clone().map_or(Ok(()), |exposed| Err(exposed.into()))
    }

    /// Sends a request of the gateway itself, whose answer is read without pause. Only path and query of the URI are
    /// used.
    async fn send(&self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, SendError> {
        delivery::deliver(&self.shared.target, &[&self.shared.own], None, request).await
    }
}
