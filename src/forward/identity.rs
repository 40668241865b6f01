//! As whom a request is forwarded.

use http::Request;

use super::ForwardError;
use crate::authn::Credentials;
use crate::upstream::{AsClient, AsFrontProxy, AsGateway, AsImpersonator, Outbound, RequestBody};

/// How upstream is told of users who were verified here.
#[derive(Clone, Debug)]
pub enum Assertion {
    FrontProxy(AsFrontProxy),
    Impersonation(AsImpersonator),
}

/// Holds what can send as the gateway only in `trusted` mode.
#[derive(Clone, Debug)]
pub(super) enum Identity {
    Trusted(AsGateway),
    Delegated { client: AsClient, assertion: Option<Assertion> },
}

impl Identity {
    /// The request as one of whom the credentials are of.
    pub(super) fn put_on(
        &self,
        request: Request<RequestBody>,
        credentials: &Credentials,
    ) -> Result<Outbound, ForwardError> {
        let outbound = match (self, credentials) {
            (Self::Trusted(gateway), Credentials::Gateway { .. }) => gateway.outbound(request),
            (Self::Delegated { client, .. }, Credentials::Bearer { token, .. }) => {
                Ok(client.outbound(request, token.authorization().clone(), token.key()))
            }
            (Self::Delegated { client, .. }, Credentials::Passed { authorization, .. }) => {
                Ok(client.nobody(request, authorization.clone()))
            }
            (Self::Delegated { client, .. }, Credentials::Refused) => Ok(client.refused(request)),
            (Self::Delegated { assertion: Some(assertion), .. }, Credentials::Verified { user, .. }) => match assertion
            {
                Assertion::FrontProxy(proxy) => proxy.outbound(request, user),
                Assertion::Impersonation(impersonator) => impersonator.outbound(request, user),
            },
            (Self::Delegated { assertion: None, .. }, Credentials::Verified { .. })
            | (Self::Delegated { .. }, Credentials::Gateway { .. })
            | (
                Self::Trusted(_),
                Credentials::Verified { .. }
                | Credentials::Bearer { .. }
                | Credentials::Passed { .. }
                | Credentials::Refused,
            ) => return Err(ForwardError::NoIdentity),
        };
        outbound.map_err(ForwardError::Identity)
    }
}
