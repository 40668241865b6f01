//! Takes over a forwarded watch from memory, in mid-stream.
//!
//! While upstream's answer is relayed, the versions that the client has received are tracked ([`Told`]). Once a cache's
//! history goes back to the last one, and the cache has reached it, the client is authorized again, the upstream watch
//! is dropped, and the same stream continues from memory after that version. The client notices nothing.

use std::{
    ops::Range,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body::Frame;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    account::Asked,
    context::RequestContext,
    filling,
    permission::Granted,
    relayed::Relayed,
    route::{self, ReadOptions, ReadVerb, Route},
    served::Served,
    stages::Stages,
};
use crate::{
    cacher::{Instance, WantedVersion},
    connector,
    serve::{self, ForwardReason, Read, Told},
};
use base::{
    apimachinery::{
        IncludeObject, Representation, ResourceVersion, ResponseKind, Target, Verb, WatchOptions, WatchStart,
    },
    fairness::{ClientKey, ClientRoom, Importance, Room},
};

/// How often a cache that could not be filled, or lags, is checked, and whether events can be logged again; for what
/// many watches wait for, on average.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a takeover that is ready may wait for its client.
const READY_FOR: Duration = Duration::from_secs(10);
/// How many seconds later a client that could not be reviewed, for its request or for a takeover, is reviewed again. At
/// random, since after a cold start many watches of one user are ready at once, and may be more than the reviews that
/// it may have.
const REVIEW_AGAIN: Range<u64> = 60..300;
/// How long to wait for events from upstream before asking whether there were none.
const QUIET: Duration = Duration::from_secs(2);

/// The headers that an answer from memory, and its event in the audit log, depend on.
const NEEDED: [HeaderName; 4] =
    [header::USER_AGENT, header::VIA, HeaderName::from_static("x-forwarded-for"), HeaderName::from_static("x-real-ip")];
/// Bytes of these, of the request's target and of its credentials that nearly all watches stay within.
const USUAL_BYTES: usize = 4 << 10;

/// A forwarded watch that memory may take over.
#[derive(Debug)]
pub(super) struct Candidate {
    stages: Arc<Stages>,
    /// Of the request, what memory needs ([`NEEDED`]): a copy, since the head's bytes are part of the connection's
    /// buffer, which lives as long as any of them is held.
    request: Request<()>,
    context: RequestContext,
    /// The one that the forwarded request counts for; `None` if clients are not told apart.
    client: Option<ClientKey>,
    room: ClientRoom,
    /// For the audit log: when the request was received, with [`Self::request`].
    asked: Asked,
    /// For a copy that is longer than usual.
    _room: Room,
    options: WatchOptions,
    /// The representations that the client accepts, best first.
    representations: Vec<Representation>,
    /// The version up to which the client has received everything, if there is one.
    told: watch::Sender<Option<ResourceVersion>>,
    /// When the first takeover is tried.
    not_before: Instant,
}

/// Upstream's answer to a candidate.
#[derive(Debug)]
pub(super) enum Forwarded {
    Relayed(Relayed),
    Followed(Box<Followed>),
}

/// Upstream's answer to a candidate, until memory takes over.
#[derive(Debug)]
pub(super) struct Followed {
    upstream: Relayed,
    /// `None` once it is given up: what it holds is released, however long the watch goes on.
    takeover: Option<Takeover>,
}

/// What is needed to take over a watch that is relayed.
#[derive(Debug)]
struct Takeover {
    told: Told,
    candidate: Arc<Candidate>,
    representation: Representation,
    audit_id: String,
    attempt: Attempt,
}

/// The next part of a followed watch.
#[derive(Debug)]
pub(super) enum Next {
    Upstream(Option<Result<Frame<Bytes>, hyper::Error>>),
    /// The rest of the watch.
    Memory(Served),
}

/// The state of the takeover.
enum Attempt {
    /// Memory could not go on after this version; a later one may work.
    Tried(Option<ResourceVersion>),
    Running(oneshot::Receiver<Result<Box<Ready>, NotNow>>),
    Ready(Box<Ready>),
}

