//! From credentials to leave to read from memory.

use std::sync::Arc;

use crate::{
    authn::{Authenticator, Credentials, Unauthenticated, UserInfo},
    authz::{Attributes, Authorizer, Permit},
    serve::ForwardReason,
};

/// Says who may read what. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Permission {
    pub(super) authenticator: Authenticator,
    pub(super) authorizer: Authorizer,
}

/// Leave, and whose.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) permit: Permit,
    /// None for whoever acts as the gateway itself.
    pub(super) user: Option<Arc<UserInfo>>,
}

impl Permission {
    /// Leave to answer from memory what the attributes say. `is_hopeless` is true of what memory will not answer anyway: upstream
    /// is not asked twice about it.
    pub(super) async fn grant(
        &self,
        credentials: &Credentials,
        attributes: impl FnOnce() -> Attributes,
        is_hopeless: impl FnOnce() -> bool,
    ) -> Result<Granted, ForwardReason> {
        if credentials.impersonates() {
            return Err(ForwardReason::Impersonated);
        }
        if matches!(credentials, Credentials::Gateway { .. }) {
            return Ok(Granted { permit: self.authorizer.authorize_gateway()?, user: None });
        }
        if is_hopeless() {
            return Err(ForwardReason::MostRecent);
        }
        let user = self.authenticator.user(credentials).await.map_err(reason)?;
        let permit = self.authorizer.authorize(user.clone(), attributes()).await?;
        Ok(Granted { permit, user: Some(user) })
    }
}

fn reason(why: Unauthenticated) -> ForwardReason {
    match why {
        Unauthenticated::Impersonates => ForwardReason::Impersonated,
        Unauthenticated::Nobody | Unauthenticated::Rejected => ForwardReason::Unauthenticated,
        Unauthenticated::Unavailable => ForwardReason::NoVerdict,
    }
}
