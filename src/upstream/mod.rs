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
mod connector;
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
mod own_requests;
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
pub use connector::Connector;
pub use crd::Crd;
pub use discovery::{ApiResource, Discovery, DiscoveryError, ServedBy};
pub use error::{Fault, Retry, SendError};
pub use fetch::FetchError;
pub use hop::{comes_from_gateway, has_passed};
pub use identity::{AsClient, AsFrontProxy, AsGateway, AsImpersonator, IdentityError, NotBelieved, Outbound};
pub use list_watch::ResourceListWatch;
pub use own_requests::OwnRequests;
pub use review::ReviewError;
pub use slot::Slot;

use reachable::Reachable;
use server_version::ServerVersion;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The API server, asked with the gateway's own credentials. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Upstream {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    connector: Connector,
    own: OwnRequests,
    server_version: ServerVersion,
}

impl Upstream {
    /// Connections of its own to the API server that `connector` leads to.
    pub fn new(connector: Connector) -> Self {
        let own = connector.own_requests();
        Self { shared: Arc::new(Shared { connector, own, server_version: ServerVersion::default() }) }
    }

    /// The same, for reviews of clients' tokens and permissions.
    ///
    /// # Errors
    /// Tokens and answers would cross a network without TLS or over unverified TLS.
    pub fn for_reviews(connector: Connector) -> Result<Self, BuildError> {
        connector.refuse_exposed()?;
        Ok(Self::new(connector))
    }

    /// The address of the API server, without credentials.
    pub fn address(&self) -> String {
        self.shared.connector.address()
    }

    async fn send(&self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, SendError> {
        self.shared.own.send(request).await
    }
}
