//! Bearer tokens: reviewed by upstream (TokenReview), with verdicts cached for a while (read-path 8.2).
//!
//! Invariants: a token itself is never kept, only its hash under a key that does not outlive the process. A review that
//! fails gives no verdict and is not cached; the request is forwarded.

#[cfg(test)]
mod tests;

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws_lc_rs::{hmac, rand::SystemRandom};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD};
use http::StatusCode;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use tokio::time::Instant;

use super::{
    groups::{add_authenticated, is_anonymous},
    refusals::{Refusals, UnverifiedSender},
    unauthenticated::Unauthenticated,
};
use crate::{
    listener::Connection,
    upstream::{ReviewError, Upstream},
};
use base::{
    apimachinery::UserInfo,
    fairness::{ClientKey, ConcurrencyLimit, PacedConcurrencyLimit, Shares, share_of},
    lifecycle::Tasks,
    memo::{Bound, Cacheable, Capacity, Lookups, TtlCache},
    telemetry::{self, Chain, TokenLookups, TokenVerdict},
};

/// How tokens are reviewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenReviews {
    /// Audiences that tokens must be issued for. Empty: the API server's own.
    pub audiences: Vec<String>,
    /// How long an accepted token is cached, at most until it expires. Zero: not beyond the review.
    pub success_ttl: Duration,
    /// How long a rejected token is cached.
    pub failure_ttl: Duration,
    /// How long an accepted token is believed while upstream cannot be reached, at most until it expires.
    pub away_ttl: Duration,
}

impl Default for TokenReviews {
    /// The API server's own values.
    fn default() -> Self {
        Self {
            audiences: Vec::new(),
            success_ttl: Duration::from_secs(10),
            failure_ttl: Duration::ZERO,
            away_ttl: Duration::ZERO,
        }
    }
}

/// Reviews tokens and caches the verdicts.
pub(super) struct Tokens {
    reviewed: RwLock<Reviewed>,
    answers: Lookups<TokenHash, Outcome>,
    clients: Arc<TtlCache<TokenHash, ClientKey>>,
    /// Limits the reviews in flight per address: a client that makes up tokens has no user to account them to.
    shares: Shares,
    turns: Arc<PacedConcurrencyLimit>,
    refusals: Arc<Refusals>,
    lookups: TokenLookups,
}

/// The current review configuration.
struct Reviewed {
    /// Replaced together with `reviews`, so that verdicts under an old configuration are no longer found.
    key: hmac::Key,
    reviews: Arc<Reviews>,
}

/// Sends token reviews.
struct Reviews {
    upstream: Upstream,
    config: TokenReviews,
    /// The users of tokens, for the time when upstream cannot be reached.
    confirmed: TtlCache<TokenHash, Arc<UserInfo>>,
    /// Whether the last review gave a verdict. Only a change of that is logged, not each failure.
    answers: AtomicBool,
}

/// What is known of a token without a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Never,
    /// Upstream has just accepted it in a forwarded request.
    Accepted,
}

type Outcome = Result<Arc<UserInfo>, Unauthenticated>;

/// That upstream gives a token what is at a path, without the token.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    pub hash: [u8; 32],
    /// How long it is believed while upstream cannot be reached.
    pub ttl: Duration,
}

/// HMAC of a token.
type TokenHash = [u8; 32];

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Capacity for verdicts: that many service accounts, users and robots may be active within ten seconds.
const KNOWN: Bound = Bound { most: 20_000, limit: "known_tokens" };
/// Capacity for tokens that are believed while upstream cannot be reached.
const CONFIRMED: Bound = Bound { most: 20_000, limit: "confirmed_tokens" };
/// How long a token is believed until upstream is asked again.
const BELIEVED_FOR: Duration = Duration::from_secs(1);
/// Capacity for the users that tokens are accounted to. These are kept for longer than verdicts: they grant nothing.
const COUNTED: Bound = Bound { most: 20_000, limit: "counted_tokens" };
const COUNTED_FOR: Duration = Duration::from_secs(10 * 60);
/// Reviews in flight, those that wait for their turn included. Beyond the limit a request is forwarded without one, and
/// upstream checks its token anyway.
const UNDER_WAY: Bound = Bound { most: 500, limit: "token_reviews" };
/// Reviews for one address that are sent to upstream at once; its others wait for their turn.
const AT_ONCE: usize = 5;
/// Reviews beyond the first for each address that are sent to upstream at once.
const COMMON: usize = 4;
/// How long a review waits for its turn. Short, since clients that share an address wait for each other; beyond it the
/// request is forwarded.
const TURN_WAIT_MAX: Duration = Duration::from_secs(1);
/// Token reviews have no reserved capacity.
const RESERVED: Bound = Bound { most: 0, limit: "token_reviews" };

