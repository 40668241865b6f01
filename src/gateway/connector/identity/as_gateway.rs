//! Clients that act with the gateway's own identity.

use std::sync::Arc;

use http::Request;

use super::{Connections, IdentityError, Limits, Outbound, strip, strip_credentials};
use crate::connector::{RequestBody, access::Access, target::Target};
use base::fairness::ClientKey;

/// Sends every client's requests with the gateway's own credentials: for `trusted` mode. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AsGateway {
    connections: Arc<Connections>,
    impersonates: bool,
}

const LIMITS: Limits = Limits { requests: "upstream_forwarded_requests", upgrades: "upstream_upgrades" };

impl AsGateway {
    pub(in crate::connector) fn new(access: &Access, target: Target, impersonates: bool) -> Self {
        Self { connections: Connections::new(access, target, LIMITS), impersonates }
    }

    /// Whether few more watches of that client would get a place.
    pub fn is_scarce_for(&self, client: Option<ClientKey>) -> bool {
        self.connections.are_scarce_for(client)
    }

    /// The request with the gateway's credentials in place of its own. Impersonate-* is passed on.
    ///
    /// # Errors
    /// The gateway's credentials impersonate a user, and so does the request.
    pub fn outbound(&self, mut request: Request<RequestBody>) -> Result<Outbound, IdentityError> {
        if self.impersonates && strip::impersonates(request.headers()) {
            return Err(IdentityError::Impersonation);
        }
        strip_credentials(request.headers_mut());
        Ok(self.connections.outbound(request))
    }
}
