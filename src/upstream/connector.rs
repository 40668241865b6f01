//! The way to the API server with the gateway's own credentials.

use std::sync::Arc;

use super::{
    AsGateway, AsImpersonator, BuildError, OwnRequests,
    access::Access,
    identity::{self, Exposed},
    target::Target,
};
use crate::lifecycle::Tasks;

/// The address of the API server and the gateway's own credentials, resolved once. Makes the types that send requests
/// with these credentials, each with connections of its own. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Connector {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: Target,
    access: Access,
    /// The credentials impersonate a user.
    impersonates: bool,
    exposed: Option<Exposed>,
}

impl Connector {
    /// Builds it from a resolved kubeconfig or in-cluster configuration. Runs its exec plugin, if any, and reads its
    /// client certificate; connects on first use.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn new(config: &kube_client::Config) -> Result<Self, BuildError> {
        let access = Access::new(config)?;
        let shared = Shared {
            target: Target::of(config)?,
            access,
            impersonates: identity::impersonates(config),
            exposed: Exposed::of(config),
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

    /// Sends requests of the gateway itself.
    pub fn own_requests(&self) -> OwnRequests {
        OwnRequests::new(&self.shared.access, self.shared.target.clone())
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

    /// Checks that clients' credentials, and questions about clients, may be sent to this API server.
    ///
    /// # Errors
    /// They would cross a network without TLS or over unverified TLS.
    pub fn refuse_exposed(&self) -> Result<(), BuildError> {
        self.shared.exposed.clone().map_or(Ok(()), |exposed| Err(exposed.into()))
    }
}
