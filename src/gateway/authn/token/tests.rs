//! Reviews of tokens, and how long their verdicts are known.

use super::*;
use std::sync::atomic::AtomicUsize;

use futures_util::future::join_all;
use http::Response;
use http_body_util::BodyExt;
use k8s_openapi::api::authentication::v1;
use tokio::{
    sync::{Notify, Semaphore},
    time::timeout,
};

use crate::connector::test_server::{TestServer, full};

/// A server that answers reviews with a given function, and counts them.
struct Reviewer {
    server: TestServer,
    reviews: Arc<AtomicUsize>,
    asked: Arc<Notify>,
}

impl Reviewer {
    /// Answers with `answer(token, audiences)`; `None` is an error status.
    async fn start(
        answer: impl Fn(String, Vec<String>) -> Option<TokenReviewStatus> + Send + Sync + 'static,
    ) -> (Self, Arc<Semaphore>) {
        let (reviews, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        // Answers wait while a test holds the permit.
        let gate = Arc::new(Semaphore::new(1));
        let (answer, shared) = (Arc::new(answer), (reviews.clone(), asked.clone(), gate.clone()));
        let server = TestServer::start(move |request| {
            let (answer, (reviews, asked, gate)) = (answer.clone(), shared.clone());
            async move {
                assert_eq!(request.uri().path(), PATH);
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let mut review: TokenReview = serde_json::from_slice(&body).unwrap();
                reviews.fetch_add(1, Ordering::SeqCst);
                asked.notify_one();
                let _open = gate.acquire().await.unwrap();
                let spec = review.spec.clone();
                review.status = answer(spec.token.unwrap(), spec.audiences.unwrap_or_default());
                let refused = review.status.is_none();
                let mut response = Response::new(full(serde_json::to_vec(&review).unwrap()));
                *response.status_mut() = if refused { StatusCode::FORBIDDEN } else { StatusCode::CREATED };
                response
            }
        })
        .await;
        (Self { server, reviews, asked }, gate)
    }

    fn tokens(&self, config: TokenReviews) -> Tokens {
        Tokens::new(config, self.server.upstream(), Tasks::new())
    }

    fn reviews(&self) -> usize {
        self.reviews.load(Ordering::SeqCst)
    }

    /// Returns when that many reviews have arrived.
    async fn asked_for(&self, reviews: usize) {
        let asked = async {
            while self.reviews() < reviews {
                self.asked.notified().await;
            }
        };
        timeout(Duration::from_secs(10), asked).await.unwrap_or_else(|_| panic!("{} reviews", self.reviews()));
    }
}

impl Tokens {
    /// The verdict on a token, cached or from a review.
    async fn user(&self, token: &str) -> Outcome {
        match self.known(token.as_bytes(), Instant::now()) {
            Some(known) => known,
            None => self.ask(token, ClientKey::address(None)).await,
        }
    }
}

fn good(name: &str) -> TokenReviewStatus {
    let groups = Some(vec!["devs".to_owned()]);
    let user = v1::UserInfo { username: Some(name.to_owned()), groups, ..v1::UserInfo::default() };
    TokenReviewStatus { authenticated: Some(true), user: Some(user), ..TokenReviewStatus::default() }
}

fn bad() -> TokenReviewStatus {
    TokenReviewStatus { error: Some("no".to_owned()), ..TokenReviewStatus::default() }
}

/// Accepts `good-x` as the user `x`, and rejects all others.
fn by_name(token: String, _: Vec<String>) -> Option<TokenReviewStatus> {
    Some(token.strip_prefix("good-").map_or_else(bad, good))
}

/// Lets time pass for cached verdicts only: sockets see no paused clock.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

const TTL: Duration = Duration::from_secs(10);

#[tokio::test]
async fn an_accepted_token_is_cached_for_its_ttl() {
    let (reviewer, _gate) = Reviewer::start(by_name).await;
    let tokens = reviewer.tokens(TokenReviews::default());
    let user = tokens.user("good-jane").await.unwrap();
    assert_eq!((user.name.as_str(), user.groups.join(",")), ("jane", "devs,system:authenticated".to_owned()));
    assert_eq!(tokens.user("good-jane").await, Ok(user));
    assert_eq!(reviewer.reviews(), 1);
    assert_eq!(tokens.user("good-joe").await.unwrap().name, "joe");
    assert_eq!(reviewer.reviews(), 2);
    pass(TTL).await;
    tokens.user("good-jane").await.unwrap();
    assert_eq!(reviewer.reviews(), 3);
    tokens.user("good-jane").await.unwrap();
    assert_eq!(reviewer.reviews(), 3);
}

#[tokio::test]
async fn a_cluster_that_replaced_another_is_asked_about_tokens_itself() {
    let (reviewer, _gate) = Reviewer::start(by_name).await;
    let upstream = reviewer.server.upstream();
    let tokens = Tokens::new(TokenReviews::default(), upstream.clone(), Tasks::new());
    tokens.user("good-jane").await.unwrap();
    upstream.storage().replaced();
    assert!(tokens.known(b"good-jane", Instant::now()).is_none() && tokens.client(b"good-jane").is_none());
    tokens.user("good-jane").await.unwrap();
    assert_eq!(reviewer.reviews(), 2);
}

/// A JSON web token with this `exp` claim, given as JSON.
fn web_token(exp: &str) -> String {
    format!("e30.{}.s", URL_SAFE_NO_PAD.encode(format!("{{\"sub\":\"jane\",\"exp\":{exp}}}")))
}

#[tokio::test]
async fn an_accepted_token_is_not_cached_beyond_its_expiry() {
    let (reviewer, _gate) = Reviewer::start(|_, _| Some(good("jane"))).await;
    let tokens = reviewer.tokens(TokenReviews { success_ttl: 3 * TTL, ..TokenReviews::default() });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    for (token, known_after_ttl, known_at_once) in [
        (web_token(&(now + 1000).to_string()), true, true),
        (web_token(&(now + TTL.as_secs()).to_string()), false, true),
        (web_token(&(now - 1).to_string()), false, false),
        (web_token("\"soon\""), true, true),
        ("a.b.c".to_owned(), true, true),
    ] {
        let before = reviewer.reviews();
        for _ in 0..2 {
            tokens.user(&token).await.unwrap();
        }
        assert_eq!(reviewer.reviews() - before, if known_at_once { 1 } else { 2 }, "{token}");
        pass(TTL).await;
        let before = reviewer.reviews();
        tokens.user(&token).await.unwrap();
        assert_eq!(reviewer.reviews() == before, known_after_ttl, "{token}");
    }
}

#[tokio::test]
async fn without_a_ttl_nothing_is_cached() {
    let (reviewer, _gate) = Reviewer::start(by_name).await;
    let tokens = reviewer.tokens(TokenReviews { success_ttl: Duration::ZERO, ..TokenReviews::default() });
    for reviews in 1..=3 {
        tokens.user("good-jane").await.unwrap();
        assert_eq!(reviewer.reviews(), reviews);
    }
}

#[tokio::test]
async fn a_rejected_token_is_cached_for_the_failure_ttl() {
    let (reviewer, _gate) = Reviewer::start(by_name).await;
    let tokens = reviewer.tokens(TokenReviews::default());
    for reviews in 1..=2 {
        assert_eq!(tokens.user("bad").await, Err(Unauthenticated::Rejected));
        assert_eq!(reviewer.reviews(), reviews);
    }
    let tokens = reviewer.tokens(TokenReviews { failure_ttl: TTL, ..TokenReviews::default() });
    for _ in 0..2 {
        assert_eq!(tokens.user("bad").await, Err(Unauthenticated::Rejected));
        assert_eq!(reviewer.reviews(), 3);
    }
    pass(TTL).await;
    assert_eq!(tokens.user("bad").await, Err(Unauthenticated::Rejected));
    assert_eq!(reviewer.reviews(), 4);
}

#[tokio::test]
async fn concurrent_requests_share_one_review() {
    for (token, known) in [("good-jane", true), ("bad", false)] {
        let (reviewer, gate) = Reviewer::start(by_name).await;
        let tokens = reviewer.tokens(TokenReviews::default());
        let closed = gate.acquire().await.unwrap();
        let open = async {
            reviewer.asked.notified().await;
            drop(closed);
        };
        let (users, ()) = tokio::join!(join_all((0..20).map(|_| tokens.user(token))), open);
        assert!(users.iter().all(|user| user.is_ok() == known), "{users:?}");
        assert_eq!(reviewer.reviews(), 1);
    }
}

#[tokio::test]
async fn a_review_outlives_the_request_that_started_it() {
    let (reviewer, gate) = Reviewer::start(by_name).await;
    let tokens = reviewer.tokens(TokenReviews::default());
    let closed = gate.acquire().await.unwrap();
    tokio::select! {
        _ = tokens.user("good-jane") => panic!("the answer is held back"),
        () = reviewer.asked.notified() => {}
    }
    drop(closed);
    assert_eq!(tokens.user("good-jane").await.unwrap().name, "jane");
    assert_eq!(reviewer.reviews(), 1);
}

#[tokio::test]
async fn a_token_for_another_audience_is_rejected() {
    let for_audience = |token: String, asked: Vec<String>| {
        assert_eq!(asked, ["api", "other"]);
        let audiences = token.strip_prefix("for-").map(|audience| vec![audience.to_owned()]);
        Some(TokenReviewStatus { audiences, ..good("jane") })
    };
    let (reviewer, _gate) = Reviewer::start(for_audience).await;
    let audiences = vec!["api".to_owned(), "other".to_owned()];
    let tokens = reviewer.tokens(TokenReviews { audiences, ..TokenReviews::default() });
    for (token, known) in [("for-api", true), ("for-other", true), ("for-none", false), ("for all", true)] {
        assert_eq!(tokens.user(token).await.is_ok(), known, "{token}");
    }
    assert_eq!(tokens.user("for-none").await, Err(Unauthenticated::Rejected));
    let (reviewer, _gate) = Reviewer::start(|_, asked| {
        assert!(asked.is_empty());
        Some(TokenReviewStatus { audiences: Some(vec!["api".to_owned()]), ..good("jane") })
    })
    .await;
    assert!(reviewer.tokens(TokenReviews::default()).user("t").await.is_ok());
}

#[tokio::test]
async fn a_failed_review_is_not_cached() {
    let statuses = [
        None,
        Some(TokenReviewStatus { user: None, ..good("") }),
        Some(good("")),
        // Even together with a group: an authenticated user is not anonymous.
        Some(good("system:anonymous")),
    ];
    for status in statuses {
        let given = status.clone();
        let (reviewer, _gate) = Reviewer::start(move |_, _| given.clone()).await;
        let tokens = reviewer.tokens(TokenReviews { failure_ttl: TTL, ..TokenReviews::default() });
        for reviews in 1..=2 {
            assert_eq!(tokens.user("t").await, Err(Unauthenticated::Unavailable), "{status:?}");
            assert_eq!(reviewer.reviews(), reviews);
        }
    }
}

#[tokio::test]
async fn cached_verdicts_hold_while_the_reviewer_is_unreachable() {
    let (reviewer, _gate) = Reviewer::start(by_name).await;
    let tokens = reviewer.tokens(TokenReviews::default());
    tokens.user("good-jane").await.unwrap();
    drop(reviewer);
    assert_eq!(tokens.user("good-jane").await.unwrap().name, "jane");
    assert_eq!(tokens.user("good-joe").await, Err(Unauthenticated::Unavailable));
    pass(TTL).await;
    assert_eq!(tokens.user("good-jane").await, Err(Unauthenticated::Unavailable));
}

#[tokio::test]
async fn a_token_is_believed_while_the_reviewer_cannot_be_reached() {
    let (reviewer, _gate) = Reviewer::start(by_name).await;
    let tokens = reviewer.tokens(TokenReviews { away_ttl: 5 * TTL, ..TokenReviews::default() });
    tokens.user("good-jane").await.unwrap();
    drop(reviewer);
    for _ in 0..4 {
        pass(TTL).await;
        assert_eq!(tokens.user("good-jane").await.unwrap().name, "jane");
    }
    assert_eq!(tokens.user("good-joe").await, Err(Unauthenticated::Unavailable), "not known");
    tokens.set(TokenReviews { away_ttl: 4 * TTL, ..TokenReviews::default() });
    assert_eq!(tokens.user("good-jane").await, Err(Unauthenticated::Unavailable), "by other rules");
}

#[tokio::test]
async fn a_token_is_believed_neither_beyond_its_time_nor_beyond_its_expiry() {
    let (reviewer, _gate) = Reviewer::start(|_, _| Some(good("jane"))).await;
    let tokens = reviewer.tokens(TokenReviews { away_ttl: 3 * TTL, ..TokenReviews::default() });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let expires = web_token(&(now + 15).to_string());
    for token in [&expires, "opaque"] {
        tokens.user(token).await.unwrap();
    }
    drop(reviewer);
    pass(TTL).await;
    for token in [&expires, "opaque"] {
        tokens.user(token).await.unwrap();
    }
    pass(TTL).await;
    assert_eq!(tokens.user(&expires).await, Err(Unauthenticated::Unavailable));
    tokens.user("opaque").await.unwrap();
    pass(TTL).await;
    assert_eq!(tokens.user("opaque").await, Err(Unauthenticated::Unavailable));
}

#[tokio::test]
async fn a_token_that_was_rejected_is_not_believed() {
    let answers = AtomicUsize::new(0);
    let is_first = move || answers.fetch_add(1, Ordering::SeqCst) == 0;
    let (reviewer, _gate) = Reviewer::start(move |_, _| Some(if is_first() { good("jane") } else { bad() })).await;
    let tokens = reviewer.tokens(TokenReviews { away_ttl: 9 * TTL, ..TokenReviews::default() });
    tokens.user("t").await.unwrap();
    pass(TTL).await;
    assert_eq!(tokens.user("t").await, Err(Unauthenticated::Rejected));
    drop(reviewer);
    assert_eq!(tokens.user("t").await, Err(Unauthenticated::Unavailable));
}

#[tokio::test]
async fn beyond_the_limit_of_reviews_there_is_no_verdict() {
    let (reviewer, _gate) = Reviewer::start(by_name).await;
    let tokens = reviewer.tokens(TokenReviews::default());
    tokens.user("good-jane").await.unwrap();
    let at = |number: usize| ClientKey::of(&number);
    let _under_way: Vec<_> =
        (0..UNDER_WAY.most).map(|number| tokens.ask(&number.to_string(), at(number % 4))).collect();
    assert_eq!(tokens.user("good-joe").await, Err(Unauthenticated::Unavailable));
    assert!(tokens.user("good-jane").await.is_ok());
}

#[tokio::test]
async fn invented_tokens_of_one_address_do_not_block_reviews_of_others() {
    let (reviewer, gate) = Reviewer::start(by_name).await;
    let tokens = reviewer.tokens(TokenReviews::default());
    tokens.user("good-jane").await.unwrap();
    let closed = gate.acquire().await.unwrap();
    let hostile = ClientKey::of(&"hostile");
    let under_way: Vec<_> = (0..500).map(|number| tokens.ask(&number.to_string(), hostile)).collect();
    let (_, verdicts) = tokio::join!(async { drop(closed) }, join_all(under_way));
    let refused = verdicts.iter().filter(|verdict| **verdict == Err(Unauthenticated::Unavailable)).count();
    assert_eq!(refused + reviewer.reviews(), 501);
    assert!(reviewer.reviews() < 126, "{}: none once many were refused", reviewer.reviews());
    let closed = gate.acquire().await.unwrap();
    let _held: Vec<_> = (0..125).map(|number| tokens.ask(&format!("more-{number}"), hostile)).collect();
    assert_eq!(tokens.ask("good-joe", hostile).await, Err(Unauthenticated::Unavailable));
    drop(closed);
    assert!(tokens.user("good-joe").await.is_ok(), "of another address");
    assert!(tokens.user("good-jane").await.is_ok());
}

#[tokio::test]
async fn a_reviewed_token_counts_for_its_user() {
    let (reviewer, _gate) = Reviewer::start(by_name).await;
    let tokens = reviewer.tokens(TokenReviews { success_ttl: Duration::ZERO, ..TokenReviews::default() });
    assert_eq!(tokens.client(b"good-jane"), None);
    tokens.user("good-jane").await.unwrap();
    tokens.user("bad").await.unwrap_err();
    assert_eq!(tokens.client(b"good-jane"), Some(ClientKey::user("jane")));
    assert_eq!(tokens.client(b"bad"), None);
}

#[tokio::test]
async fn changed_audiences_invalidate_every_token() {
    let (reviewer, _gate) = Reviewer::start(|_, audiences| {
        let is_for_us = audiences.is_empty() || audiences == ["ours"];
        if is_for_us { Some(good("jane")) } else { Some(TokenReviewStatus::default()) }
    })
    .await;
    let tokens = reviewer.tokens(TokenReviews::default());
    tokens.user("t").await.unwrap();
    assert!(tokens.known(b"t", Instant::now()).is_some());
    tokens.set(TokenReviews::default());
    assert!(tokens.known(b"t", Instant::now()).is_some(), "nothing has changed");
    let audiences = vec!["others".to_owned()];
    tokens.set(TokenReviews { audiences, ..TokenReviews::default() });
    assert!(tokens.known(b"t", Instant::now()).is_none());
    assert_eq!(tokens.user("t").await.unwrap_err(), Unauthenticated::Rejected);
    tokens.set(TokenReviews { audiences: vec!["ours".to_owned()], ..TokenReviews::default() });
    tokens.user("t").await.unwrap();
}

#[tokio::test]
async fn tokens_are_cached_as_keyed_hashes() {
    let (reviewer, _gate) = Reviewer::start(by_name).await;
    let (first, second) = (reviewer.tokens(TokenReviews::default()), reviewer.tokens(TokenReviews::default()));
    assert_eq!(first.reviewed().hash(b"t"), first.reviewed().hash(b"t"));
    assert_ne!(first.reviewed().hash(b"t"), first.reviewed().hash(b"u"));
    assert_ne!(first.reviewed().hash(b"t"), second.reviewed().hash(b"t"));
    first.user("good-s3cret").await.unwrap();
    assert!(!format!("{first:?}").contains("s3cret"));
}

#[tokio::test]
async fn an_accepted_token_does_not_wait_for_invented_ones() {
    let (reviewer, gate) = Reviewer::start(by_name).await;
    let tokens = reviewer.tokens(TokenReviews { success_ttl: Duration::ZERO, ..TokenReviews::default() });
    tokens.user("good-jane").await.unwrap();
    let closed = gate.acquire().await.unwrap();
    let address = ClientKey::address(None);
    let invented = 0..share_of(UNDER_WAY.most);
    let _queue: Vec<_> = invented.map(|number| tokens.ask(&number.to_string(), address)).collect();
    reviewer.asked_for(1 + AT_ONCE).await;
    let jane = tokens.ask("good-jane", address);
    reviewer.asked_for(1 + AT_ONCE + 1).await;
    drop(closed);
    assert!(jane.await.is_ok());
}

#[tokio::test]
async fn after_many_refusals_a_new_token_is_reviewed_once_upstream_has_accepted_it() {
    let (reviewer, _gate) = Reviewer::start(by_name).await;
    let tokens = reviewer.tokens(TokenReviews { success_ttl: Duration::ZERO, ..TokenReviews::default() });
    let [hostile, other] = ["hostile", "other"].map(|name| ClientKey::of(&name));
    tokens.ask("good-jane", hostile).await.unwrap();
    for _ in 0..400 {
        tokens.learn(Some("bad"), hostile, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(tokens.ask("good-joe", hostile).await, Err(Unauthenticated::Unavailable));
    // Neither says that the token is valid.
    for status in [StatusCode::UNAUTHORIZED, StatusCode::SERVICE_UNAVAILABLE] {
        tokens.learn(Some("good-joe"), hostile, status);
    }
    assert_eq!((reviewer.reviews(), tokens.client(b"good-joe")), (1, None));
    tokens.ask("good-jane", hostile).await.expect("a token that was accepted before");
    tokens.ask("good-jim", other).await.expect("a token of another address");
    for (reviews, status) in [(4, StatusCode::OK), (5, StatusCode::FORBIDDEN)] {
        let token = format!("good-{status}");
        tokens.learn(Some(&token), hostile, status);
        // Joins the review, or is one of a known token.
        tokens.ask(&token, hostile).await.expect("a token that upstream has accepted");
        assert!(reviewer.reviews() >= reviews);
    }
}

#[tokio::test]
async fn waiting_reviews_of_an_address_are_not_sent_after_many_refusals() {
    let (reviewer, gate) = Reviewer::start(by_name).await;
    let tokens = reviewer.tokens(TokenReviews::default());
    let closed = gate.acquire().await.unwrap();
    let address = ClientKey::of(&"hostile");
    let waiting: Vec<_> = (0..2 * AT_ONCE).map(|number| tokens.ask(&number.to_string(), address)).collect();
    reviewer.asked_for(AT_ONCE).await;
    for _ in 0..400 {
        tokens.learn(None, address, StatusCode::UNAUTHORIZED);
    }
    drop(closed);
    let verdicts = join_all(waiting).await;
    let unsent = verdicts.iter().filter(|verdict| **verdict == Err(Unauthenticated::Unavailable)).count();
    assert_eq!((unsent, reviewer.reviews()), (AT_ONCE, AT_ONCE));
}

#[tokio::test]
async fn rejected_reviews_count_also_if_their_requests_are_gone() {
    let (reviewer, _gate) = Reviewer::start(by_name).await;
    let tokens = reviewer.tokens(TokenReviews::default());
    let address = ClientKey::of(&"hostile");
    for start in (0..400).step_by(50) {
        // Nothing is learned from requests.
        join_all((start..start + 50).map(|number| tokens.ask(&number.to_string(), address))).await;
    }
    assert!(reviewer.reviews() < 400, "{}", reviewer.reviews());
    assert_eq!(tokens.ask("good-joe", address).await, Err(Unauthenticated::Unavailable));
}

#[tokio::test]
async fn a_token_that_was_revoked_is_limited_like_one_that_never_was_valid() {
    let is_revoked = Arc::new(AtomicBool::new(false));
    let revoked = is_revoked.clone();
    let answer =
        move |token, audiences| if revoked.load(Ordering::SeqCst) { Some(bad()) } else { by_name(token, audiences) };
    let (reviewer, _gate) = Reviewer::start(answer).await;
    let tokens = reviewer.tokens(TokenReviews { success_ttl: Duration::ZERO, ..TokenReviews::default() });
    let address = ClientKey::of(&"hostile");
    tokens.ask("good-jane", address).await.unwrap();
    is_revoked.store(true, Ordering::SeqCst);
    for _ in 0..400 {
        assert!(tokens.ask("good-jane", address).await.is_err());
    }
    assert!(reviewer.reviews() < 300, "{}", reviewer.reviews());
}
