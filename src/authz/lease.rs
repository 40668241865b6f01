//! Leave that lasts: a watch is authorized again from time to time.
//!
//! Driven by the watch itself: an idle one holds two times and two pointers, and a future only while a review is under way.
//!
//! Invariant: no event is sent for a right that was last confirmed longer ago than [`BUSY_INTERVALS`] intervals where upstream answers
//! reviews, or [`OUTAGE`] where it does not.

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

/// A lease ends when for so many intervals it could not be reviewed because too many other reviews were under way.
const BUSY_INTERVALS: u32 = 3;
/// A lease that should have been reviewed an interval ago is not relied on while its review is under way. That is so of a watch
/// whose client did not read: what waits for it may be from after its right was taken away.
const OVERDUE_INTERVALS: u32 = 2;
/// A lease ends when upstream has answered no review for so long, or for [`BUSY_INTERVALS`] if that is longer. For about as long the
/// API server itself lets a watch run that it authorized once (read-path 3.5).
const OUTAGE: Duration = Duration::from_secs(3600);
/// Tries within an interval to get a review under way.
const TRIES: u32 = 8;

/// Leave to go on reading, for now.
pub struct Lease {
    verdicts: Arc<Verdicts>,
    question: Arc<Question>,
    /// When upstream last allowed it.
    confirmed: Instant,
    /// When to ask again.
    due: Instant,
    review: Option<BoxFuture<'static, Outcome>>,
}

/// What came of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Allowed,
    Denied,
    /// Upstream did not say.
    NoVerdict,
    /// Too many reviews are under way.
    Busy,
}

/// What has become of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It holds, and is to be looked at again then.
    Until(Instant),
    /// It holds while upstream is asked; the task that polled is woken when there is an answer.
    UnderReview,
    /// Upstream is asked, and nothing may be read before it answers; the task that polled is woken then.
    Overdue,
    /// Upstream no longer allows it.
    Revoked,
    /// It has not been confirmed for too long.
    Unconfirmed,
}

impl Lease {
    pub(super) fn new(verdicts: Arc<Verdicts>, question: Arc<Question>) -> Self {
        let now = Instant::now();
        let due = now + next_review(verdicts.config.watch_interval);
        Self { verdicts, question, confirmed: now, due, review: None }
    }

    /// Where it stands at `now`.
    pub fn poll(&mut self, now: Instant, context: &mut Context<'_>) -> Standing {
        if self.review.is_none() && now < self.due {
            return Standing::Until(self.due);
        }
        let interval = self.verdicts.config.watch_interval;
        let unconfirmed = now.saturating_duration_since(self.confirmed);
        let review = self.review.get_or_insert_with(|| Box::pin(review(self.verdicts.clone(), self.question.clone())));
        let Poll::Ready(outcome) = review.poll_unpin(context) else {
            let is_overdue = unconfirmed >= interval * OVERDUE_INTERVALS;
            return if is_overdue { Standing::Overdue } else { Standing::UnderReview };
        };
        self.review = None;
        let busy = interval * BUSY_INTERVALS;
        let (wait, most) = match outcome {
            Outcome::Allowed => {
                self.confirmed = now;
                self.due = now + next_review(interval);
                return Standing::Until(self.due);
            }
            Outcome::Denied => return Standing::Revoked,
            Outcome::NoVerdict => (next_review(interval), busy.max(OUTAGE)),
            Outcome::Busy => (next_review(interval / TRIES), busy),
        };
        if unconfirmed >= most {
            return Standing::Unconfirmed;
        }
        self.due = (now + wait).min(self.confirmed + most);
        Standing::Until(self.due)
    }
}

async fn review(verdicts: Arc<Verdicts>, question: Arc<Question>) -> Outcome {
    match verdicts.renewed(question).await {
        Some(Ok(_)) => Outcome::Allowed,
        Some(Err(NotPermitted::Denied)) => Outcome::Denied,
        Some(Err(NotPermitted::NoVerdict)) => Outcome::NoVerdict,
        None => Outcome::Busy,
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let under_review = self.review.is_some();
        formatter.debug_struct("Lease").field("due", &self.due).field("under_review", &under_review).finish()
    }
}

/// At the latest after the interval, and at any time in its second half: watches that began together do not ask together.
fn next_review(interval: Duration) -> Duration {
    interval.mul_f64(0.5 + fastrand::f64() / 2.0)
}
