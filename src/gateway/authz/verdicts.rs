//! Verdicts of the API server: one review for all requests that need it at the same time, cached for a short while.
//!
//! Invariant: without a verdict there is no permit, and a missing verdict is not cached.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use tokio::time::Instant;

use super::review::{self, Asked, Question};
use crate::upstream::{ReviewError, Upstream};
use base::{
    fairness::{ClientKey, ConcurrencyLimit, PacedConcurrencyLimit, Rate, RateLimit, Share, Shares, share_of},
    lifecycle::Tasks,
    memo::{Bound, Cacheable, Capacity, Lookups, TtlCache},
    telemetry::{self, AccessVerdict, Chain},
};

/// Cached verdicts.
const KNOWN: Bound = Bound { most: 8192, limit: "access_verdicts" };
/// Allowing verdicts that are believed while upstream cannot be reached.
const CONFIRMED: Bound = Bound { most: 8192, limit: "confirmed_access" };
/// How long a verdict is believed until upstream is asked again.
const BELIEVED_FOR: Duration = Duration::from_secs(1);
/// Reviews in flight, those that wait for their turn included; beyond them there is no verdict.
const UNDER_WAY: Bound = Bound { most: 2000, limit: "access_reviews" };
/// The same of one client. They all have their turn within [`TURN_WAIT_MAX`] where upstream takes up to 80 ms for each,
/// or up to 20 ms while other clients use what is [common](COMMON). Since those of a client that asks for ever new
/// reviews wait for most of the time, several such clients must not fill the pool.
const UNDER_WAY_EACH: usize = 250;
/// Reviews of one client that are sent to upstream at once; its others wait for their turn. To upstream all reviews
/// come from the gateway, so that upstream's own fairness cannot tell the clients apart; this limit keeps one client
/// from delaying all others.
const AT_ONCE: usize = 5;
/// Reviews beyond the first of each client that are sent to upstream at once: few, since a hundred reviews that arrive
/// together delay everything else that upstream answers, whether one client has sent them or five.
const COMMON: usize = 4;
/// The reviews of one client in the long run. 40 are sent upstream as fast as its turns come: those of a controller
/// that starts with thirty resources. One with a hundred, or a kubelet with a watch for each Secret and ConfigMap of
/// its pods, has all of its reviews within three seconds, where upstream takes some milliseconds for each. Beyond
/// these, it has 50 in a second, as many as client-go's default limits for kubelets let one client send requests
/// (`kubeAPIQPS`), and enough for the watches of a DaemonSet on 10,000 nodes, each of which begins anew every few
/// minutes. Some more than a client has turns are counted ahead: those that are given up must not delay later ones for
/// long.
const EACH: Rate = Rate { burst: 40, interval: Duration::from_millis(20), ahead: 9 };
/// The same of all clients together beyond the first [`FEW`] of each: as many at once as one client has, so that five
/// that ask for ever new reviews do not delay everything else that upstream answers by the time that 200 take.
const IN_ALL: Rate = Rate { burst: 40, interval: Duration::from_millis(10), ahead: 40 };
/// Reviews of one client that are free whatever others ask: what a client needs that lists and watches a few resources.
const FEW: u32 = 3;
/// How long a review waits for its turn; beyond it there is no verdict.
const TURN_WAIT_MAX: Duration = Duration::from_secs(5);
/// Reviews in flight for open watches. They have their own capacity, so that a revoked permission is noticed however
/// many other reviews there are.
const RENEWALS: Bound = Bound { most: 1000, limit: "watch_reviews" };
/// Verdicts on attributes with more bytes than this are not cached, since clients choose the attributes.
const ATTRIBUTES_BYTES_MAX: usize = 10_000;

/// How long verdicts are valid.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How long an allowing verdict is cached.
    pub allowed_ttl: Duration,
    /// How long a denying verdict is cached.
    pub denied_ttl: Duration,
    /// How long an allowing verdict is believed while upstream cannot be reached.
    pub away_ttl: Duration,
    /// Maximum time after which a watch is authorized again.
    pub watch_interval: Duration,
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPermitted {
    /// Upstream denies the request.
    Denied,
    /// Upstream has given no verdict.
    NoVerdict,
    /// Upstream was not asked, because too many reviews are in flight or wait, of this client or of all.
    Unasked,
}

