//! The identity under which a request is forwarded.

use http::Request;

use super::ForwardError;
use crate::authn::Credentials;
use crate::connector::{AsClient, AsFrontProxy, AsGateway, AsImpersonator, Outbound, RequestBody};
use base::fairness::ClientKey;

/// How users that the gateway has verified are named to upstream.
#[derive(Clone, Debug)]
pub enum Assertion {
    FrontProxy(AsFrontProxy),
    Impersonation(AsImpersonator),
}

/// Only `trusted` mode holds an `AsGateway`: in `delegated` mode nothing here can send as the gateway.
#[derive(Clone, Debug)]
pub(super) enum Identity {
    Trusted(AsGateway),
    Delegated { client: AsClient, assertion: Option<Assertion> },
}

impl Identity {
    /// Whether few more watches of that client would get a place, under one of its identities.
    pub(super) fn is_scarce_for(&self, counted: Option<ClientKey>) -> bool {
        match self {
            Self::Trusted(gateway) => gateway.is_scarce_for(counted),
            Self::Delegated { client, assertion } => {
                client.is_scarce_for(counted)
                    || match assertion {
                        None => false,
                        Some(Assertion::FrontProxy(proxy)) => proxy.is_scarce_for(counted),
                        Some(Assertion::Impersonation(impersonator)) => impersonator.is_scarce_for(counted),
                    }
            }
        }
    }

    /// Puts the identity that `credentials` stand for on a request.
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
                Ok(client.unidentified(request, authorization.clone()))
            }
            (Self::Delegated { client, .. }, Credentials::Subprotocol { .. }) => Ok(client.with_subprotocol(request)),
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
                | Credentials::Subprotocol { .. }
                | Credentials::Refused,
            ) => return Err(ForwardError::NoIdentity),
        };
        outbound.map_err(ForwardError::Identity)
    }
}
