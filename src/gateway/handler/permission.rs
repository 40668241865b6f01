//! Turns credentials into permission to read from memory.

use std::{net::IpAddr, sync::Arc};

use tokio::time::Instant;

use super::{handle::RequestContext, request_record::RequestRecord};
use crate::{
    authn::{Authenticator, Credentials, Unauthenticated, client_of},
    authz::{Authorizer, Permit},
    serve::ForwardReason,
};
use base::{
    apimachinery::{ResourceRequest, UserInfo},
    fairness::ClientKey,
};

/// Decides which client may read what. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Permission {
    pub(super) authenticator: Authenticator,
    pub(super) authorizer: Authorizer,
}

/// A permission, and the user that has it.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) permit: Permit,
    /// `None` for a client that acts as the gateway itself.
    pub(super) user: Option<Arc<UserInfo>>,
    /// The client that the request counts for; `None` if clients are not told apart.
    pub(super) counted: Option<ClientKey>,
}

impl Permission {
    /// Passes the user of a request to `record`, as far as the user is known without a review.
    pub(super) fn name(&self, context: &RequestContext, record: &mut RequestRecord) {
        if record.user().is_none()
            && let Some(Ok(user)) = self.authenticator.known(&context.credentials, context.received)
        {
            record.asked_by(&user);
        }
    }

    /// Whether a client acts as the gateway, or its user is known or can be asked for.
    pub(super) async fn is_valid(&self, credentials: &Credentials, peer: Option<IpAddr>) -> bool {
        matches!(credentials, Credentials::Gateway { .. }) || self.authenticator.user(credentials, peer).await.is_ok()
    }

    /// Permission to answer a read of `target` from memory: a verdict that was known at `known_at`, or a new review.
    /// The request's user is passed to `record`, whether or not permission is given. `unanswerable` returns the reason
    /// if memory will not answer in any case; then no review is sent, because upstream authorizes the forwarded read
    /// itself.
    pub(super) async fn grant(
        &self,
        context: &RequestContext,
        target: &ResourceRequest,
        known_at: Instant,
        record: Option<&mut RequestRecord>,
        unanswerable: impl Fn() -> Option<ForwardReason>,
    ) -> Result<Granted, ForwardReason> {
        let RequestContext { credentials, peer, .. } = context;
        if matches!(credentials, Credentials::Gateway { impersonates: false }) {
            let permit = self.authorizer.authorize_gateway(context.attributes(target))?;
            return Ok(Granted { permit, user: None, counted: None });
        }
        let may_ask = || unanswerable().map_or(Ok(()), Err);
        let (user, now) = match self.authenticator.known(credentials, known_at) {
            Some(user) => (user, known_at),
            None => {
                may_ask()?;
                (self.authenticator.user(credentials, *peer).await, Instant::now())
            }
        };
        let user = user.map_err(reason)?;
        if let Some(record) = record {
            record.asked_by(&user);
        }
        let (attributes, counted) = (context.attributes(target), client_of(&user, *peer));
        let permit = match self.authorizer.known(&user, &attributes, now) {
            Some(permit) => permit,
            None => {
                may_ask()?;
                self.authorizer.authorize(user.clone(), attributes, counted).await
            }
        };
        Ok(Granted { permit: permit?, user: Some(user), counted: Some(counted) })
    }
}

fn reason(why: Unauthenticated) -> ForwardReason {
    match why {
        Unauthenticated::Impersonates => ForwardReason::Impersonated,
        Unauthenticated::NoCredentials | Unauthenticated::Rejected => ForwardReason::Unauthenticated,
        Unauthenticated::Unavailable => ForwardReason::NoVerdict,
    }
}
