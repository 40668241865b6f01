//! Who gives permits, and to whom.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    attributes::Attributes,
    lease::Lease,
    review::{Asked, Question},
    verdicts::{Config, NotPermitted, Verdicts},
};
use crate::{apimachinery::UserInfo, lifecycle::Tasks, upstream::Upstream};

/// Leave to read from memory, once. Only this module makes one; [`crate::serve`] consumes it, so that
/// forgetting to authorize does not compile.
#[derive(Debug)]
pub struct Permit {
    /// `None` for whoever acts as the gateway itself.
    granted: Option<(Arc<Verdicts>, Arc<Question>)>,
}

impl Permit {
    /// For a read that goes on: what it has to look at from time to time. `None` where nothing is ever revoked.
    pub fn into_lease(self) -> Option<Lease> {
        self.granted.map(|(verdicts, question)| Lease::new(verdicts, question))
    }
}

/// Gives permits. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Authorizer {
    /// `None` in `trusted` mode.
    verdicts: Option<Arc<Verdicts>>,
}

impl Authorizer {
    /// Permits whoever acts as the gateway itself, and nobody else.
    pub fn trusted() -> Self {
        Self { verdicts: None }
    }

    /// Permits those of whom `reviewer` says that they may, and never the gateway itself: no client acts as that.
    pub fn delegated(config: Config, reviewer: Upstream, tasks: Tasks) -> Self {
        Self { verdicts: Some(Arc::new(Verdicts::new(config, reviewer, tasks))) }
    }

    /// Leave for whoever acts as the gateway itself: the caches hold what its credentials may read.
    ///
    /// # Errors
    /// Nobody does in `delegated` mode.
    pub fn authorize_gateway(&self) -> Result<Permit, NotPermitted> {
        if self.verdicts.is_some() { Err(NotPermitted::Denied) } else { Ok(Permit { granted: None }) }
    }

    /// Leave for a user to do what the attributes say, as far as that is known at `now`. `None` if upstream has to be asked:
    /// [`Self::authorize`].
    ///
    /// # Errors
    /// Upstream refuses, or (in `trusted` mode) is not asked.
    pub fn known(
        &self,
        user: &Arc<UserInfo>,
        attributes: &Attributes,
        now: Instant,
    ) -> Option<Result<Permit, NotPermitted>> {
        let Some(verdicts) = &self.verdicts else { return Some(Err(NotPermitted::NoVerdict)) };
        let verdict = verdicts.known(&Asked { user, attributes }, now)?;
        Some(verdict.map(|question| Permit { granted: Some((verdicts.clone(), question)) }))
    }

    /// The same, with what upstream says where it is not known.
    ///
    /// # Errors
    /// Upstream refuses, or has not said, or (in `trusted` mode) is not asked.
    pub async fn authorize(&self, user: Arc<UserInfo>, attributes: Attributes) -> Result<Permit, NotPermitted> {
        let verdicts = self.verdicts.as_ref().ok_or(NotPermitted::NoVerdict)?;
        let question = verdicts.on(Arc::new(Question { user, attributes })).await?;
        Ok(Permit { granted: Some((verdicts.clone(), question)) })
    }
}
