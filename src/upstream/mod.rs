//! The API server behind the gateway: the only module that opens outbound connections.
//!
//! [`Upstream`] makes the gateway's own requests with the gateway's own credentials, and nobody outside of this module
//! can send anything else with it. A client's request goes as an [`Outbound`], which only those make that put an identity
//! on it: [`AsClient`], [`AsFrontProxy`], [`AsImpersonator`], and [`AsGateway`] where clients are trusted. What the
//! gateway itself asks for, what it forwards and what is upgraded go on connections of their own, so that none can starve
//! another; so does each of the identities, so that none can be mistaken for another. What is forwarded and brief has a
//! connection to itself, which costs least (`exclusive`); what lasts shares connections (`lanes`). TLS, credentials that
//! rotate, exec plugins and proxies come from kube-client's configuration. There is no time limit on an answer: watches and
//! logs last as long as they like; dead connections are found by pings and keep-alive.

mod access;
mod body;
mod build_error;
mod client_certificate;
mod connector;
mod crd;
mod delivery;
mod discovery;
mod error;
mod exclusive;
mod fetch;
mod hop;
mod identity;
mod lanes;
mod list_watch;
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
pub use hop::has_passed;
pub use identity::{AsClient, AsFrontProxy, AsGateway, AsImpersonator, IdentityError, NotBelieved, Outbound};
pub use list_watch::ResourceListWatch;
pub use review::ReviewError;
pub use slot::Slot;

use access::Access;
use connector::Protocols;
use lanes::{LaneGroup, Lanes, Windows};
use server_version::ServerVersion;
use target::Target;

use crate::lifecycle::Tasks;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The gateway's own requests, one watch for each cache, proofs, discovery: 2,000 at once.
const OWN: LaneGroup = LaneGroup {
    protocols: Protocols::Any,
    windows: Windows::EAGER,
    count: 20,
    limit: "upstream_own_requests",
    // Of no effect: the gateway is no client.
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
    /// From a resolved kubeconfig or in-cluster configuration. Runs its exec plugin, if any, and reads its client
    /// certificate; connects on first use.
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

    /// New connections show the client certificate that its files hold by then, if the configuration names files.
    /// `tasks` looks at them until the drain begins. Tokens in files, and plugins' tokens, are followed anyway.
    pub fn follow_files(&self, tasks: &Tasks) {
        self.shared.access.follow_files(tasks);
    }

    /// Sends clients' requests with the gateway's own credentials: for clients that may do what the gateway may.
    pub fn as_gateway(&self) -> AsGateway {
        AsGateway::new(&self.shared.access, self.shared.target.clone(), self.shared.impersonates)
    }

    /// Sends clients' requests with the gateway's own credentials, which impersonate a user for each.
    ///
    /// # Errors
    /// The credentials impersonate somebody themselves, or users would be named without TLS, or in TLS that is not verified.
    pub fn as_impersonator(&self) -> Result<AsImpersonator, BuildError> {
        self.refuse_exposed()?;
        if self.shared.impersonates {
            return Err(BuildError::Impersonates);
        }
        Ok(AsImpersonator::new(&self.shared.access, self.shared.target.clone()))
    }

    /// The same, for questions about clients: their tokens, and what they may.
    ///
    /// # Errors
    /// Tokens and answers would cross a network without TLS, or in TLS that is not verified.
    pub fn as_reviewer(self) -> Result<Self, BuildError> {
        self.refuse_exposed()?;
        Ok(self)
    }

    fn refuse_exposed(&self) -> Result<(), BuildError> {
        self.shared.exposed.clone().map_or(Ok(()), |exposed| Err(exposed.into()))
    }

    /// A request of the gateway itself, whose answer is read without pause. Only path and query of the URI count.
    async fn send(&self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, SendError> {
        delivery::deliver(&self.shared.target, &[&self.shared.own], None, request).await
    }
}
