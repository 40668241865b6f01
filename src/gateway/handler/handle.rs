//! The request path, in one place.

use std::{net::IpAddr, sync::Arc, time::Duration};

use http::{HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::{
    Body,
    accounting::{Accounting, Asked},
    body::{Inner, Served},
    cache_lookup,
    cors::AllowedOrigin,
    host_check::HostCheck,
    kept_discovery::{AskedDiscovery, KeptDiscovery},
    peer,
    permission::{Granted, Permission},
    refusal::{Refusal, Unserved},
    relayed::Relayed,
    request_record::{Journal, RequestRecord},
    respond::{self, Rejection},
    resumption::Resumption,
    route::{self, ReadOptions, ReadVerb},
    settings::Settings,
};
use crate::{
    authn::{Authenticator, CostClass, Credentials, Requester},
    authz::{Attributes, Authorizer},
    cacher::Cachers,
    connector,
    forward::{Forward, ForwardError},
    listener::{self, Connection, Handler, LongRunning},
    serve::{self, Downstream, ForwardReason, Read, ReadConcurrency, Unanswered},
    traces::Stage,
    upstream::Introduction,
};
use base::{
    apimachinery::{
        InvalidShardSelector, Query, RequestInfo, ResourceRequest, ShardSelector, Target, Verb, WatchOptions,
    },
    config::Shards,
    fairness::ByteBudget,
    telemetry::Outcome,
};

/// How long a watch that has data for its client may stay unread. By then history no longer holds that data (with the
/// default `cache.history.age`), so the watch would end anyway. Other streams, such as a log in a pager, may stay
/// unread.
const UNREAD_WATCH_MAX: Duration = Duration::from_secs(300);

/// The reason for which discovery is answered from memory.
const UPSTREAM_AWAY: &str = "upstream_away";

/// Answers every request, from memory or from upstream. Cheap to clone: each request has a clone.
#[derive(Clone, Debug)]
pub struct Gateway(Arc<Stages>);

/// How clients are admitted, authenticated, authorized and forwarded: all four for the same mode; and what is kept of
/// the answers that they get.
#[derive(Clone, Debug)]
pub struct Clients {
    pub host_check: HostCheck,
    pub authenticator: Authenticator,
    pub authorizer: Authorizer,
    pub forward: Forward,
    pub discovery: KeptDiscovery,
}

/// The stages that a request goes through.
#[derive(Debug)]
pub(super) struct Stages {
    pub(super) host_check: HostCheck,
    pub(super) permission: Permission,
    pub(super) accounts: Accounting,
    pub(super) room: ByteBudget,
    pub(super) turns: ReadConcurrency,
    pub(super) cachers: Cachers,
    pub(super) forward: Forward,
    pub(super) discovery: KeptDiscovery,
    pub(super) settings: Settings,
    pub(super) journal: Journal,
}

/// A request that was admitted. Stays the same on its way through the stages.
#[derive(Clone, Debug)]
pub(super) struct RequestContext {
    pub(super) uri: Uri,
    pub(super) info: RequestInfo,
    /// The request's own, removed from its headers.
    pub(super) credentials: Credentials,
    /// The client's address; `None` on a Unix socket.
    pub(super) peer: Option<IpAddr>,
    pub(super) received: Instant,
}

impl Gateway {
    /// Accepts the requests that the `host_check` of `clients` allows. Answers those of permitted clients from
    /// `cachers` where it can, and forwards the others. Finished requests are reported to `journal`.
    pub fn new(
        clients: Clients,
        accounts: Accounting,
        room: ByteBudget,
        cachers: Cachers,
        settings: Settings,
        journal: Journal,
    ) -> Self {
        let Clients { host_check, authenticator, authorizer, forward, discovery } = clients;
        let permission = Permission { authenticator, authorizer };
        let turns = ReadConcurrency::default();
        Self(Arc::new(Stages {
            host_check,
            permission,
            accounts,
            room,
            turns,
            cachers,
            forward,
            discovery,
            settings,
            journal,
        }))
    }
}

impl RequestContext {
    pub(super) fn query(&self) -> Option<&str> {
        self.uri.query()
    }

    /// What the request's user needs permission for, to read `target`.
    pub(super) fn attributes(&self, target: &ResourceRequest) -> Attributes {
        Attributes::of(self.info.verb, target, self.query())
    }
}

impl Stages {
    /// The first stage: refuses what no other stage may look at. Returns the web page that sent the request, if it was
    /// one that the configuration names.
    fn admit<B>(
        &self,
        request: &Request<B>,
        info: &RequestInfo,
        connection: &Connection,
    ) -> Result<Option<AllowedOrigin>, Refusal> {
        listener::check_well_formed(request).map_err(Refusal::Malformed)?;
        self.refuse_own(request.headers())?;
        self.refuse_sharded_delete(request.uri().query(), info)?;
        self.host_check.check(request, info, connection)
    }

    /// Answers from memory, if the answer is certain to be what upstream would have given.
    async fn serve(
        &self,
        request: &Request<Incoming>,
        context: &RequestContext,
        record: &mut RequestRecord,
        asked: &Asked,
    ) -> Result<Response<Inner>, Unserved> {
        let route = route::decide(request, &context.info, &self.cachers.excluded())?;
        self.accounts.can_log()?;
        let (target, verb) = (route.target, route.options.verb());
        let config = self.settings.reads().of_shards(route.options.is_sharded());
        let downstream = Downstream::of(request.headers());
        let unanswerable = || route::unanswerable(&route, downstream, config.most_recent, &self.cachers);
        let grant = async |record: &mut RequestRecord, known_at| {
            record.enter(Stage::Authorize);
            self.permission.grant(context, target, known_at, Some(record), unanswerable).await
        };
        // Authorized before a wait, because a wait takes one of the client's places for watches.
        let mut granted = grant(record, context.received).await?;
        let found = cache_lookup::find(&self.cachers, route.wanted(), None).await;
        let (found, share) = match self.why_wait(&found, &route.options, granted.counted) {
            Some(why) => {
                record.enter(Stage::Wait);
                // Boxed, so that requests that need not wait do not carry its size.
                let waited = Box::pin(self.wait(why, &route, config, context, granted.counted)).await?;
                // Authorized again, because permission may have been revoked meanwhile. A verdict that is still cached
                // costs no review.
                granted = grant(record, Instant::now()).await?;
                waited
            }
            None => (found?, None),
        };
        let (Granted { permit, user, counted }, (instance, representation)) = (granted, found);
        record.enter(Stage::Serve);
        let reserved = self.accounts.reserve(verb, share, counted)?;
        let client = record.client().clone();
        let (headers, include_object) = (request.headers(), route.include_object);
        let (room, turns, proofs) = (self.room.of(counted), self.turns.of(counted), self.accounts.proofs(counted));
        let read = Read {
            request: target,
            headers,
            instance,
            representation,
            include_object,
            client,
            downstream,
            room,
            turns,
            proofs,
            config,
        };
        let answer = match &route.options {
            ReadOptions::Get(options) => serve::get(&read, options, permit).await,
            ReadOptions::List(options) => serve::list(&read, options, permit).await,
            // Boxed: its future is five times as large as the others, and every request would carry that size.
            ReadOptions::Watch(options) => {
                Box::pin(serve::watch(&read, options, permit)).await.map_err(Unanswered::from)
            }
        }?;
        let own_bytes = answer.body().own_bytes();
        let room = match verb {
            ReadVerb::Get | ReadVerb::List => read.room.take(own_bytes),
            ReadVerb::Watch => read.room.keep(own_bytes + asked.unusual_bytes()),
        }
        .ok_or(Refusal::TooManyBytes)?;
        let account = self.accounts.open(reserved).await?;
        let (audit_id, code) = (serve::audit_id(&answer), answer.status().as_u16());
        let in_flight = account.answered(asked, &context.info, user.as_ref(), audit_id, code);
        Ok(answer.map(|body| Inner::Served(Served::new(body, read.turns, in_flight, room))))
    }

    /// Answers with upstream's response, for the reason `why`.
    async fn forward(
        self: &Arc<Self>,
        why: ForwardReason,
        mut request: Request<Incoming>,
        context: &RequestContext,
        connection: &Connection,
        mut record: RequestRecord,
        asked: Asked,
    ) -> Response<Body> {
        let RequestContext { info, credentials, peer, .. } = context;
        let is_watch = info.verb == Verb::Watch;
        let requester = self.permission.authenticator.requester(credentials, connection);
        let cost = if why == ForwardReason::TooManyReviews {
            CostClass::Unreviewed
        } else if why == ForwardReason::CostlySelector || request.uri().query().is_some_and(route::has_many_commas) {
            CostClass::Costly
        } else {
            CostClass::Usual
        };
        let requester = Requester { cost, ..requester };
        let asked_discovery = match self.discovery.asked(&request, credentials, &self.permission.authenticator) {
            Some(asked) => Some(Box::pin(asked.joined()).await),
            None => None,
        };
        let room = self.room.of(requester.client);
        let unconfirmed = asked_discovery.as_ref().and_then(|asked| asked.unconfirmed(request.headers_mut(), &room));
        let resumption = Resumption::of(why, &request, self, context, requester.client);
        self.trace_forward(&mut request, context, &mut record);
        let comes_from_gateway = connector::comes_from_gateway(request.headers());
        let answer = self.forward.send(request, credentials, requester, is_watch).await;
        if let Some(refusal) = self.lacks_shards(&answer, context, why) {
            return self.reject(respond::refusal(refusal), asked, info, record);
        }
        let is_away = answer.as_ref().is_err_and(ForwardError::is_away);
        if is_away
            && let Some(kept) = asked_discovery.as_ref().and_then(AskedDiscovery::kept)
            && self.permission.is_valid(credentials, *peer).await
        {
            return Body::answer(record, Outcome::Served, Some(UPSTREAM_AWAY), kept.map(Inner::Rejected));
        }
        match answer {
            Ok(mut answer) => {
                if !comes_from_gateway {
                    answer.headers_mut().remove(connector::WRITTEN_BY);
                }
                self.permission.authenticator.learn(credentials, *peer, answer.status());
                let confirmed = unconfirmed.and_then(|unconfirmed| unconfirmed.confirmed(&answer));
                let relayed = match is_watch {
                    true => Relayed::watch(answer, &connection.draining, self.cachers.spread(), resumption),
                    false => Relayed::whole(answer, asked_discovery),
                };
                let answer = match confirmed {
                    Some(confirmed) => confirmed.map(Inner::Rejected),
                    None => relayed.map(Inner::Forwarded),
                };
                Body::answer(record, Outcome::Forwarded, Some(why.as_str()), answer)
            }
            Err(error) => {
                self.permission.name(context, &mut record);
                let begins =
                    || WatchOptions::parse(context.query(), false).is_ok_and(|it| it.asked_send_initial_events);
                let mut answer = self.reject(respond::error(&error, is_watch && !begins()), asked, info, record);
                if comes_from_gateway && error.is_gone() {
                    connector::tell_gone(answer.headers_mut());
                }
                answer
            }
        }
    }

    /// Whether the query has a `shardSelector` that is to count whatever upstream makes of it, or the query cannot be
    /// parsed: then upstream skips a part of it, and may find one in the rest. `None` if not.
    fn own_shards(&self, query: Option<&str>) -> Option<Result<(), InvalidShardSelector>> {
        if self.settings.reads().shards != Shards::Always {
            return None;
        }
        let Ok(query) = Query::parse(query) else { return Some(Ok(())) };
        query.text("shardSelector").map(|shards| ShardSelector::parse(shards).map(drop))
    }

    /// Refuses a delete of shards where upstream has none: it would delete the whole collection.
    fn refuse_sharded_delete(&self, query: Option<&str>, info: &RequestInfo) -> Result<(), Refusal> {
        let is_unclear = info.verb == Verb::Delete && info.target == Target::Ambiguous;
        let deletes = info.verb == Verb::DeleteCollection || is_unclear;
        if deletes && self.own_shards(query).is_some() { Err(Refusal::ShardedDelete) } else { Ok(()) }
    }

    /// Why upstream's answer is not the one to the request: it ignores the `shardSelector`, and the configuration wants
    /// it to count. Errors of upstream are answers.
    fn lacks_shards<B, E>(
        &self,
        answer: &Result<Response<B>, E>,
        context: &RequestContext,
        why: ForwardReason,
    ) -> Option<Refusal> {
        let RequestInfo { verb, target } = &context.info;
        let is_unclear = *verb == Verb::Get && *target == Target::Ambiguous;
        let selects = matches!(verb, Verb::List | Verb::Watch) || is_unclear;
        let status = answer.as_ref().ok()?.status();
        let is_success = status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS;
        match self.own_shards(context.query()).filter(|_| selects && is_success)? {
            Ok(()) => Some(Refusal::NoShards(why)),
            Err(invalid) => Some(Refusal::InvalidShards(invalid)),
        }
    }

    /// Runs before the request is sent, because it depends on the user whether the client's trace continues upstream.
    fn trace_forward<B>(&self, request: &mut Request<B>, context: &RequestContext, record: &mut RequestRecord) {
        if record.tells_user() {
            self.permission.name(context, record);
        }
        record.forward(request.headers_mut());
    }

    /// Answers with an error of the gateway itself.
    fn reject(
        &self,
        rejection: Rejection,
        asked: Asked,
        info: &RequestInfo,
        mut record: RequestRecord,
    ) -> Response<Body> {
        let Rejection { status, reason, is_usual } = rejection;
        if is_usual {
            record.omit_from_log();
        }
        let audit_id = self.accounts.refuse(asked, info, record.user(), &status);
        let answer = respond::response(&status, audit_id).map(Inner::Rejected);
        Body::answer(record, Outcome::Rejected, Some(reason), answer)
    }
}

impl Handler for Gateway {
    type Body = Body;

    /// When the client disconnects, this future is dropped: reads end, forwarded requests are cancelled upstream.
    async fn handle(&self, mut request: Request<Incoming>, connection: &Connection) -> Response<Body> {
        let Self(stages) = self;
        let uri = request.uri().clone();
        let info = RequestInfo::parse(request.method(), uri.path(), uri.query());
        let peer = connection.peer.map(|peer| peer.ip());
        let mut record = stages.journal.record(&request, &info, peer);
        let asked = stages.accounts.asked(&request, peer);
        let page = match stages.admit(&request, &info, connection) {
            Ok(page) => page,
            Err(refusal) => {
                let mut answer = stages.reject(respond::refusal(refusal), asked, &info, record);
                // On HTTP/1 it may be ambiguous where the refused request ends, and so where the next one begins.
                if request.version() < Version::HTTP_2 {
                    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                return answer;
            }
        };
        if let Some(leave) = page.as_ref().and_then(|page| page.leave(&request)) {
            return Body::answer(record, Outcome::Served, None, leave.map(Inner::Rejected));
        }
        if Introduction::is_asked(&request)
            && let Some(introduction) = Box::pin(stages.cachers.upstream().introduction()).await
        {
            let answer = introduction.answer(stages.cachers.upstream(), connection.draining.is_cancelled());
            return Body::answer(record, Outcome::Served, None, answer.map(Inner::Rejected));
        }
        let certificate = connection.client_certificate.as_deref();
        let credentials = stages.permission.authenticator.credentials(request.headers_mut(), certificate);
        let context = RequestContext { uri, info, credentials, peer, received: record.received() };

        let peer_headers = stages.peer_headers(request.headers());
        let mut served = match peer::is_asking(request.headers()) {
            // Boxed: it is rare.
            true => Box::pin(stages.serve_peer(&request, &context, &mut record, &asked)).await.map_err(Unserved::from),
            false => stages.serve(&request, &context, &mut record, &asked).await,
        };
        if stages.waits_after_all(&served, &context, connection) {
            served = Box::pin(stages.serve(&request, &context, &mut record, &asked)).await;
        }
        let peer_headers = peer_headers.map(|headers| headers.of(&served));
        let mut answer = match served {
            Ok(answer) => Body::answer(record, Outcome::Served, None, answer),
            Err(Unserved::Refuse(refusal)) => stages.reject(respond::refusal(refusal), asked, &context.info, record),
            // Boxed, so that requests answered from memory do not carry its size.
            Err(Unserved::Forward(why)) => {
                Box::pin(stages.forward(why, request, &context, connection, record, asked)).await
            }
        };
        if let Some(peer_headers) = peer_headers {
            peer_headers.write(answer.headers_mut());
        }
        // An error is not long-running, even in answer to a watch.
        let is_success = answer.status().is_success() || answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        if context.info.is_long_running() && is_success {
            let unread_max = (context.info.verb == Verb::Watch).then_some(UNREAD_WATCH_MAX);
            answer.extensions_mut().insert(LongRunning { unread_max });
        }
        if let Some(page) = page {
            page.may_read(answer.headers_mut());
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In bytes. Every request copies its future into a box: at 17,000 bytes that was a fifth of a get's instructions.
    const FUTURE_MAX: usize = 6144;

    fn size_of_future<A, B, C, F>(_: impl FnOnce(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_future_of_a_request_is_small() {
        let handle =
            |gateway: &'static Gateway, request, connection: &'static Connection| gateway.handle(request, connection);
        let size = size_of_future(handle);
        assert!(size <= FUTURE_MAX, "{size} bytes, at most {FUTURE_MAX} are allowed: box the futures that seldom run");
    }
}
