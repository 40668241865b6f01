//! Leave that lasts: a watch is authorized again from time to time.
//!
//! Driven by the watch itself: an idle one holds a time and two pointers, and a future only while a review is under way.

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

/// Leave to go on reading, for now.
pub struct Lease {
    verdicts: Arc<Verdicts>,
    question: Arc<Question>,
    /// When to ask again.
    due: Instant,
    review: Option<BoxFuture<'static, Result<(), NotPermitted>>>,
}

/// What has become of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It holds, and is to be looked at again then.
    Until(Instant),
    /// It holds while upstream is asked; whoever polled is woken when there is an answer.
    UnderReview,
    /// Upstream no longer allows it.
    Revoked,
}

impl Lease {
    pub(super) fn new(verdicts: Arc<Verdicts>, question: Arc<Question>) -> Self {
        let due = next_review(Instant::now(), verdicts.config.watch_interval);
        Self { verdicts, question, due, review: None }
    }

    /// Where it stands at `now`. Without a verdict it goes on until the next review.
    pub fn poll(&mut self, now: Instant, context: &mut Context<'_>) -> Standing {
        if self.review.is_none() && now < self.due {
            return Standing::Until(self.due);
        }
        let review = self.review.get_or_insert_with(|| {
            let (verdicts, question) = (self.verdicts.clone(), self.question.clone());
            Box::pin(async move { verdicts.on(question).await.map(drop) })
        });
        let Poll::Ready(verdict) = review.poll_unpin(context) else { return Standing::UnderReview };
        self.review = None;
        if verdict == Err(NotPermitted::Denied) {
            return Standing::Revoked;
        }
        self.due = next_review(now, self.verdicts.config.watch_interval);
        Standing::Until(self.due)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let under_review = self.review.is_some();
        formatter.debug_struct("Lease").field("due", &self.due).field("under_review", &under_review).finish()
    }
}

/// At the latest after the interval, and at any time in its second half: watches that began together do not ask together.
fn next_review(now: Instant, interval: Duration) -> Instant {
    now + interval.mul_f64(0.5 + fastrand::f64() / 2.0)
}