/// An allowed question, or why there is no permit.
pub(super) type Verdict = Result<Arc<Question>, NotPermitted>;

/// A verdict, and its place in its client's share of the cache, which is released when the verdict is dropped.
#[derive(Clone, Debug)]
struct Remembered {
    /// `None` if the review did not get its turn in time; not cached.
    verdict: Option<Verdict>,
    /// Whether upstream, which could not be reached, allowed it earlier.
    is_believed: bool,
    _share: Option<Arc<Share>>,
}

#[derive(Debug)]
pub(super) struct Verdicts {
    reviewer: Upstream,
    pub(super) config: Config,
    answers: Lookups<Arc<Question>, Remembered>,
    /// What was allowed, for the time when upstream cannot be reached, with its place in its client's share.
    confirmed: TtlCache<Arc<Question>, Arc<Share>>,
    /// Limits `confirmed` per client.
    confirmed_shares: Shares,
    /// Limits the cached verdicts per client.
    kept_shares: Shares,
    /// Limits the reviews in flight per client.
    shares: Shares,
    turns: PacedConcurrencyLimit,
    renewal_shares: Shares,
    /// When upstream last gave a verdict on any question.
    last_verdict: Mutex<Option<Instant>>,
    /// Whether the last review gave a verdict. Only a change of that is logged, not each failure.
    answers_reviews: AtomicBool,
}

/// Why a review gave no verdict.
#[derive(Debug, thiserror::Error)]
enum NoVerdict {
    #[error(transparent)]
    Review(ReviewError),
    #[error("the SubjectAccessReview has no status, or one that both allows and denies")]
    Undecided,
}

impl Verdicts {
    pub(super) fn new(config: Config, reviewer: Upstream, tasks: Tasks) -> Self {
        let turns = ConcurrencyLimit::new(AT_ONCE, TURN_WAIT_MAX, "client_review_wait").with_common(COMMON);
        let rate = RateLimit::new(EACH, "client_review_pace").with_total(IN_ALL, FEW, "access_reviews_in_all");
        Self {
            reviewer,
            config,
            answers: Lookups::new(KNOWN, UNDER_WAY, RENEWALS, tasks.clone()),
            confirmed: TtlCache::new(CONFIRMED),
            confirmed_shares: Shares::new(share_of(CONFIRMED.most), "client_confirmed_access"),
            kept_shares: Shares::new(share_of(KNOWN.most), "client_access_verdicts"),
            shares: Shares::new(UNDER_WAY_EACH, "client_access_reviews"),
            turns: PacedConcurrencyLimit::new(turns, tasks).at(rate),
            renewal_shares: Shares::new(share_of(RENEWALS.most), "client_watch_reviews"),
            last_verdict: Mutex::default(),
            answers_reviews: AtomicBool::new(true),
        }
    }

    /// The number of the storage that verdicts are about now.
    pub(super) fn storage(&self) -> u64 {
        self.reviewer.storage().number()
    }

    /// The verdict on a question, if it is known at `now`.
    pub(super) fn known(&self, question: &Asked<'_>, now: Instant) -> Option<Verdict> {
        self.answers.known(question, now)?.verdict
    }

    /// The verdict on a question of `client`, cached or new.
    pub(super) async fn on(self: &Arc<Self>, question: Arc<Question>, client: ClientKey) -> Verdict {
        let remembered = self.ask(question, Capacity::Common, client).await;
        remembered.and_then(|it| it.verdict).unwrap_or(Err(NotPermitted::Unasked))
    }

    /// The verdict on a question that was allowed before. `None` if it was not asked because too many reviews are in
    /// flight. What is only believed confirms nothing.
    pub(super) async fn renewed(self: &Arc<Self>, question: Arc<Question>) -> Option<Verdict> {
        let (client, storage) = (ClientKey::user(&question.user.name), self.storage());
        let question = if question.storage == storage { question } else { Arc::new(question.about(storage)) };
        let Remembered { verdict, is_believed, .. } = self.ask(question, Capacity::Reserved, client).await?;
        if is_believed { Some(Err(NotPermitted::NoVerdict)) } else { verdict }
    }

