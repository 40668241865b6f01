//! Who gives permits, and to whom.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    attributes::{Attributes, Name},
    lease::Lease,
    review::{Asked, Question},
    verdicts::{Config, NotPermitted, Verdicts},
};
use crate::{
    apimachinery::{GroupVersionResource, ObjectKey, UserInfo, Verb},
    fairness::ClientKey,
    lifecycle::Tasks,
    store::Scope,
    upstream::Upstream,
};

/// Leave to read one thing from memory, once. Only this module makes one, and what it was given for is all that it opens:
/// [`crate::serve`] gets at a store only through [`Permit::scope`], so that neither forgetting to authorize nor reading more
/// than was authorized compiles.
#[derive(Debug)]
pub struct Permit(Basis);

#[derive(Debug)]
enum Basis {
    /// The client acts as the gateway itself.
    Gateway(Attributes),
    /// Upstream allowed it.
    Review(Arc<Verdicts>, Arc<Question>),
}

/// The permit was given for something else, or the path names nothing of this resource: an object of a namespaced resource
/// without its namespace, or a namespace of a cluster-scoped one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the permit does not cover this")]
pub struct NotCovered;

impl Permit {
    /// What may be read of `resource` by `verb`: what was authorized, and nothing else.
    pub fn scope(&self, verb: Verb, resource: &GroupVersionResource, namespaced: bool) -> Result<Scope, NotCovered> {
        let attributes = match &self.0 {
            Basis::Gateway(attributes) => attributes,
            Basis::Review(_, question) => &question.attributes,
        };
        let is_read = matches!(verb, Verb::Get | Verb::List | Verb::Watch) && attributes.subresource.is_none();
        if !is_read || attributes.verb != verb || attributes.resource != *resource {
            return Err(NotCovered);
        }
        match (namespaced, attributes.namespace.as_deref(), &attributes.name) {
            (true, Some(namespace), None) => Ok(Scope::Namespace(namespace.into())),
            (true, Some(namespace), Some(Name::Path(name) | Name::Selector(name))) => {
                Ok(Scope::Object(ObjectKey::new(Some(namespace), name)))
            }
            (true, None, Some(Name::Selector(name))) => Ok(Scope::Named((&**name).into())),
            (false, None, Some(Name::Path(name) | Name::Selector(name))) => {
                Ok(Scope::Object(ObjectKey::new(None, name)))
            }
            (_, None, None) => Ok(Scope::Everything),
            // The API server has no such path.
            (true, None, Some(Name::Path(_))) | (false, Some(_), _) => Err(NotCovered),
        }
    }

    /// For a read that goes on: what it has to look at from time to time. `None` where nothing is ever revoked.
    pub fn into_lease(self) -> Option<Lease> {
        match self.0 {
            Basis::Gateway(_) => None,
            Basis::Review(verdicts, question) => Some(Lease::new(verdicts, question)),
        }
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
    pub fn authorize_gateway(&self, attributes: Attributes) -> Result<Permit, NotPermitted> {
        if self.verdicts.is_some() { Err(NotPermitted::Denied) } else { Ok(Permit(Basis::Gateway(attributes))) }
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
        Some(verdict.map(|question| Permit(Basis::Review(verdicts.clone(), question))))
    }

    /// The same, with what upstream says where it is not known. Asking counts for `client`, who may have so many questions under way.
    ///
    /// # Errors
    /// Upstream refuses, or has not said, or (in `trusted` mode, or beyond the client's share) is not asked.
    pub async fn authorize(
        &self,
        user: Arc<UserInfo>,
        attributes: Attributes,
        client: ClientKey,
    ) -> Result<Permit, NotPermitted> {
        let verdicts = self.verdicts.as_ref().ok_or(NotPermitted::NoVerdict)?;
        let question = verdicts.on(Arc::new(Question { user, attributes }), client).await?;
        Ok(Permit(Basis::Review(verdicts.clone(), question)))
    }
}