/// Everything that memory needs to go on with the watch.
#[derive(Debug)]
struct Ready {
    /// Weak, because a client that reads nothing may leave it unused for long: a cache that has been stopped or filled
    /// again meanwhile must not be kept for it.
    instance: Weak<Instance>,
    /// The version that the client had received.
    told: ResourceVersion,
    /// A client that has received nothing since [`Self::told`] has the state at this version.
    behind: ResourceVersion,
    granted: Granted,
    /// When the client was authorized.
    at: Instant,
}

/// Why an attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotNow {
    /// History does not go back to the version that the client has received.
    NotCovered(ResourceVersion),
    /// Memory may not or cannot answer this client, or this resource: the watch stays with upstream.
    Never,
}

impl Candidate {
    /// Keeps what a later takeover needs of a request that is forwarded for reason `why`; `None` unless it is a watch
    /// that memory may answer later.
    pub(super) fn of<B>(
        why: ForwardReason,
        request: &Request<B>,
        stages: &Arc<Stages>,
        context: &RequestContext,
        asked: &Asked,
        client: Option<ClientKey>,
    ) -> Option<Box<Self>> {
        if !may_pass(why) || context.info.verb != Verb::Watch {
            return None;
        }
        let route = route::decide(request, &context.info, &stages.cachers.excluded()).ok()?;
        let Route { options: ReadOptions::Watch(options), representations, .. } = route else { return None };
        let room = stages.room.of(client);
        let (head, bytes) = needed(request)?;
        let (credentials, asked) = (context.credentials.detached()?, asked.copied(&head));
        // Without room, the watch stays with upstream.
        let held = room.keep((bytes + credentials.own_bytes()).saturating_sub(USUAL_BYTES))?;
        let (uri, importance) = (head.uri().clone(), Importance::Low);
        let context = RequestContext { uri, credentials, importance, ..context.clone() };
        // A review has failed just now.
        let not_before = Instant::now() + if is_for_want_of_a_review(why) { review_pause() } else { Duration::ZERO };
        let (stages, told) = (stages.clone(), watch::Sender::default());
        Some(Box::new(Self {
            stages,
            request: head,
            context,
            client,
            room,
            asked,
            _room: held,
            options,
            representations,
            told,
            not_before,
        }))
    }

    /// Follows upstream's answer, if it is the stream that memory would send.
    pub(super) fn follow(self: Box<Self>, answer: Response<Relayed>) -> Response<Forwarded> {
        let Some((representation, told)) = self.reader(&answer) else { return answer.map(Forwarded::Relayed) };
        let audit_id = serve::new_audit_id(answer.headers().get(serve::AUDIT_ID).cloned());
        let (candidate, audit_id) = (Arc::new(*self), audit_id.to_str().unwrap_or_default().to_owned());
        let attempt = Attempt::Tried(None);
        let takeover = Some(Takeover { told, candidate, representation, audit_id, attempt });
        answer.map(|upstream| Forwarded::Followed(Box::new(Followed { upstream, takeover })))
    }

    fn reader(&self, answer: &Response<Relayed>) -> Option<(Representation, Told)> {
        let headers = answer.headers();
        if answer.status() != StatusCode::OK
            || [header::CONTENT_ENCODING, header::CONTENT_LENGTH].iter().any(|name| headers.contains_key(name))
        {
            return None;
        }
        let content_type = headers.get(header::CONTENT_TYPE)?;
        let sent = |representation: &&Representation| content_type == representation.content_type(ResponseKind::Watch);
        let representation = *self.representations.iter().find(sent)?;
        Some((representation, Told::new(representation.encoding, &self.options, self.room.clone())))
    }

    /// Whether the watch continues from that version.
    fn continues_from(&self, version: ResourceVersion) -> bool {
        self.options.start == WatchStart::After(version)
    }

    /// The version up to which the client has received everything by now.
    fn told(&self) -> Option<ResourceVersion> {
        *self.told.borrow()
    }

    /// Runs the attempt in its own task: a body is not polled while its client reads nothing, and the attempt
    /// holds places that other requests wait for. Ends with the receiver.
    fn begin(self: Arc<Self>, representation: Representation) -> oneshot::Receiver<Result<Box<Ready>, NotNow>> {
        let (mut sender, receiver) = oneshot::channel();
        let tasks = self.stages.tasks.clone();
        let draining = tasks.token().clone();
        tasks.spawn("takeover", async move {
            let tried = tokio::select! {
                () = sender.closed() => return,
                () = draining.cancelled() => return,
                tried = self.attempt(representation) => tried,
            };
            // The client may have gone just now.
            drop(sender.send(tried));
        });
        receiver
    }