    /// Whether upstream has given a verdict on any question less than `time` before `now`.
    pub(super) fn any_within(&self, time: Duration, now: Instant) -> bool {
        let last = *self.last_verdict.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| now.saturating_duration_since(last) < time)
    }

    async fn ask(self: &Arc<Self>, question: Arc<Question>, room: Capacity, client: ClientKey) -> Option<Remembered> {
        if let Some(known) = self.answers.known(&question, Instant::now()) {
            return Some(known);
        }
        let (verdicts, asked) = (self.clone(), question.clone());
        let answer = self.answers.ask("access review", question, room, || {
            let shares = match room {
                Capacity::Common => &self.shares,
                Capacity::Reserved => &self.renewal_shares,
            };
            let share = shares.take(client)?;
            Some(async move {
                let _share = share;
                match room {
                    Capacity::Common => verdicts.review_in_turn(asked, client).await,
                    Capacity::Reserved => verdicts.review(asked, client).await,
                }
            })
        });
        answer.await
    }

    async fn review_in_turn(&self, question: Arc<Question>, client: ClientKey) -> Cacheable<Remembered> {
        let reviewed = self.turns.run(client, || self.review(question, client)).await;
        let unasked = Remembered { verdict: None, is_believed: false, _share: None };
        reviewed.unwrap_or(Cacheable { value: unasked, ttl: Duration::ZERO })
    }

    async fn review(&self, question: Arc<Question>, client: ClientKey) -> Cacheable<Remembered> {
        let answer = self.reviewer.review(review::PATH, &question.review()).await;
        let is_gone = answer.as_ref().is_err_and(ReviewError::is_gone);
        let allowed = answer.map_err(NoVerdict::Review).and_then(|review: SubjectAccessReview| {
            review::is_allowed(review.status.as_ref()).ok_or(NoVerdict::Undecided)
        });
        self.report(allowed.as_ref().err());
        let allowed = allowed.ok();
        if is_gone && self.confirmed.get(&question, Instant::now()).is_some() {
            telemetry::access_reviewed(AccessVerdict::Believed);
            let value = Remembered { verdict: Some(Ok(question)), is_believed: true, _share: None };
            return Cacheable { value, ttl: BELIEVED_FOR };
        }
        if allowed.is_some() {
            *self.last_verdict.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        let is_large = question.attributes.size() > ATTRIBUTES_BYTES_MAX;
        let (outcome, verdict, ttl) = match allowed {
            Some(true) => {
                if !is_large {
                    self.confirm(&question, client);
                }
                (AccessVerdict::Allowed, Ok(question), self.config.allowed_ttl)
            }
            Some(false) => {
                self.confirmed.remove(&question);
                (AccessVerdict::Denied, Err(NotPermitted::Denied), self.config.denied_ttl)
            }
            None => (AccessVerdict::None, Err(NotPermitted::NoVerdict), Duration::ZERO),
        };
        telemetry::access_reviewed(outcome);
        let is_kept = !is_large && !ttl.is_zero();
        let kept_share = || share(&self.kept_shares, client, || self.answers.sweep());
        let share = if is_kept { kept_share() } else { None };
        let ttl = if share.is_some() { ttl } else { Duration::ZERO };
        Cacheable { value: Remembered { verdict: Some(verdict), is_believed: false, _share: share }, ttl }
    }

    /// Remembers that upstream has just allowed it.
    fn confirm(&self, question: &Arc<Question>, client: ClientKey) {
        let (ttl, now) = (self.config.away_ttl, Instant::now());
        if ttl.is_zero() {
            return;
        }
        let own = self.confirmed.get(question, now);
        let share = own.or_else(|| share(&self.confirmed_shares, client, || self.confirmed.sweep(now)));
        if let Some(share) = share {
            self.confirmed.insert(question.clone(), share, ttl);
        }
    }

    /// Logs when reviews begin to fail, and when they succeed again.
    fn report(&self, failure: Option<&NoVerdict>) {
        let answered = self.answers_reviews.swap(failure.is_none(), Relaxed);
        match failure {
            Some(error) if answered => tracing::warn!(error = %Chain(error), "cannot review access"),
            Some(error) => tracing::debug!(error = %Chain(error), "access not reviewed"),
            None if !answered => tracing::info!("access reviews succeed again"),
            None => {}
        }
    }
}

/// A part of the client's share. What has expired holds it until it is swept.
fn share(shares: &Shares, client: ClientKey, sweep: impl FnOnce()) -> Option<Arc<Share>> {
    let take = || shares.take(client).map(Arc::new);
    take().or_else(|| {
        sweep();
        take()
    })
}