impl Tokens {
    /// Reviews tokens at `upstream`. `tasks` runs the reviews, so that one goes on when the request that started it is
    /// gone.
    pub(super) fn new(config: TokenReviews, upstream: Upstream, tasks: Tasks) -> Self {
        let reviewed = RwLock::new(Reviewed::new(upstream, config));
        let turns = ConcurrencyLimit::new(AT_ONCE, TURN_WAIT_MAX, "address_review_wait").with_common(COMMON);
        let turns = Arc::new(PacedConcurrencyLimit::new(turns, tasks.clone()));
        let (answers, clients) = (Lookups::new(KNOWN, UNDER_WAY, RESERVED, tasks), Arc::new(TtlCache::new(COUNTED)));
        let shares = Shares::new(share_of(UNDER_WAY.most), "address_token_reviews");
        let refusals = Arc::new(Refusals::new());
        Self { reviewed, answers, clients, shares, turns, refusals, lookups: TokenLookups::new() }
    }

    /// Reviews according to `config` from now on. If it differs, all cached verdicts become invalid.
    pub(super) fn set(&self, config: TokenReviews) {
        let mut reviewed = self.reviewed.write().unwrap_or_else(PoisonError::into_inner);
        if reviewed.reviews.config != config {
            *reviewed = Reviewed::new(reviewed.reviews.upstream.clone(), config);
        }
    }

    /// The user of a token, if its verdict is known at `now`.
    pub(super) fn known(&self, token: &[u8], now: Instant) -> Option<Outcome> {
        let outcome = self.answers.known(&self.reviewed().hash(token), now);
        if outcome.is_some() {
            self.lookups.known();
        }
        outcome
    }

    /// Reviews a token whose verdict is not known. The review is accounted to its user if a recent review has accepted
    /// it, else to `address`; beyond that share there is no verdict, nor on a new token of an address from which many
    /// were refused.
    pub(super) fn ask(&self, token: &str, address: ClientKey) -> impl Future<Output = Outcome> + Send + use<> {
        self.ask_about(token, address, Seen::Never)
    }

    fn ask_about(&self, token: &str, address: ClientKey, seen: Seen) -> impl Future<Output = Outcome> + Send + use<> {
        self.lookups.asked();
        let (reviews, hash) = {
            let reviewed = self.reviewed();
            (reviewed.reviews.clone(), reviewed.hash(token.as_bytes()))
        };
        let known = self.clients.get(&hash, Instant::now());
        let (client, is_new) = (known.unwrap_or(address), known.is_none() && seen == Seen::Never);
        let token = token.to_owned();
        let (clients, shares, turns) = (self.clients.clone(), self.shares.clone(), self.turns.clone());
        let refusals = self.refusals.clone();
        let is_doubtful = {
            let refusals = refusals.clone();
            move || is_new && refusals.are_many(address)
        };
        let outcome = self.answers.ask("token review", hash, Capacity::Common, move || {
            if is_doubtful() {
                return None;
            }
            let share = shares.take(client)?;
            Some(async move {
                let _share = share;
                // Others may have been refused while it waited.
                let in_turn = || async { if is_doubtful() { None } else { Some(reviews.answer(token, hash).await) } };
                let answer = turns.run(client, in_turn).await.flatten();
                let no_verdict = || Cacheable { value: Err(Unauthenticated::Unavailable), ttl: Duration::ZERO };
                let answer = answer.unwrap_or_else(no_verdict);
                match &answer.value {
                    Ok(user) => clients.insert(hash, ClientKey::user(&user.name), COUNTED_FOR),
                    Err(Unauthenticated::Rejected) => {
                        // Reviewed from now on like one that never was valid.
                        clients.remove(&hash);
                        // Its request may be gone, and never be refused.
                        refusals.count(address);
                    }
                    Err(_) => {}
                }
                answer
            })
        });
        async move { outcome.await.unwrap_or(Err(Unauthenticated::Unavailable)) }
    }

