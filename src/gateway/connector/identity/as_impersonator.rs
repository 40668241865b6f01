//! Clients that the gateway has verified and impersonates to upstream.

use std::sync::Arc;

use http::Request;

use super::{Connections, IdentityError, Limits, Outbound, strip, strip_credentials, user_headers};
use crate::connector::{RequestBody, access::Access, target::Target};
use base::apimachinery::UserInfo;
use base::fairness::ClientKey;

/// Sends requests with the gateway's own credentials and a verified user in Impersonate-*, never without. Cheap to
/// clone.
///
/// The credentials need the verb `impersonate` on users and groups, and on uids and userextras in
/// authentication.k8s.io, for users that have any.
#[derive(Clone, Debug)]
pub struct AsImpersonator {
    connections: Arc<Connections>,
}

const LIMITS: Limits =
    Limits { requests: "upstream_impersonated_requests", upgrades: "upstream_impersonated_upgrades" };

impl AsImpersonator {
    /// `access` must not impersonate a user itself.
    pub(in crate::connector) fn new(access: &Access, target: Target) -> Self {
        Self { connections: Connections::new(access, target, LIMITS) }
    }

    /// Whether few more watches of that client would get a place.
    pub fn is_scarce_for(&self, client: Option<ClientKey>) -> bool {
        self.connections.are_scarce_for(client)
    }

    /// The request under the user's identity, without any other credentials.
    ///
    /// # Errors
    /// The request impersonates a user itself, or the user cannot be expressed exactly.
    pub fn outbound(&self, mut request: Request<RequestBody>, user: &UserInfo) -> Result<Outbound, IdentityError> {
        if strip::impersonates(request.headers()) {
            return Err(IdentityError::Impersonation);
        }
        let impersonated = user_headers::impersonation(user)?;
        strip_credentials(request.headers_mut());
        user_headers::add(request.headers_mut(), impersonated)?;
        Ok(self.connections.outbound(request))
    }
}
