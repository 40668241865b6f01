//! Issues permits.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    attributes::{Attributes, Name},
    lease::Lease,
    review::{Asked, Question},
    verdicts::{Config, NotPermitted, Verdicts},
};
use crate::upstream::Upstream;
use base::{
    apimachinery::{GroupVersionResource, ObjectKey, UserInfo, Verb},
    fairness::ClientKey,
    lifecycle::Tasks,
};
use engine::store::Scope;

/// Permission to read from memory once, and only what it was issued for. Only this module creates permits, and
/// [`crate::serve`] reaches a store only through [`Permit::scope`]; code that forgets to authorize, or reads more than
/// was authorized, does not compile.
#[derive(Debug)]
pub struct Permit(Basis);

#[derive(Debug)]
enum Basis {
    /// The client acts with the gateway's own credentials.
    Gateway(Attributes),
    /// Upstream allowed the request.
    Review(Arc<Verdicts>, Arc<Question>),
}

/// The permit was issued for something else, or the path is not valid for this resource: an object of a namespaced
/// resource without a namespace, or a cluster-scoped one with a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the permit does not cover this request")]
pub struct NotCovered;

impl Permit {
    /// The scope of `resource` that may be read by `verb`: exactly what was authorized.
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

    /// The lease to check periodically during a read that goes on. `None` if the permit cannot be revoked.
    pub fn into_lease(self) -> Option<Lease> {
        match self.0 {
            Basis::Gateway(_) => None,
            Basis::Review(verdicts, question) => Some(Lease::new(verdicts, question)),
        }
    }
}

/// Authorizes requests. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Authorizer {
    /// `None` in `trusted` mode.
    verdicts: Option<Arc<Verdicts>>,
}

impl Authorizer {
    /// Permits only requests that use the gateway's own credentials.
    pub fn trusted() -> Self {
        Self { verdicts: None }
    }

    /// Permits what `reviewer` allows the user, and nothing under the gateway's own credentials, which no client has in
    /// this mode.
    pub fn delegated(config: Config, reviewer: Upstream, tasks: Tasks) -> Self {
        Self { verdicts: Some(Arc::new(Verdicts::new(config, reviewer, tasks))) }
    }

    /// A permit for a request that uses the gateway's own credentials: the caches hold what these may read.
    ///
    /// # Errors
    /// Always denied in `delegated` mode.
    pub fn authorize_gateway(&self, attributes: Attributes) -> Result<Permit, NotPermitted> {
        if self.verdicts.is_some() { Err(NotPermitted::Denied) } else { Ok(Permit(Basis::Gateway(attributes))) }
    }

    /// The verdict on the user's request as far as it is known at `now`. `None` if upstream has to be asked:
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
        let verdict = verdicts.known(&Asked { user, attributes, storage: verdicts.storage() }, now)?;
        Some(verdict.map(|question| Permit(Basis::Review(verdicts.clone(), question))))
    }

    /// As [`Self::known`], but asks upstream if no verdict is known. The review is accounted to `client`, whose reviews
    /// in flight are limited.
    ///
    /// # Errors
    /// Upstream refuses, or has not answered, or (in `trusted` mode, or beyond the client's share) is not asked.
    pub async fn authorize(
        &self,
        user: Arc<UserInfo>,
        attributes: Attributes,
        client: ClientKey,
    ) -> Result<Permit, NotPermitted> {
        let verdicts = self.verdicts.as_ref().ok_or(NotPermitted::NoVerdict)?;
        let question = Question { user, attributes, storage: verdicts.storage() };
        let question = verdicts.on(Arc::new(question), client).await?;
        Ok(Permit(Basis::Review(verdicts.clone(), question)))
    }
}
