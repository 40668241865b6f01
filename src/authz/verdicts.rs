//! Verdicts of the API server: asked for once for all who want to know at the same time, and kept for a short while.
//!
//! Invariant: without a verdict nobody is permitted, and that there was none is not kept.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use tokio::time::Instant;

use super::review::{self, Asked, Question};
use crate::{
    fairness::{ClientKey, Share, Shares, Turns, share_of},
    lifecycle::Tasks,
    remembered::{Answer, Answers, Bound, Room},
    telemetry::{self, AccessVerdict, Chain},
    upstream::Upstream,
};

/// Verdicts that are kept.
const KNOWN: Bound = Bound { most: 8192, limit: "access_verdicts" };
/// Questions under way; beyond it there is no verdict. Far less than the requests that the gateway may have on their way in all,
/// so that those of the caches go on.
const UNDER_WAY: Bound = Bound { most: 1000, limit: "access_reviews" };
/// Questions of one client that upstream is asked at once; its others wait for their turn. Upstream sees all reviews as the gateway's,
/// so that its own fairness does not tell their clients apart: it is here that one does not stand in the way of all others.
const AT_ONCE: usize = 8;
/// How long a question waits for its turn; beyond it there is no verdict.
const TURN_WAIT_MAX: Duration = Duration::from_secs(5);
/// Questions under way about watches that go on, which have a reserve of their own: however many others ask, a right that was taken
/// away is noticed.
const RENEWALS: Bound = Bound { most: 1000, limit: "watch_reviews" };
/// A verdict on attributes of more bytes is not kept: clients choose them.
const ATTRIBUTES_BYTES_MAX: usize = 10_000;

/// How verdicts are kept.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How long leave that was given is given again without asking.
    pub allowed_ttl: Duration,
    /// How long leave that was refused is refused again without asking.
    pub denied_ttl: Duration,
    /// A watch is authorized again after at most this time.
    pub watch_interval: Duration,
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPermitted {
    /// Upstream says that the user may not.
    Denied,
    /// Upstream has not said.
    NoVerdict,
}

/// With the question whose answer it is.
pub(super) type Verdict = Result<Arc<Question>, NotPermitted>;

/// A verdict, and its place among those of its client that are kept: given back when it is kept no longer.
#[derive(Clone, Debug)]
struct Remembered {
    verdict: Verdict,
    _share: Option<Arc<Share>>,
}

#[derive(Debug)]
pub(super) struct Verdicts {
    reviewer: Upstream,
    pub(super) config: Config,
    answers: Answers<Arc<Question>, Remembered>,
    /// Of the verdicts that are kept, for each client.
    kept_shares: Shares,
    /// Of the questions under way, for each client.
    shares: Shares,
    turns: Turns,
    renewal_shares: Shares,
}

impl Verdicts {
    pub(super) fn new(config: Config, reviewer: Upstream, tasks: Tasks) -> Self {
        Self {
            reviewer,
            config,
            answers: Answers::new(KNOWN, UNDER_WAY, RENEWALS, tasks),
            kept_shares: Shares::new(share_of(KNOWN.most), "client_access_verdicts"),
            shares: Shares::new(share_of(UNDER_WAY.most), "client_access_reviews"),
            turns: Turns::new(AT_ONCE),
            renewal_shares: Shares::new(share_of(RENEWALS.most), "client_watch_reviews"),
        }
    }

    /// The verdict on a question, if it is known at `now`.
    pub(super) fn known(&self, question: &Asked<'_>, now: Instant) -> Option<Verdict> {
        Some(self.answers.known(question, now)?.verdict)
    }

    /// The verdict on a question of `client`, kept or new.
    pub(super) async fn on(self: &Arc<Self>, question: Arc<Question>, client: ClientKey) -> Verdict {
        let verdict = self.ask(question, Room::Common, client).await;
        verdict.unwrap_or(Err(NotPermitted::NoVerdict))
    }

    /// The verdict on a question that was allowed before. `None` if it was not asked: too many are under way.
    pub(super) async fn renewed(self: &Arc<Self>, question: Arc<Question>) -> Option<Verdict> {
        let client = ClientKey::user(&question.user.name);
        self.ask(question, Room::Reserved, client).await
    }

    async fn ask(self: &Arc<Self>, question: Arc<Question>, room: Room, client: ClientKey) -> Option<Verdict> {
        if let Some(known) = self.answers.known(&question, Instant::now()) {
            return Some(known.verdict);
        }
        let (verdicts, asked) = (self.clone(), question.clone());
        let verdict = self.answers.ask("access review", question, room, || {
            let shares = match room {
                Room::Common => &self.shares,
                Room::Reserved => &self.renewal_shares,
            };
            let share = shares.take(client)?;
            Some(async move {
                let _share = share;
                match room {
                    Room::Common => verdicts.review_in_turn(asked, client).await,
                    Room::Reserved => verdicts.review(asked, client).await,
                }
            })
        });
        Some(verdict.await?.verdict)
    }

    async fn review_in_turn(&self, question: Arc<Question>, client: ClientKey) -> Answer<Remembered> {
        match tokio::time::timeout(TURN_WAIT_MAX, self.turns.take(client)).await {
            Ok(_turn) => self.review(question, client).await,
            Err(_) => {
                telemetry::limit_reached("client_review_wait");
                Answer {
                    value: Remembered { verdict: Err(NotPermitted::NoVerdict), _share: None },
                    ttl: Duration::ZERO,
                }
            }
        }
    }

    async fn review(&self, question: Arc<Question>, client: ClientKey) -> Answer<Remembered> {
        let answer = self.reviewer.review(review::PATH, &question.review()).await;
        let allowed = answer
            .inspect_err(|error| tracing::warn!(error = %Chain(error), "access could not be reviewed"))
            .ok()
            .and_then(|review: SubjectAccessReview| review::is_allowed(review.status.as_ref()));
        let is_large = question.attributes.size() > ATTRIBUTES_BYTES_MAX;
        let (outcome, verdict, ttl) = match allowed {
            Some(true) => (AccessVerdict::Allowed, Ok(question), self.config.allowed_ttl),
            Some(false) => (AccessVerdict::Denied, Err(NotPermitted::Denied), self.config.denied_ttl),
            None => (AccessVerdict::None, Err(NotPermitted::NoVerdict), Duration::ZERO),
        };
        telemetry::access_reviewed(outcome);
        let is_kept = !is_large && !ttl.is_zero();
        let share = if is_kept { self.kept_share(client) } else { None };
        let ttl = if share.is_some() { ttl } else { Duration::ZERO };
        Answer { value: Remembered { verdict, _share: share }, ttl }
    }

    fn kept_share(&self, client: ClientKey) -> Option<Arc<Share>> {
        let take = || self.kept_shares.take(client).map(Arc::new);
        // What it has may be over, and its memory not given back yet.
        take().or_else(|| {
            self.answers.sweep();
            take()
        })
    }
}
