//! What the gateway itself asks the API server: discovery, definitions of custom resources, reviews, its version, and
//! the lists and watches of caches.

mod cluster;
mod crd;
mod discovery;
mod fetch;
mod introduction;
mod list_watch;
mod probe;
mod review;
mod server_version;
mod servers;
#[cfg(test)]
mod tests;

use std::sync::{Arc, atomic::AtomicU32};

use http::{Request, Response};
use tokio::time::Instant;

pub use crd::Crd;
pub use discovery::{ApiResource, Discovery, DiscoveryError, ServedBy};
pub use fetch::FetchError;
pub use introduction::Introduction;
pub use list_watch::ResourceListWatch;
pub use review::ReviewError;

use cluster::Cluster;
use server_version::ServerVersion;

use crate::connector::{BuildError, Connector, OwnRequests, RequestBody, ResponseBody, SendError, Trouble};
use engine::reflector::StorageEvidence;

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
    cluster: Cluster,
    gateways_above: AtomicU32,
    storage: StorageEvidence,
}

impl Upstream {
    /// Connections of its own to the API server that `connector` leads to.
    pub fn new(connector: Connector) -> Self {
        Self::of_storage(connector, StorageEvidence::default())
    }

    /// The same, for reviews of clients' tokens and permissions. Reviews hold for a cluster whose storage is this.
    ///
    /// # Errors
    /// Tokens and answers would cross a network without TLS or over unverified TLS.
    pub fn for_reviews(connector: Connector, storage: StorageEvidence) -> Result<Self, BuildError> {
        connector.refuse_exposed()?;
        Ok(Self::of_storage(connector, storage))
    }

    fn of_storage(connector: Connector, storage: StorageEvidence) -> Self {
        let own = connector.own_requests();
        let (server_version, cluster) = (ServerVersion::default(), Cluster::default());
        let gateways_above = AtomicU32::default();
        Self { shared: Arc::new(Shared { connector, own, server_version, cluster, gateways_above, storage }) }
    }

    /// The address of the API server, without credentials.
    pub fn address(&self) -> String {
        self.shared.connector.address()
    }

    /// Whether the last request had no connection.
    pub fn is_unreachable(&self) -> bool {
        self.shared.connector.is_unreachable()
    }

    /// Whether a request had no connection after `time`.
    pub fn was_unreachable_since(&self, time: Instant) -> bool {
        self.shared.connector.was_unreachable_since(time)
    }

    /// What is wrong with it now, the worst first ([`Connector::troubles`]).
    pub fn troubles(&self) -> Vec<Trouble> {
        self.shared.connector.troubles()
    }

    /// Resolves when it can be used again after it could not, after `time`.
    pub async fn recovered_since(&self, time: Instant) {
        self.shared.connector.recovered_since(time).await;
    }

    /// Whether its storage was found to be another one than before.
    pub fn storage(&self) -> &StorageEvidence {
        &self.shared.storage
    }

    async fn send(&self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, SendError> {
        self.shared.own.send(request).await
    }
}
