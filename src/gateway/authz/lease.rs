//! Permits that last: a watch is authorized again periodically.
//!
//! Driven by the watch itself: an idle lease holds two times and two pointers, and a future only while a review is in
//! flight.
//!
//! Invariant: no event is sent on a permission that was last confirmed longer ago than [`BUSY_INTERVALS`] intervals
//! where upstream answers any reviews, or [`OUTAGE`] where it answers none.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::time::Instant;

use super::{
    review::Question,
    verdicts::{NotPermitted, Verdicts},
};

/// Number of intervals after which a lease ends that was not confirmed while upstream answered reviews: because too
/// many others were in flight, or because upstream answered others but not its own. A client that makes upstream slow
/// must not prolong a watch whose right was revoked.
const BUSY_INTERVALS: u32 = 3;
/// Number of intervals without confirmation after which a lease does not hold while its review is in flight. That
/// happens to a watch whose client did not read: the events that wait for it may be newer than a revocation.
const OVERDUE_INTERVALS: u32 = 2;
/// A lease ends when upstream has answered no review at all for this long, or for [`BUSY_INTERVALS`] if that is longer:
/// otherwise an outage of reviews would end all watches. This is about as long as the API server itself lets a watch
/// run after authorizing it once (read-path 3.5).
const OUTAGE: Duration = Duration::from_secs(3600);
/// Bytes of a user that nearly all users stay within.
const USUAL_USER: usize = 4 << 10;
/// Attempts per interval to start a review.
const TRIES: u32 = 8;

/// Permission to continue a read for now.
pub struct Lease {
    verdicts: Arc<Verdicts>,
    question: Arc<Question>,
    /// When upstream last allowed it.
    confirmed: Instant,
    /// When to ask again.
    due: Instant,
    review: Option<BoxFuture<'static, Outcome>>,
}

/// The result of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Allowed,
    Denied,
    /// Upstream gave no verdict.
    NoVerdict,
    /// Too many other reviews are in flight.
    Busy,
}

/// The state of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// It holds, and is to be polled again at this time.
    Until(Instant),
    /// It holds while a review is in flight; the polling task is woken by the answer.
    UnderReview,
    /// A review is in flight, and nothing may be read before its answer, which wakes the polling task.
    Overdue,
    /// Upstream no longer allows the request.
    Revoked,
    /// The lease was not confirmed for too long.
    Unconfirmed,
}

impl Lease {
    pub(super) fn new(verdicts: Arc<Verdicts>, question: Arc<Question>) -> Self {
        let now = Instant::now();
        let due = now + next_review(verdicts.config.watch_interval);
        Self { verdicts, question, confirmed: now, due, review: None }
    }

    /// Bytes of what the client chose, which the lease holds to ask again, and of its user beyond what usual ones have:
    /// behind a front proxy each request has a copy of its own.
    pub fn own_bytes(&self) -> usize {
        self.question.attributes.own_bytes() + self.question.user.own_bytes().saturating_sub(USUAL_USER)
    }

    /// The state of the lease at `now`. Starts a review when one is due.
    pub fn poll(&mut self, now: Instant, context: &mut Context<'_>) -> LeaseState {
        if self.review.is_none() && now < self.due {
            return LeaseState::Until(self.due);
        }
        let interval = self.verdicts.config.watch_interval;
        let unconfirmed = now.saturating_duration_since(self.confirmed);
        let review = self.review.get_or_insert_with(|| Box::pin(review(self.verdicts.clone(), self.question.clone())));
        let Poll::Ready(outcome) = review.poll_unpin(context) else {
            let is_overdue = unconfirmed >= interval * OVERDUE_INTERVALS;
            return if is_overdue { LeaseState::Overdue } else { LeaseState::UnderReview };
        };
        self.review = None;
        let busy = interval * BUSY_INTERVALS;
        let (wait, most) = match outcome {
            Outcome::Allowed => {
                self.confirmed = now;
                self.due = now + next_review(interval);
                return LeaseState::Until(self.due);
            }
            Outcome::Denied => return LeaseState::Revoked,
            Outcome::NoVerdict if self.verdicts.any_within(interval, now) => (next_review(interval), busy),
            Outcome::NoVerdict => (next_review(interval), busy.max(OUTAGE)),
            Outcome::Busy => (next_review(interval / TRIES), busy),
        };
        if unconfirmed >= most {
            return LeaseState::Unconfirmed;
        }
        self.due = (now + wait).min(self.confirmed + most);
        LeaseState::Until(self.due)
    }
}

async fn review(verdicts: Arc<Verdicts>, question: Arc<Question>) -> Outcome {
    match verdicts.renewed(question).await {
        Some(Ok(_)) => Outcome::Allowed,
        Some(Err(NotPermitted::Denied)) => Outcome::Denied,
        Some(Err(NotPermitted::NoVerdict)) => Outcome::NoVerdict,
        Some(Err(NotPermitted::Unasked)) | None => Outcome::Busy,
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let under_review = self.review.is_some();
        formatter.debug_struct("Lease").field("due", &self.due).field("under_review", &under_review).finish()
    }
}

/// A random time in the second half of the interval, so that watches which began together are not reviewed together.
fn next_review(interval: Duration) -> Duration {
    interval.mul_f64(0.5 + fastrand::f64() / 2.0)
}
