//! When a forwarded watch may end so that its client resumes it from memory.
//!
//! A watch that is forwarded because its cache was not ready would cost upstream a watch for as long as it lasts. Once
//! memory can go on from the version that the client has reached, the relayed stream ends, between two events, as the
//! API server ends its own every few minutes; the client comes back with that version.

use std::{
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::FutureExt;
use http::Request;
use tokio::time::{Instant, Sleep, sleep};

use super::{
    cache_lookup::{self, Wanted},
    handle::{RequestContext, Stages},
    route::{self, ReadOptions, Route},
};
use crate::{
    connector,
    serve::{ForwardReason, RelayedPosition},
};
use base::{
    apimachinery::{FieldSelector, Representation, ResourceRequest, ResourceVersion, Verb, WatchOptions, WatchStart},
    fairness::ClientKey,
};

/// When, in milliseconds, to look next whether memory can go on. At random, so that many watches that wait for the same
/// cache do not all come back at once; and not at the start, since clients take a watch that ends within a second, and
/// has had no event, for an error.
const LOOK_AFTER: Range<u64> = 5_000..10_000;
/// When to look first if the watch was forwarded although its cache was filled, or there may be none. Memory might
/// refuse it again, for a reason that this look does not see.
const LOOK_LATER: Range<u64> = 60_000..120_000;

/// What memory needs to go on with a watch that is relayed.
#[derive(Debug)]
pub(super) struct Resumption {
    stages: Arc<Stages>,
    target: ResourceRequest,
    fields: FieldSelector,
    start: WatchStart,
    /// Whether a bookmark ends the initial events.
    initial_events_end: bool,
    /// The representations that the client accepts, best first.
    representations: Vec<Representation>,
    /// The one that the resumed watch will count for; `None` if clients are not told apart.
    client: Option<ClientKey>,
    look: Pin<Box<Sleep>>,
}

impl Resumption {
    /// Of a request that is forwarded for reason `why`; `None` unless it is a watch that memory may answer later.
    pub(super) fn of<B>(
        why: ForwardReason,
        request: &Request<B>,
        stages: &Arc<Stages>,
        context: &RequestContext,
        client: Option<ClientKey>,
    ) -> Option<Self> {
        // Another gateway may have been refused for a gap in history, which this does not see.
        if context.info.verb != Verb::Watch || connector::comes_from_gateway(request.headers()) {
            return None;
        }
        let first = first_look(why)?;
        let route = route::decide(request, &context.info, &stages.cachers.excluded()).ok()?;
        let Route { target, options: ReadOptions::Watch(options), representations, .. } = route else { return None };
        // What accepts bookmarks is made to resume, as informers are. Others may take any end for the last one.
        if !options.bookmarks {
            return None;
        }
        let look = Box::pin(sleep(random(first)));
        let WatchOptions { fields, start, initial_events_end, .. } = options;
        let (stages, target) = (stages.clone(), target.clone());
        Some(Self { stages, target, fields, start, initial_events_end, representations, client, look })
    }

    /// The position of the watch before any event, with the versions that [`Self::poll`] needs.
    pub(super) fn followed(&self, position: RelayedPosition) -> RelayedPosition {
        position.with_versions(self.start, self.initial_events_end)
    }

    /// Ready when memory can go on after `version`, which the client has reached; counts the watch as ended for that.
    /// Pending while there is no such version.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, version: Option<ResourceVersion>) -> Poll<()> {
        while self.look.as_mut().poll(context).is_ready() {
            if version.is_some_and(|version| self.is_possible(version)) {
                return Poll::Ready(());
            }
            self.look.as_mut().reset(Instant::now() + random(LOOK_AFTER));
        }
        Poll::Pending
    }

    /// Whether memory would answer the watch from that version now. Starts the cache if it is not there.
    fn is_possible(&self, version: ResourceVersion) -> bool {
        let Self { stages, target, fields, representations, client, .. } = self;
        if stages.cachers.excluded().contains(&target.resource.group_resource()) || stages.accounts.can_log().is_err() {
            return false;
        }
        // Without a limit it waits for nothing.
        let wanted = Wanted { target, fields: Some(fields), representations };
        let found = cache_lookup::find(&stages.cachers, wanted, None).now_or_never();
        let Some(Ok((instance, _))) = found else { return false };
        let is_possible = !instance.refuses_watches()
            && instance.reaches_back_to(version)
            // A cache that lags would delay what the client now gets from upstream.
            && instance.progress() >= version
            && stages.accounts.take(*client).is_ok();
        if is_possible {
            instance.metrics.relayed_watch_ended();
        }
        is_possible
    }
}

/// When to look first whether memory can go on with a watch that was forwarded for this reason; `None` if the reason
/// does not lie in the cache, or is to stay.
fn first_look(why: ForwardReason) -> Option<Range<u64>> {
    let is_for_want_of_a_cache = matches!(
        why,
        ForwardReason::CacheFilling
            | ForwardReason::FillFailed
            | ForwardReason::Undiscovered
            | ForwardReason::UnknownResource
            | ForwardReason::BeforeFill
            | ForwardReason::OutsideHistory
    );
    let is_for_want_of_proof = matches!(
        why,
        ForwardReason::NotReached | ForwardReason::NoBookmark | ForwardReason::Unproven | ForwardReason::Stale
    );
    let is_for_want_of_room = matches!(
        why,
        ForwardReason::GatewayForbidden
            | ForwardReason::TooManyScopes
            | ForwardReason::SingleObject
            | ForwardReason::MemoryFull
    );
    if is_for_want_of_a_cache {
        return Some(LOOK_AFTER);
    }
    (is_for_want_of_proof || is_for_want_of_room).then_some(LOOK_LATER)
}

fn random(milliseconds: Range<u64>) -> Duration {
    Duration::from_millis(fastrand::u64(milliseconds))
}
