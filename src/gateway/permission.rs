//! Turns credentials into permission to read from memory.

use std::{net::IpAddr, sync::Arc};

use tokio::time::Instant;

use super::record::Record;
use crate::{
    apimachinery::UserInfo,
    authn::{Authenticator, Credentials, Unauthenticated, client_of},
    authz::{Attributes, Authorizer, Permit},
    fairness::ClientKey,
    serve::ForwardReason,
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
    pub(super) fn name(&self, credentials: &Credentials, record: &mut Record) {
        if record.user().is_none()
            && let Some(Ok(user)) = self.authenticator.known(credentials, record.came())
        {
            record.asked_by(&user);
        }
    }

    /// Permission to answer from memory the read that the attributes describe: a verdict known at `at`, or a new review
    /// for a client at `address`. `seen` is called with the request's user, whether or not permission is given.
    /// `is_hopeless` returns why memory will not answer in any case, if so: then no review is sent, because upstream
    /// authorizes the forwarded read itself.
    pub(super) async fn grant(
        &self,
        credentials: &Credentials,
        address: Option<IpAddr>,
        attributes: impl FnOnce() -> Attributes,
        (at, seen): (Instant, impl FnOnce(&Arc<UserInfo>)),
        is_hopeless: impl Fn() -> Option<ForwardReason>,
    ) -> Result<Granted, ForwardReason> {
        if matches!(credentials, Credentials::Gateway { impersonates: false }) {
            return Ok(Granted { permit: self.authorizer.authorize_gateway(attributes())?, user: None, counted: None });
        }
        let may_ask = || is_hopeless().map_or(Ok(()), Err);
        let (user, now) = match self.authenticator.known(credentials, at) {
            Some(user) => (user, at),
            None => {
                may_ask()?;
                (self.authenticator.user(credentials, address).await, Instant::now())
            }
        };
        let (user, attributes) = (user.map_err(reason)?, attributes());
        seen(&user);
        let counted = client_of(&user, address);
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
        Unauthenticated::Nobody | Unauthenticated::Rejected => ForwardReason::Unauthenticated,
        Unauthenticated::Unavailable => ForwardReason::NoVerdict,
    }
}