    /// Waits for a cache whose history goes back to the version that the client has received, and that has come as far,
    /// and for a verdict on the client.
    async fn attempt(self: Arc<Self>, representation: Representation) -> Result<Box<Ready>, NotNow> {
        let Self { stages, context, .. } = &*self;
        let Target::Resource(target) = &context.info.target else { return Err(NotNow::Never) };
        sleep_until(self.not_before).await;
        loop {
            // Before the version of a quiet resource is asked for, for which there might be no use.
            while !stages.permission.has_room(context, target) {
                sleep(review_pause()).await;
            }
            let (instance, told, behind) = self.instance(representation).await?;
            // Many may have waited for the same.
            let granted = match stages.permission.has_room(context, target) {
                true => stages.permission.grant(context, target, Instant::now(), None, || None).await,
                false => Err(ForwardReason::TooManyReviews),
            };
            let granted = match granted {
                Ok(granted) => granted,
                Err(why) if is_for_want_of_a_review(why) => {
                    drop(instance);
                    sleep(review_pause()).await;
                    continue;
                }
                Err(_) => return Err(NotNow::Never),
            };
            // Upstream may answer paths that memory does not.
            instance.view(&granted.permit, Verb::Watch).map_err(|_| NotNow::Never)?;
            return Ok(Box::new(Ready {
                instance: Arc::downgrade(&instance),
                told,
                behind,
                granted,
                at: Instant::now(),
            }));
        }
    }

    /// The cache, the version that the client has received, and the version to continue after: the same one, or a later
    /// one if nothing happened in between.
    async fn instance(
        &self,
        representation: Representation,
    ) -> Result<(Arc<Instance>, ResourceVersion, ResourceVersion), NotNow> {
        let Target::Resource(target) = &self.context.info.target else { return Err(NotNow::Never) };
        let Stages { cachers, accounts, .. } = &*self.stages;
        loop {
            // Memory would not answer, so the client is not reviewed either.
            if accounts.can_log().is_err() {
                sleep(look_pause()).await;
                continue;
            }
            // A reload of the configuration may have excluded the resource meanwhile.
            if cachers.excluded().contains(&target.resource.group_resource()) {
                return Err(NotNow::Never);
            }
            let instance = match filling::find(cachers, target, &[representation], None).await {
                Ok((instance, _)) if !instance.refuses_watches() => instance,
                Err(ForwardReason::CacheFilling) => {
                    cachers.fill_ended(&target.resource, representation.encoding, LOOK_EVERY).await;
                    continue;
                }
                // Upstream answers the watch, so discovery will find the resource. Until then it is not asked more
                // often than for other requests.
                Ok(_)
                | Err(ForwardReason::FillFailed | ForwardReason::Undiscovered | ForwardReason::UnknownResource) => {
                    sleep(look_pause()).await;
                    continue;
                }
                Err(_) => return Err(NotNow::Never),
            };
            // The client may have received more meanwhile.
            let told = self.told().ok_or(NotNow::Never)?;
            let behind = self.behind(&instance, told).await?;
            if !instance.reaches_back_to(behind) {
                continue;
            }
            // A cache that lags would delay what the client now gets from upstream. But the cache of a quiet resource
            // may never be known to have reached the version with which a client came (1.20), and would serve a new
            // watch from there all the same.
            let is_reached = timeout(LOOK_EVERY, instance.reached(behind)).await.is_ok();
            if is_reached || (self.told() == Some(behind) && self.continues_from(behind)) {
                return Ok((instance, told, behind));
            }
        }
    }

    /// The version from which memory can go on, which history covers unless the client has received more meanwhile.
    async fn behind(&self, instance: &Instance, told: ResourceVersion) -> Result<ResourceVersion, NotNow> {
        let wanted = instance.want(told, self.client);
        if instance.reaches_back_to(told) || self.is_extended_to(&wanted, instance, told).await {
            return Ok(told);
        }
        self.after_quiet(instance, told, &wanted).await
    }

