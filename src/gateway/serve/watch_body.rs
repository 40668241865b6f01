//! A watch as a body.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{
    authz::{Lease, LeaseState},
    cacher::Instance,
};
use engine::fanout::{EndCause, Session, Step};

/// The stream of one watch: a session, polled by the connection it is written to.
pub struct WatchBody {
    session: Session,
    instance: Arc<Instance>,
    timer: Pin<Box<Sleep>>,
    /// `None` for permission that cannot be revoked.
    lease: Option<Lease>,
    /// After which a bookmark is sent, whether memory could be proven or not. `None` if there is nothing to wait for.
    proof: Option<BoxFuture<'static, bool>>,
    cause: EndCause,
    /// Whether there is more to look through for events.
    is_working: bool,
}

impl WatchBody {
    pub(super) fn new(session: Session, instance: Arc<Instance>, lease: Option<Lease>) -> Self {
        instance.metrics.watch_started();
        let timer = Box::pin(sleep_until(Instant::now()));
        Self { session, instance, timer, lease, proof: None, cause: EndCause::ClientGone, is_working: false }
    }

    /// Sends one bookmark only, once memory was found to be as recent as upstream, or could not be.
    pub(super) fn with_proof(mut self) -> Self {
        let instance = self.instance.clone();
        self.session.send_bookmarks_on_demand();
        self.proof = Some(Box::pin(async move { instance.prove_most_recent().await.is_ok() }));
        self
    }

    /// Bytes that the watch holds for itself while it is open.
    pub(super) fn own_bytes(&self) -> usize {
        self.session.own_bytes() + self.lease.as_ref().map_or(0, Lease::own_bytes)
    }

    /// Whether the next call of [`Self::poll_next`] looks through more of a state or a history without events so far.
    pub(super) fn is_working(&self) -> bool {
        self.is_working
    }

    /// The next bytes; `None` at the end.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.is_working = false;
        loop {
            let now = Instant::now();
            let review_at = match self.lease.as_mut().map(|lease| lease.poll(now, context)) {
                Some(LeaseState::Revoked) => {
                    self.cause = EndCause::Revoked;
                    return Poll::Ready(None);
                }
                Some(LeaseState::Unconfirmed) => {
                    self.cause = EndCause::Unconfirmed;
                    return Poll::Ready(None);
                }
                Some(LeaseState::Overdue) => return Poll::Pending,
                Some(LeaseState::Until(due)) => Some(due),
                Some(LeaseState::UnderReview) | None => None,
            };
            if self.proof.as_mut().is_some_and(|proof| proof.as_mut().poll(context).is_ready()) {
                self.proof = None;
                self.session.owe_bookmark();
            }
            self.session.register(context.waker());
            match self.session.step(now) {
                Step::Send(bytes) => {
                    self.instance.metrics.events_sent(self.session.events_sent());
                    return Poll::Ready(Some(bytes));
                }
                Step::Work => {
                    self.is_working = true;
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Step::Wait(until) => {
                    let until = review_at.map_or(until, |review_at| until.min(review_at));
                    if self.timer.deadline() != until {
                        self.timer.as_mut().reset(until);
                    }
                    if self.timer.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                }
                Step::End(cause) => {
                    // The next ones are forwarded.
                    if cause == EndCause::Unencodable && self.session.sends_tables() {
                        self.instance.gave_up_table_watch();
                    }
                    self.cause = cause;
                    return Poll::Ready(None);
                }
            }
        }
    }
}

impl Drop for WatchBody {
    fn drop(&mut self) {
        self.instance.metrics.watch_ended(self.cause.as_str());
    }
}

impl std::fmt::Debug for WatchBody {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.session.fmt(formatter)
    }
}