    /// About a request whose credentials are not known to be valid.
    pub(super) fn unverified(&self, connection: &Connection) -> UnverifiedSender {
        UnverifiedSender::of(&self.refusals, connection)
    }

    /// Learns from upstream's answer to a forwarded request whether its token is valid; `None` if it had another or no
    /// credential. A token that [`Self::ask`] would not have reviewed is reviewed if upstream has accepted it.
    pub(super) fn learn(&self, token: Option<&str>, address: ClientKey, status: StatusCode) {
        if status == StatusCode::UNAUTHORIZED {
            // What accepts the token, and answers 401, is a program behind the API server's proxy.
            if token.is_none_or(|token| self.client(token.as_bytes()).is_none()) {
                self.refusals.count(address);
            }
            return;
        }
        // Other errors may come from a component in front of authentication.
        let is_accepted = status.is_success() || matches!(status, StatusCode::FORBIDDEN | StatusCode::NOT_FOUND);
        let Some(token) = token.filter(|_| is_accepted && self.refusals.are_many(address)) else { return };
        if self.client(token.as_bytes()).is_none() {
            // The review goes on without its future.
            drop(self.ask_about(token, address, Seen::Accepted));
        }
    }

    /// The key of the token's user, if a recent review has accepted the token.
    pub(super) fn client(&self, token: &[u8]) -> Option<ClientKey> {
        self.clients.get(&self.reviewed().hash(token), Instant::now())
    }

    /// Stands for `token` being given what is at `path`; `None` if nothing is believed while upstream is away.
    pub(super) fn grant(&self, token: &str, path: &str) -> Option<Grant> {
        let reviewed = self.reviewed();
        let ttl = reviewed.reviews.config.away_ttl;
        // Neither has a line break.
        (!ttl.is_zero()).then(|| Grant { hash: reviewed.hash(format!("{token}\n{path}").as_bytes()), ttl })
    }

    fn reviewed(&self) -> RwLockReadGuard<'_, Reviewed> {
        self.reviewed.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reviewed {
    fn new(upstream: Upstream, config: TokenReviews) -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).expect("the system has random numbers");
        let (confirmed, answers) = (TtlCache::new(CONFIRMED), AtomicBool::new(true));
        Self { key, reviews: Arc::new(Reviews { upstream, config, confirmed, answers }) }
    }

    fn hash(&self, token: &[u8]) -> TokenHash {
        let mut context = hmac::Context::with_key(&self.key);
        // Verdicts of another cluster are not found.
        context.update(&self.reviews.upstream.storage().number().to_be_bytes());
        context.update(token);
        let tag = context.sign();
        tag.as_ref().try_into().expect("an HMAC of SHA-256 has 32 bytes")
    }
}

impl Reviews {
    async fn answer(&self, token: String, hash: TokenHash) -> Cacheable<Outcome> {
        let ends = expiry(&token);
        let at_most = |ttl: Duration| ends.map_or(ttl, |ends| ttl.min(left(ends)));
        let (value, ttl) = match self.review(token).await {
            Ok(Some(user)) => {
                self.confirmed.insert(hash, user.clone(), at_most(self.config.away_ttl));
                (Ok(user), at_most(self.config.success_ttl))
            }
            Ok(None) => {
                self.confirmed.remove(&hash);
                (Err(Unauthenticated::Rejected), self.config.failure_ttl)
            }
            Err(why) => {
                let ttl = at_most(BELIEVED_FOR);
                let is_believable = why.is_gone() && !ttl.is_zero();
                match is_believable.then(|| self.confirmed.get(&hash, Instant::now())).flatten() {
                    Some(user) => {
                        telemetry::token_reviewed(TokenVerdict::Believed);
                        (Ok(user), ttl)
                    }
                    None => (Err(Unauthenticated::Unavailable), Duration::ZERO),
                }
            }
        };
        Cacheable { value, ttl }
    }

