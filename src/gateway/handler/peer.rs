//! Answers other gateways of the cluster, which ask for a state instead of upstream: from memory or not at all.
//!
//! Such a question is never forwarded and never starts a cache or waits for one, so no question causes another.

use http::{HeaderMap, HeaderValue, Request, Response};

use super::{
    accounting::Asked,
    body::{Inner, Served},
    cache_lookup,
    handle::{RequestContext, Stages},
    permission::Granted,
    refusal::{Refusal, Unserved},
    request_record::RequestRecord,
    route::{self, ReadOptions, ReadVerb, Route},
};
use crate::{
    connector,
    serve::{self, Downstream, ForwardReason, Read},
    traces::Stage,
};
use base::apimachinery::{ElectionRank, PEER};

/// Whether another gateway asks for an answer from memory, and for no other.
pub(super) fn is_asking(headers: &HeaderMap) -> bool {
    headers.contains_key(PEER)
}

/// The headers that only answers to peers have.
#[derive(Debug)]
pub(super) struct PeerHeaders {
    /// The name of this gateway.
    name: HeaderValue,
    /// The lowest rank that this gateway knows of; `None` unless it is about to have the state.
    rank: Option<ElectionRank>,
}

impl PeerHeaders {
    /// Adds the rank, if the answer is that this gateway is about to have the state.
    pub(super) fn of<T>(self, answered: &Result<T, Unserved>) -> Self {
        let rank = if let Err(Unserved::Refuse(Refusal::NotYetInMemory(rank))) = answered { Some(*rank) } else { None };
        Self { rank, ..self }
    }

    /// Shows the peer that the answer comes from a gateway that gives states. A 503 without these headers comes from
    /// something else.
    pub(super) fn write(self, headers: &mut HeaderMap) {
        headers.insert(PEER, self.name);
        if let Some(rank) = self.rank {
            rank.write(headers);
        }
    }
}

impl Stages {
    /// The headers that the answer to a peer's question has. `None` for any other request, and if this gateway gives no
    /// states, because it has no `cache.peers` itself.
    pub(super) fn peer_headers(&self, headers: &HeaderMap) -> Option<PeerHeaders> {
        if !is_asking(headers) {
            return None;
        }
        self.cachers.peers().map(|peers| PeerHeaders { name: peers.name(), rank: None })
    }

    /// Refuses requests that this gateway has sent itself.
    pub(super) fn refuse_own(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        match is_asking(headers) {
            // Its `Via` does not matter, since it goes no further.
            true if self.cachers.peers().is_some_and(|peers| peers.are_asked_with(headers)) => {
                Err(Refusal::OwnQuestion)
            }
            true => Ok(()),
            false if connector::has_passed(headers) => Err(Refusal::Loop),
            false if connector::has_passed_too_many(headers) => Err(Refusal::TooManyGateways),
            false => Ok(()),
        }
    }

    /// Answers a peer from memory. The reason why it is not answered is only logged: that a resource is in memory is
    /// not for everyone to know.
    pub(super) async fn serve_peer<B>(
        &self,
        request: &Request<B>,
        context: &RequestContext,
        record: &mut RequestRecord,
        asked: &Asked,
    ) -> Result<Response<Inner>, Refusal> {
        let answered = self.answer_peer(request, context, record, asked).await;
        answered.map_err(|why| match why {
            Unserved::Refuse(refusal) => refusal,
            Unserved::Forward(why) => {
                tracing::debug!(path = context.uri.path(), reason = why.as_str(), "a peer gets no state");
                Refusal::NotInMemory
            }
        })
    }

    async fn answer_peer<B>(
        &self,
        request: &Request<B>,
        context: &RequestContext,
        record: &mut RequestRecord,
        asked: &Asked,
    ) -> Result<Response<Inner>, Unserved> {
        let route = route::decide(request, &context.info, &self.cachers.excluded())?;
        let Route { options: ReadOptions::List(options), target, include_object, .. } = &route else {
            return Err(ForwardReason::Representation.into());
        };
        self.accounts.can_log()?;
        let held = || cache_lookup::held(&self.cachers, &route);
        let rank = || cache_lookup::rank(&self.cachers, &route);
        // No review is sent for a cache that is not there.
        let unanswerable = || (held().is_none() && rank().is_none()).then_some(ForwardReason::CacheFilling);
        record.enter(Stage::Authorize);
        let granted = self.permission.grant(context, target, context.received, Some(record), unanswerable).await?;
        let Granted { permit, user, counted } = granted;
        let Some((instance, representation)) = held() else {
            return Err(rank().map_or(ForwardReason::CacheFilling.into(), |rank| Refusal::NotYetInMemory(rank).into()));
        };
        // Known of kept states, too, which only peers are told.
        let provenance = instance.provenance().filter(|_| self.cachers.peers().is_some()).cloned();
        let provenance = provenance.ok_or(ForwardReason::Unproven)?;
        record.enter(Stage::Serve);
        let reserved = self.accounts.reserve(ReadVerb::List, None, counted)?;
        let read = Read {
            request: target,
            headers: request.headers(),
            instance,
            representation,
            include_object: *include_object,
            client: record.client().clone(),
            // Answered from memory or not at all: nothing is asked upstream for it.
            downstream: Downstream::Client,
            room: self.room.of(counted),
            turns: self.turns.of(counted),
            proofs: self.accounts.proofs(counted),
            config: self.settings.reads(),
        };
        let mut answer = serve::list(&read, options, permit).await?;
        if !provenance.write(answer.headers_mut()) {
            return Err(ForwardReason::Unproven.into());
        }
        let room = read.room.take(answer.body().own_bytes()).ok_or(Refusal::TooManyBytes)?;
        let account = self.accounts.open(reserved).await?;
        let (audit_id, code) = (serve::audit_id(&answer), answer.status().as_u16());
        let in_flight = account.answered(asked, &context.info, user.as_ref(), audit_id, code);
        Ok(answer.map(|body| Inner::Served(Served::new(body, read.turns, in_flight, room))))
    }
}