    /// Whether history is made to begin early enough. False once the client has received more: history may cover that.
    async fn is_extended_to(&self, wanted: &WantedVersion<'_>, instance: &Instance, told: ResourceVersion) -> bool {
        let mut heard = self.told.subscribe();
        tokio::select! {
            is_extended = instance.is_extended_to(wanted) => is_extended,
            _ = heard.wait_for(|heard| *heard != Some(told)) => false,
        }
    }

    /// The version up to which nothing has happened since `told`, which history does not cover; or another one that the
    /// client has received meanwhile.
    async fn after_quiet(
        &self,
        instance: &Instance,
        told: ResourceVersion,
        wanted: &WantedVersion<'_>,
    ) -> Result<ResourceVersion, NotNow> {
        let mut heard = self.told.subscribe();
        // A client that receives something in the meantime need not wait any longer: history may cover that version.
        drop(timeout(QUIET, heard.wait_for(|heard| *heard != Some(told))).await);
        drop(heard);
        let is_still_told = || self.told() == Some(told);
        let quiet = if is_still_told() { instance.quiet_since(told).await } else { None };
        // Nothing happened up to that version, so the store need not have come as far.
        let behind = quiet.map(|quiet| quiet.min(instance.progress()).max(told));
        match behind {
            Some(behind) if instance.reaches_back_to(behind) => Ok(behind),
            _ if !is_still_told() => self.told().ok_or(NotNow::Never),
            _ if self.is_extended_to(wanted, instance, told).await => Ok(told),
            _ => Err(NotNow::NotCovered(told)),
        }
    }

    /// The rest of the watch, after what the client has received.
    fn continue_watch(
        &self,
        ready: Ready,
        representation: Representation,
        audit_id: &str,
        told: ResourceVersion,
    ) -> Option<Served> {
        let Ready { instance, behind, granted: Granted { permit, user, counted }, .. } = ready;
        let instance = instance.upgrade()?;
        let Target::Resource(request) = &self.context.info.target else { return None };
        let headers = self.request.headers();
        let metrics = instance.metrics.clone();
        let client = self.stages.journal.client(headers.get(header::USER_AGENT), user.as_deref());
        let read = Read {
            request,
            headers,
            instance,
            representation,
            include_object: IncludeObject::Metadata,
            client,
            for_gateway: connector::comes_from_gateway(headers),
            room: self.stages.room.of(counted),
            turns: self.stages.turns.of(counted),
            proofs: self.stages.accounts.proofs(counted),
            config: self.stages.settings.reads(),
        };
        let body = match serve::continue_watch(&read, &self.options, permit, told.max(behind), self.context.received) {
            Ok(body) => body,
            Err(why) => {
                tracing::debug!(reason = why.as_str(), "forwarded watch not taken over");
                return None;
            }
        };
        // Without a place, or without immediate room in the audit log, the watch stays with upstream.
        let reserved = self.stages.accounts.reserve(ReadVerb::Watch, None, counted).ok()?;
        let account = self.stages.accounts.open(reserved).now_or_never()?.ok()?;
        let room = read.room.keep(body.own_bytes() + self.asked.unusual_bytes())?;
        metrics.watch_taken_over();
        let in_flight =
            account.answered(&self.asked, &self.context.info, user.as_ref(), audit_id, StatusCode::OK.as_u16());
        Some(Served::new(body, read.turns, in_flight, room))
    }
}

