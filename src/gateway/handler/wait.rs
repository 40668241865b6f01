//! Reads that wait for memory: for a fill, and watches that upstream has no room for, for what happened before it.

use std::sync::Arc;

use super::{
    cache_lookup,
    handle::{RequestContext, Stages},
    refusal::{Refusal, Unserved},
    route::{ReadOptions, ReadVerb, Route},
};
use crate::{
    cacher::{Instance, Resumed},
    listener::Connection,
    serve::ForwardReason,
};
use base::{
    apimachinery::{Representation, Verb},
    config::ReadsConfig,
    fairness::{ClientKey, Share},
};

/// The store that a read finds, or why there is none.
type Found = Result<(Arc<Instance>, Representation), ForwardReason>;

/// The store that a read has waited for, and the place among its client's watches that the read took meanwhile.
pub(super) type Waited = ((Arc<Instance>, Representation), Option<Share>);

impl Stages {
    /// Why the read has to wait, if it may: the reason for which it is forwarded otherwise.
    pub(super) fn why_wait(
        &self,
        found: &Found,
        options: &ReadOptions,
        client: Option<ClientKey>,
    ) -> Option<ForwardReason> {
        match found {
            Err(ForwardReason::CacheFilling) => Some(ForwardReason::CacheFilling),
            Err(_) => None,
            Ok((instance, _)) => {
                let version = cache_lookup::resumed_from(options)?;
                let waits = instance.is_before_history(version) && self.forward.is_scarce_for(client);
                waits.then_some(ForwardReason::BeforeFill)
            }
        }
    }

    /// Whether a watch that was to be forwarded has to wait after all: since it was found that memory cannot serve it,
    /// others of those that came at once may have taken the places upstream.
    pub(super) fn waits_after_all<T>(
        &self,
        served: &Result<T, Unserved>,
        context: &RequestContext,
        connection: &Connection,
    ) -> bool {
        let may_wait =
            matches!(served, Err(Unserved::Forward(ForwardReason::CacheFilling | ForwardReason::BeforeFill)));
        let client = || self.permission.authenticator.requester(&context.credentials, connection).client;
        may_wait && context.info.verb == Verb::Watch && self.forward.is_scarce_for(client())
    }

    /// Waits for the current fill, if this read may wait, and for the history that a resumed watch needs. The wait
    /// takes one of the client's places for watches.
    pub(super) async fn wait(
        &self,
        why: ForwardReason,
        route: &Route<'_>,
        config: ReadsConfig,
        context: &RequestContext,
        client: Option<ClientKey>,
    ) -> Result<Waited, Unserved> {
        let options = &route.options;
        let resumed = || cache_lookup::wait_resumed(options, config).filter(|_| self.forward.is_scarce_for(client));
        let limit = context.received + cache_lookup::wait(options, config).or_else(resumed).ok_or(why)?;
        let _waiting = self.accounts.wait(client).map_err(|_| why)?;
        let share = match self.accounts.take(client) {
            Err(_) if options.verb() != ReadVerb::Watch => return Err(why.into()),
            taken => taken?,
        };
        let (instance, representation) = match cache_lookup::find(&self.cachers, route.wanted(), Some(limit)).await {
            Err(ForwardReason::Draining) if options.verb() == ReadVerb::Watch => {
                return Err(Refusal::Draining.into());
            }
            found => found?,
        };
        if let Some(version) = cache_lookup::resumed_from(options)
            && instance.is_before_history(version)
            && self.cachers.resumed(&instance, version, client, limit).await == Resumed::Draining
        {
            return Err(Refusal::Draining.into());
        }
        Ok(((instance, representation), share))
    }
}