    /// The user of an accepted token; `None` for a rejected one.
    async fn review(&self, token: String) -> Result<Option<Arc<UserInfo>>, NoVerdict> {
        let audiences = Some(self.config.audiences.clone()).filter(|audiences| !audiences.is_empty());
        let spec = TokenReviewSpec { audiences, token: Some(token) };
        let answer = self.upstream.review(PATH, &TokenReview { spec, ..TokenReview::default() }).await;
        let verdict = answer.map_err(NoVerdict::Review).and_then(|review| self.verdict(review.status));
        let outcome = match &verdict {
            Ok(Some(_)) => TokenVerdict::Accepted,
            Ok(None) => TokenVerdict::Rejected,
            Err(_) => TokenVerdict::None,
        };
        telemetry::token_reviewed(outcome);
        self.report(verdict.as_ref().err());
        verdict.map(|user| user.map(Arc::new))
    }

    /// The user of an accepted token; `None` for a rejected one.
    fn verdict(&self, status: Option<TokenReviewStatus>) -> Result<Option<UserInfo>, NoVerdict> {
        let status = status.ok_or(NoVerdict::NoStatus)?;
        let (wanted, given) = (&self.config.audiences, status.audiences.unwrap_or_default());
        // A review without audiences refers to the API server's own.
        let is_for_us = wanted.is_empty() || given.is_empty() || given.iter().any(|given| wanted.contains(given));
        if status.authenticated != Some(true) || !is_for_us {
            return Ok(None);
        }
        let user = status.user.unwrap_or_default();
        let user = UserInfo {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        };
        // A token proves a named user other than the anonymous one.
        if user.name.is_empty() || is_anonymous(&user) {
            return Err(NoVerdict::NoUser);
        }
        Ok(Some(add_authenticated(user)))
    }

    /// Logs when reviews begin to fail, and when they succeed again.
    fn report(&self, failure: Option<&NoVerdict>) {
        let answered = self.answers.swap(failure.is_none(), Ordering::Relaxed);
        match failure {
            Some(error) if answered => {
                tracing::warn!(cause = error.cause(), error = %Chain(error), "cannot review tokens")
            }
            Some(error) => tracing::debug!(cause = error.cause(), error = %Chain(error), "token not reviewed"),
            None if !answered => tracing::info!("token reviews succeed again"),
            None => {}
        }
    }
}

/// The expiry claim (`exp`) of a JSON web token, in seconds since 1970. `None` if there is none. Meaningful only once
/// the token has been reviewed.
fn expiry(token: &str) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Claims {
        exp: serde_json::Number,
    }
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let Claims { exp } = serde_json::from_slice(&claims).ok()?;
    // RFC 7519 (2) allows fractions.
    exp.as_u64().or_else(|| Some(Duration::try_from_secs_f64(exp.as_f64()?).ok()?.as_secs()))
}

/// The time left until `then`, in seconds since 1970; zero if it has passed.
fn left(then: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(then).saturating_sub(now)
}

/// Why a review gave no verdict.
#[derive(Debug, thiserror::Error)]
enum NoVerdict {
    #[error(transparent)]
    Review(ReviewError),
    #[error("the TokenReview has no status")]
    NoStatus,
    #[error("the TokenReview has no user name")]
    NoUser,
}

impl NoVerdict {
    fn is_gone(&self) -> bool {
        matches!(self, Self::Review(error) if error.is_gone())
    }

    /// The underlying error. Leaves out parse errors of an answer, which may quote the token.
    fn cause(&self) -> String {
        match self {
            Self::Review(ReviewError::Send { source, .. }) => source.to_string(),
            Self::Review(ReviewError::Body { source, .. }) => source.to_string(),
            Self::Review(_) | Self::NoStatus | Self::NoUser => String::new(),
        }
    }
}

impl fmt::Debug for Tokens {
    /// Leaves out the HMAC key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tokens")
            .field("config", &self.reviewed().reviews.config)
            .field("answers", &self.answers)
            .finish_non_exhaustive()
    }
}