/// A copy of the parts of a head that memory needs, and its size in bytes.
fn needed<B>(request: &Request<B>) -> Option<(Request<()>, usize)> {
    let mut head = Request::new(());
    *head.uri_mut() = Uri::try_from(request.uri().to_string()).ok()?;
    let mut bytes = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    for name in NEEDED {
        for value in request.headers().get_all(&name) {
            bytes += value.len();
            head.headers_mut().append(&name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
        }
    }
    Some((head, bytes))
}

/// Whether a watch that is forwarded for this reason could come from memory later.
fn may_pass(why: ForwardReason) -> bool {
    is_for_want_of_a_review(why)
        || matches!(
            why,
            ForwardReason::CacheFilling
                | ForwardReason::FillFailed
                | ForwardReason::Undiscovered
                | ForwardReason::UnknownResource
                | ForwardReason::BeforeFill
                | ForwardReason::OutsideHistory
                | ForwardReason::NotReached
                | ForwardReason::NoBookmark
                | ForwardReason::Unproven
                | ForwardReason::Stale
        )
}

/// Whether upstream was not asked, or has not said, who the client is and what it may read.
fn is_for_want_of_a_review(why: ForwardReason) -> bool {
    matches!(why, ForwardReason::TooManyReviews | ForwardReason::NoVerdict)
}

/// The time until the next look at what must change first. At random, so that many watches that wait for the same do
/// not look all at once.
fn look_pause() -> Duration {
    LOOK_EVERY.mul_f64(0.5 + fastrand::f64())
}

/// The time until the next review, after one that failed.
fn review_pause() -> Duration {
    Duration::from_secs(fastrand::u64(REVIEW_AGAIN))
}

impl Ready {
    /// Whether a client that has received everything up to `told` may go on after [`Self::behind`]. In between it may
    /// have received an object that is gone there.
    fn is_for(&self, told: ResourceVersion) -> bool {
        told == self.told || told >= self.behind
    }

    /// Whether the client read nothing for a while, so that its permission or the cache may be gone.
    fn is_old(&self) -> bool {
        self.at.elapsed() > READY_FOR || self.instance.strong_count() == 0
    }
}

impl Followed {
    /// The next part of the stream, from upstream or from memory.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        if let Some(rest) = self.takeover.as_mut().and_then(|takeover| takeover.poll(context)) {
            return Poll::Ready(Next::Memory(rest));
        }
        self.release();
        let frame = ready!(self.upstream.poll_frame(context));
        if let Some(takeover) = &mut self.takeover
            && let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            takeover.told.push(bytes);
        }
        self.release();
        Poll::Ready(Next::Upstream(frame))
    }

    /// Drops what a takeover needs once it is given up.
    fn release(&mut self) {
        self.takeover.take_if(|takeover| takeover.told.is_over());
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.upstream.is_end_stream()
    }
}

impl Takeover {
    /// The rest of the watch, if memory can go on with it now. Takes over only between two events.
    fn poll(&mut self, context: &mut Context<'_>) -> Option<Served> {
        loop {
            let told = self.told.version()?;
            self.candidate.told.send_if_modified(|before| before.replace(told) != Some(told));
            self.attempt = match std::mem::replace(&mut self.attempt, Attempt::Tried(Some(told))) {
                Attempt::Tried(before) if before == Some(told) => return None,
                Attempt::Tried(_) => Attempt::Running(self.candidate.clone().begin(self.representation)),
                Attempt::Running(mut attempt) => match attempt.poll_unpin(context) {
                    Poll::Pending => {
                        self.attempt = Attempt::Running(attempt);
                        return None;
                    }
                    Poll::Ready(Ok(Ok(ready))) => Attempt::Ready(ready),
                    Poll::Ready(Ok(Err(NotNow::NotCovered(version)))) => Attempt::Tried(Some(version)),
                    // Never, or the gateway is draining.
                    Poll::Ready(Ok(Err(NotNow::Never)) | Err(_)) => {
                        self.told.give_up();
                        return None;
                    }
                },
                Attempt::Ready(ready) if ready.is_old() || !ready.is_for(told) => Attempt::Tried(None),
                Attempt::Ready(ready) => {
                    match self.candidate.continue_watch(*ready, self.representation, &self.audit_id, told) {
                        Some(rest) => return Some(rest),
                        None => Attempt::Tried(Some(told)),
                    }
                }
            };
        }
    }
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tried(version) => formatter.debug_tuple("Tried").field(version).finish(),
            Self::Running(_) => formatter.write_str("Running"),
            Self::Ready(ready) => formatter.debug_tuple("Ready").field(ready).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_that_wait_for_the_same_do_not_look_all_at_once() {
        let pauses: Vec<_> = (0..1000).map(|_| look_pause()).collect();
        let in_quarter = |quarter: u32| {
            let from = LOOK_EVERY / 2 + LOOK_EVERY / 4 * quarter;
            pauses.iter().filter(|pause| (from..=from + LOOK_EVERY / 4).contains(*pause)).count()
        };
        let quarters = [0, 1, 2, 3].map(in_quarter);
        assert!(quarters.iter().all(|count| *count > 0) && quarters.iter().sum::<usize>() >= 1000, "{quarters:?}");
    }
}
