//! Verdicts of the API server: asked for once for all who want to know at the same time, and kept for a short while.
//!
//! Invariants: without a verdict nobody is permitted, and that there was none is not kept. A review runs as a task of its
//! own, so that it ends although those who wait for it go away, or are not polled because their clients do not read. There
//! are as many tasks as questions, never as many as requests.

use std::{
    collections::HashMap,
    error::Error,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use moka::{future::Cache, notification::RemovalCause, policy::EvictionPolicy};
use tokio::{sync::watch, time::Instant};

use super::review::{self, Question};
use crate::{
    lifecycle::Tasks,
    telemetry::{self, AccessVerdict},
    upstream::Upstream,
};

/// Verdicts that are kept; beyond it the least recently used go.
const VERDICTS_MAX: u64 = 8192;
/// A verdict on attributes of more bytes is not kept: clients choose them.
const ATTRIBUTES_BYTES_MAX: usize = 10_000;
/// Questions under way; beyond it there is no verdict. Far less than the requests that the gateway may have on their way in all,
/// so that those of the caches go on.
const REVIEWS_MAX: usize = 1000;

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

type Verdict = Result<(), NotPermitted>;

#[derive(Debug)]
pub(super) struct Verdicts {
    reviewer: Upstream,
    tasks: Tasks,
    pub(super) config: Config,
    known: Cache<Arc<Question>, Known>,
    /// `None` until there is an answer.
    under_way: Mutex<HashMap<Arc<Question>, watch::Receiver<Option<Verdict>>>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    verdict: Verdict,
    until: Instant,
}

impl Verdicts {
    pub(super) fn new(config: Config, reviewer: Upstream, tasks: Tasks) -> Self {
        let known = Cache::builder()
            .max_capacity(VERDICTS_MAX)
            .eviction_policy(EvictionPolicy::lru())
            // Gives memory back; what counts is `Known::until`.
            .time_to_live(config.allowed_ttl.max(config.denied_ttl).max(TTL_MIN))
            .eviction_listener(|_, _, cause| {
                if cause == RemovalCause::Size {
                    telemetry::limit_reached("access_verdicts");
                }
            })
            .build();
        Self { reviewer, tasks, config, known, under_way: Mutex::default() }
    }

    /// The verdict on a question, kept or new.
    pub(super) async fn on(self: &Arc<Self>, question: &Arc<Question>) -> Verdict {
        if let Some(known) = self.known.get(question).await
            && Instant::now() < known.until
        {
            return known.verdict;
        }
        let mut answer = self.ask(question)?;
        // The one who asks is gone only with the process.
        let Ok(verdict) = answer.wait_for(Option::is_some).await else { return Err(NotPermitted::NoVerdict) };
        verdict.unwrap_or(Err(NotPermitted::NoVerdict))
    }

    /// Where the answer to a question will be: that of a review under way, if there is one.
    fn ask(self: &Arc<Self>, question: &Arc<Question>) -> Result<watch::Receiver<Option<Verdict>>, NotPermitted> {
        let mut under_way = self.under_way();
        if let Some(answer) = under_way.get(question) {
            return Ok(answer.clone());
        }
        if under_way.len() >= REVIEWS_MAX {
            telemetry::limit_reached("access_reviews");
            return Err(NotPermitted::NoVerdict);
        }
        let (told, answer) = watch::channel(None);
        under_way.insert(question.clone(), answer.clone());
        drop(under_way);
        let asked = Asked { verdicts: self.clone(), question: question.clone() };
        self.tasks.spawn("access review", async move {
            let verdict = asked.verdict().await;
            // Kept before it is no longer under way: whoever comes now finds it in one place or the other.
            asked.verdicts.keep(&asked.question, verdict).await;
            drop(asked);
            told.send_replace(Some(verdict));
        });
        Ok(answer)
    }

    async fn keep(&self, question: &Arc<Question>, verdict: Verdict) {
        let ttl = match verdict {
            Ok(()) => self.config.allowed_ttl,
            Err(NotPermitted::Denied) => self.config.denied_ttl,
            Err(NotPermitted::NoVerdict) => return,
        };
        if question.attributes.size() <= ATTRIBUTES_BYTES_MAX {
            self.known.insert(question.clone(), Known { verdict, until: Instant::now() + ttl }).await;
        }
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<Arc<Question>, watch::Receiver<Option<Verdict>>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that is under way until this is dropped.
struct Asked {
    verdicts: Arc<Verdicts>,
    question: Arc<Question>,
}

impl Asked {
    async fn verdict(&self) -> Verdict {
        let answer = self.verdicts.reviewer.review(review::PATH, &self.question.review()).await;
        let allowed = answer
            .inspect_err(|error| tracing::warn!(error = error as &dyn Error, "access could not be reviewed"))
            .ok()
            .and_then(|review: SubjectAccessReview| review::is_allowed(review.status.as_ref()));
        let (outcome, verdict) = match allowed {
            Some(true) => (AccessVerdict::Allowed, Ok(())),
            Some(false) => (AccessVerdict::Denied, Err(NotPermitted::Denied)),
            None => (AccessVerdict::None, Err(NotPermitted::NoVerdict)),
        };
        telemetry::access_reviewed(outcome);
        verdict
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.verdicts.under_way().remove(&self.question);
    }
}

/// The cache takes no time of zero.
const TTL_MIN: Duration = Duration::from_secs(1);
