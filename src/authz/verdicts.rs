//! Verdicts of the API server: asked for once for all who want to know at the same time, and kept for a short while.
//!
//! Invariant: without a verdict nobody is permitted, and that there was none is not kept.

use std::{error::Error, sync::Arc, time::Duration};

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use tokio::time::Instant;

use super::review::{self, Asked, Question};
use crate::{
    lifecycle::Tasks,
    remembered::{Answer, Answers, Bound},
    telemetry::{self, AccessVerdict},
    upstream::Upstream,
};

/// Verdicts that are kept.
const KNOWN: Bound = Bound { most: 8192, limit: "access_verdicts" };
/// Questions under way; beyond it there is no verdict. Far less than the requests that the gateway may have on their way in all,
/// so that those of the caches go on.
const UNDER_WAY: Bound = Bound { most: 1000, limit: "access_reviews" };
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

#[derive(Debug)]
pub(super) struct Verdicts {
    reviewer: Upstream,
    pub(super) config: Config,
    answers: Answers<Arc<Question>, Verdict>,
}

impl Verdicts {
    pub(super) fn new(config: Config, reviewer: Upstream, tasks: Tasks) -> Self {
        Self { reviewer, config, answers: Answers::new(KNOWN, UNDER_WAY, tasks) }
    }

    /// The verdict on a question, if it is known at `now`.
    pub(super) fn known(&self, question: &Asked<'_>, now: Instant) -> Option<Verdict> {
        self.answers.known(question, now)
    }

    /// The verdict on a question, kept or new.
    pub(super) async fn on(self: &Arc<Self>, question: Arc<Question>) -> Verdict {
        if let Some(verdict) = self.answers.known(&question, Instant::now()) {
            return verdict;
        }
        let (verdicts, asked) = (self.clone(), question.clone());
        let verdict = self.answers.ask("access review", question, async move { verdicts.review(asked).await });
        verdict.await.unwrap_or(Err(NotPermitted::NoVerdict))
    }

    async fn review(&self, question: Arc<Question>) -> Answer<Verdict> {
        let answer = self.reviewer.review(review::PATH, &question.review()).await;
        let allowed = answer
            .inspect_err(|error| tracing::warn!(error = error as &dyn Error, "access could not be reviewed"))
            .ok()
            .and_then(|review: SubjectAccessReview| review::is_allowed(review.status.as_ref()));
        let is_large = question.attributes.size() > ATTRIBUTES_BYTES_MAX;
        let (outcome, value, ttl) = match allowed {
            Some(true) => (AccessVerdict::Allowed, Ok(question), self.config.allowed_ttl),
            Some(false) => (AccessVerdict::Denied, Err(NotPermitted::Denied), self.config.denied_ttl),
            None => (AccessVerdict::None, Err(NotPermitted::NoVerdict), Duration::ZERO),
        };
        telemetry::access_reviewed(outcome);
        Answer { value, ttl: if is_large { Duration::ZERO } else { ttl } }
    }
}
