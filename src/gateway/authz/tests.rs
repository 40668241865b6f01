//! Permits and leases, with a test server that answers reviews.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use futures_util::{FutureExt, future};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewStatus};
use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};

use super::{Attributes, Authorizer, Config, Lease, LeaseState, NotPermitted};
use crate::{
    connector::test_server::{TestServer, full},
    upstream::Upstream,
};
use base::{
    apimachinery::{RequestInfo, Target, UserInfo},
    fairness::ClientKey,
    lifecycle::Tasks,
    telemetry::CapturedLog,
};

const PODS: &str = "/api/v1/pods";

/// A server that answers reviews by `rule` when a permit is available, and counts them.
struct Reviewer {
    server: TestServer,
    asked: Arc<AtomicUsize>,
    /// Notified of each review that arrives.
    came: Arc<Notify>,
    /// One permit for each review that may be answered.
    answers: Arc<Semaphore>,
}

impl Reviewer {
    /// `rule` gets a user's name and the number of earlier reviews, and says whether the user is allowed; `None` breaks
    /// the review.
    async fn start(rule: impl Fn(&str, usize) -> Option<bool> + Send + Sync + 'static) -> Self {
        let (asked, came) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
        let answers = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let (rule, shared) = (Arc::new(rule), (asked.clone(), came.clone(), answers.clone()));
        let server = TestServer::start(move |request| {
            let (rule, (asked, came, answers)) = (rule.clone(), shared.clone());
            async move {
                let before = asked.fetch_add(1, SeqCst);
                came.notify_one();
                answers.acquire().await.unwrap().forget();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let mut review: SubjectAccessReview = serde_json::from_slice(&body).unwrap();
                let verdict = rule(review.spec.user.as_deref().unwrap(), before);
                let status = |allowed| SubjectAccessReviewStatus { allowed, ..Default::default() };
                review.status = verdict.map(status);
                let mut answer = Response::new(full(serde_json::to_vec(&review).unwrap()));
                let broken = verdict.is_none() && before % 2 == 0;
                *answer.status_mut() = if broken { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::CREATED };
                answer
            }
        })
        .await;
        Self { server, asked, came, answers }
    }

    fn authorizer(&self) -> Authorizer {
        self.authorizer_with(Duration::from_secs(10))
    }

    fn authorizer_with(&self, allowed_ttl: Duration) -> Authorizer {
        authorizer_at(self.server.upstream(), allowed_ttl)
    }

    fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }

    async fn asked_for(&self, count: usize) {
        while self.asked() < count {
            self.came.notified().await;
        }
    }
}

fn authorizer_at(upstream: Upstream, allowed_ttl: Duration) -> Authorizer {
    let seconds = Duration::from_secs;
    let away_ttl = Duration::ZERO;
    let config = Config { allowed_ttl, denied_ttl: seconds(20), away_ttl, watch_interval: seconds(300) };
    Authorizer::delegated(config, upstream, Tasks::new())
}

fn attributes(url: &str) -> Attributes {
    let (path, query) = url.split_once('?').map_or((url, None), |(path, query)| (path, Some(query)));
    let info = RequestInfo::parse(&http::Method::GET, path, query);
    let Target::Resource(request) = &info.target else { panic!("{url} is no resource") };
    Attributes::of(info.verb, request, query)
}

fn user(name: &str) -> Arc<UserInfo> {
    Arc::new(UserInfo { name: name.to_owned(), ..Default::default() })
}

async fn ask(authorizer: &Authorizer, name: &str, url: &str) -> Result<(), NotPermitted> {
    ask_as(authorizer, ClientKey::user(name), name, url).await
}

/// As `ask`, but accounted to `client`.
async fn ask_as(authorizer: &Authorizer, client: ClientKey, name: &str, url: &str) -> Result<(), NotPermitted> {
    authorizer.authorize(user(name), attributes(url), client).await.map(drop)
}

/// Lets time pass between two questions, when no review is in flight that could time out.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn verdicts_are_cached_for_their_ttl() {
    let reviewer = Reviewer::start(|name, _| Some(name == "jane")).await;
    let authorizer = reviewer.authorizer();
    let (jane, joe) = (Ok(()), Err(NotPermitted::Denied));
    for asked in [[1, 2], [2, 2]] {
        assert_eq!((ask(&authorizer, "jane", PODS).await, reviewer.asked()), (jane, asked[0]));
        assert_eq!((ask(&authorizer, "joe", PODS).await, reviewer.asked()), (joe, asked[1]));
    }
    pass(Duration::from_secs(11)).await;
    assert_eq!((ask(&authorizer, "joe", PODS).await, reviewer.asked()), (joe, 2));
    assert_eq!((ask(&authorizer, "jane", PODS).await, reviewer.asked()), (jane, 3));
    pass(Duration::from_secs(10)).await;
    assert_eq!((ask(&authorizer, "joe", PODS).await, reviewer.asked()), (joe, 4));
}

#[tokio::test]
async fn each_user_and_each_request_has_a_verdict_of_its_own() {
    let reviewer = Reviewer::start(|_, _| Some(true)).await;
    let authorizer = reviewer.authorizer();
    let urls = [PODS, "/api/v1/pods?watch=1", "/api/v1/namespaces/a/pods", "/api/v1/pods?labelSelector=a"];
    for (asked, url) in urls.into_iter().enumerate() {
        ask(&authorizer, "jane", url).await.unwrap();
        ask(&authorizer, "jane", url).await.unwrap();
        assert_eq!(reviewer.asked(), asked + 1, "{url}");
    }
    ask(&authorizer, "joe", PODS).await.unwrap();
    let in_another_group = UserInfo { groups: vec!["g".to_owned()], ..(*user("jane")).clone() };
    authorizer.authorize(Arc::new(in_another_group), attributes(PODS), ClientKey::user("jane")).await.unwrap();
    assert_eq!(reviewer.asked(), urls.len() + 2);
}

#[tokio::test]
async fn concurrent_questions_share_one_review() {
    let reviewer = Reviewer::start(|_, _| Some(true)).await;
    let authorizer = reviewer.authorizer();
    reviewer.answers.forget_permits(Semaphore::MAX_PERMITS);
    // Dropping the first request does not cancel the review for the others.
    let goes_away = ask(&authorizer, "jane", PODS).now_or_never();
    assert_eq!(goes_away, None);
    let release = async {
        reviewer.came.notified().await;
        reviewer.answers.add_permits(1);
    };
    let answers = tokio::join!(ask(&authorizer, "jane", PODS), ask(&authorizer, "jane", PODS), release);
    assert_eq!((answers.0, answers.1, reviewer.asked()), (Ok(()), Ok(()), 1));
}

#[tokio::test]
async fn without_a_verdict_only_cached_permits_are_used() {
    // The second and third reviews fail: one with an error status, the other without a status.
    let reviewer = Reviewer::start(|_, before| if before == 0 { Some(true) } else { None }).await;
    let authorizer = reviewer.authorizer();
    assert_eq!(ask(&authorizer, "jane", PODS).await, Ok(()));
    for asked in [2, 3] {
        assert_eq!(ask(&authorizer, "joe", PODS).await, Err(NotPermitted::NoVerdict));
        assert_eq!(reviewer.asked(), asked);
        assert_eq!(ask(&authorizer, "jane", PODS).await, Ok(()));
    }
    pass(Duration::from_secs(11)).await;
    assert_eq!(ask(&authorizer, "jane", PODS).await, Err(NotPermitted::NoVerdict));
}

#[tokio::test]
async fn what_was_allowed_is_believed_while_the_reviewer_cannot_be_reached() {
    let reviewer = Reviewer::start(|name, before| Some(name == "jane" || before == 1)).await;
    let seconds = Duration::from_secs;
    let (allowed_ttl, denied_ttl, watch_interval) = (seconds(10), seconds(10), seconds(300));
    let config = Config { allowed_ttl, denied_ttl, away_ttl: seconds(60), watch_interval };
    let authorizer = Authorizer::delegated(config, reviewer.server.upstream(), Tasks::new());
    for name in ["jane", "joe"] {
        assert_eq!(ask(&authorizer, name, PODS).await, Ok(()));
    }
    pass(seconds(11)).await;
    assert_eq!(ask(&authorizer, "joe", PODS).await, Err(NotPermitted::Denied));
    drop(reviewer);
    pass(seconds(11)).await;
    for _ in 0..2 {
        assert_eq!(ask(&authorizer, "jane", PODS).await, Ok(()));
        for (name, url) in [("joe", PODS), ("jim", PODS), ("jane", "/api/v1/secrets")] {
            assert_eq!(ask(&authorizer, name, url).await, Err(NotPermitted::NoVerdict), "{name} {url}");
        }
        pass(seconds(2)).await;
    }
    pass(seconds(40)).await;
    assert_eq!(ask(&authorizer, "jane", PODS).await, Err(NotPermitted::NoVerdict));
}

#[tokio::test]
async fn verdicts_on_large_attributes_are_not_cached() {
    let reviewer = Reviewer::start(|_, _| Some(true)).await;
    let authorizer = reviewer.authorizer();
    for (length, asked) in [(9_000, 1), (10_000, 2)] {
        let url = format!("{PODS}?fieldSelector=a={}", "x".repeat(length));
        for time in 0..2 {
            ask(&authorizer, "jane", &url).await.unwrap();
            assert_eq!(reviewer.asked(), if length > 9_000 { asked + time } else { asked });
        }
    }
}

#[tokio::test]
async fn verdicts_of_a_cluster_that_was_replaced_are_not_used() {
    // The first answer is of the old cluster.
    let reviewer = Reviewer::start(|_, before| Some(before == 0)).await;
    let upstream = reviewer.server.upstream();
    let authorizer = authorizer_at(upstream.clone(), Duration::from_secs(10));
    assert_eq!(ask(&authorizer, "jane", PODS).await, Ok(()));
    assert!(authorizer.known(&user("jane"), &attributes(PODS), Instant::now()).unwrap().is_ok());
    upstream.storage().replaced();
    assert!(authorizer.known(&user("jane"), &attributes(PODS), Instant::now()).is_none());
    assert_eq!(ask(&authorizer, "jane", PODS).await, Err(NotPermitted::Denied));
    assert_eq!(reviewer.asked(), 2);
}

#[tokio::test]
async fn the_reviews_in_flight_are_limited() {
    let reviewer = Reviewer::start(|_, _| Some(true)).await;
    let authorizer = reviewer.authorizer();
    // No other task runs until this test awaits.
    for number in 0..2000 {
        let client = ClientKey::of(&(number % 8));
        assert_eq!(ask_as(&authorizer, client, &number.to_string(), PODS).now_or_never(), None);
    }
    assert_eq!(ask(&authorizer, "jane", PODS).now_or_never(), Some(Err(NotPermitted::Unasked)));
    assert_eq!(ask(&authorizer, "0", PODS).now_or_never(), None, "joins the first");
}

#[tokio::test]
async fn the_gateways_credentials_are_permitted_only_in_trusted_mode() {
    let reviewer = Reviewer::start(|_, _| Some(true)).await;
    assert_eq!(reviewer.authorizer().authorize_gateway(attributes(PODS)).unwrap_err(), NotPermitted::Denied);
    let trusted = Authorizer::trusted();
    assert!(trusted.authorize_gateway(attributes(PODS)).unwrap().into_lease().is_none());
    assert_eq!(ask(&trusted, "jane", PODS).await, Err(NotPermitted::NoVerdict));
    assert_eq!(reviewer.asked(), 0);
}

/// A lease for Jane that upstream has just confirmed.
async fn lease(authorizer: &Authorizer) -> Lease {
    let watch = attributes("/api/v1/pods?watch=1");
    let permit = authorizer.authorize(user("jane"), watch, ClientKey::user("jane")).await.unwrap();
    permit.into_lease().unwrap()
}

/// Behind a front proxy each watch has a user of its own, and may be sent one with many groups.
#[tokio::test]
async fn a_lease_counts_a_user_that_is_larger_than_usual() {
    let reviewer = Reviewer::start(|_, _| Some(true)).await;
    let authorizer = reviewer.authorizer();
    let usual = lease(&authorizer).await.own_bytes();
    let groups = (0..1000).map(|number| format!("{number:0100}")).collect();
    let large = Arc::new(UserInfo { name: "jane".to_owned(), groups, ..UserInfo::default() });
    let (watch, jane) = (attributes("/api/v1/pods?watch=1"), ClientKey::user("jane"));
    let permit = authorizer.authorize(large, watch, jane).await.unwrap();
    let bytes = permit.into_lease().unwrap().own_bytes() - usual;
    assert!((100_000..200_000).contains(&bytes), "{bytes}");
}

/// The state of a lease once no review is in flight.
async fn settled(lease: &mut Lease, now: Instant) -> LeaseState {
    poll_fn(|context| match lease.poll(now, context) {
        LeaseState::UnderReview | LeaseState::Overdue => Poll::Pending,
        state @ (LeaseState::Until(_) | LeaseState::Revoked | LeaseState::Unconfirmed) => Poll::Ready(state),
    })
    .await
}

#[tokio::test]
async fn a_lease_is_renewed_until_a_review_denies() {
    // Allowed, allowed again, no verdict, denied.
    let verdicts = [Some(true), Some(true), None, Some(false)];
    let reviewer = Reviewer::start(move |_, before| verdicts[before]).await;
    let mut lease = lease(&reviewer.authorizer()).await;
    let mut now = Instant::now();
    for asked in [2, 3] {
        let LeaseState::Until(due) = settled(&mut lease, now).await else { panic!("{lease:?}") };
        let wait = due.duration_since(now);
        assert!((Duration::from_secs(149)..=Duration::from_secs(300)).contains(&wait), "{wait:?}");
        assert_eq!(reviewer.asked(), asked - 1, "asked only when due");
        // Cached verdicts have expired by then.
        pass(wait).await;
        now = due;
        assert!(matches!(settled(&mut lease, now).await, LeaseState::Until(next) if next > due));
        assert_eq!(reviewer.asked(), asked);
    }
    let LeaseState::Until(due) = settled(&mut lease, now).await else { panic!("{lease:?}") };
    pass(due.duration_since(now)).await;
    assert_eq!(settled(&mut lease, due).await, LeaseState::Revoked);
}

#[tokio::test]
async fn a_user_with_many_reviews_does_not_block_other_users() {
    let reviewer = Reviewer::start(|_, _| Some(true)).await;
    let authorizer = reviewer.authorizer();
    reviewer.answers.forget_permits(Semaphore::MAX_PERMITS);
    for number in 0..300 {
        let url = format!("{PODS}?labelSelector=a%3D{number}");
        let verdict = ask(&authorizer, "jane", &url).now_or_never();
        assert_eq!(verdict, if number < 250 { None } else { Some(Err(NotPermitted::Unasked)) }, "{number}");
    }
    let (joe, ()) = tokio::join!(ask(&authorizer, "joe", PODS), async { reviewer.answers.add_permits(251) });
    assert_eq!(joe, Ok(()));
}

#[tokio::test]
async fn a_review_waits_for_few_reviews_of_another_user() {
    let place = Arc::new(AtomicUsize::new(0));
    let seen = place.clone();
    let reviewer = Reviewer::start(move |name, before| {
        if name == "joe" {
            seen.store(before, SeqCst);
        }
        Some(true)
    })
    .await;
    let authorizer = reviewer.authorizer();
    reviewer.answers.forget_permits(Semaphore::MAX_PERMITS);
    let urls: Vec<_> = (0..100).map(|number| format!("{PODS}?labelSelector=a%3D{number}")).collect();
    let jane = future::join_all(urls.iter().map(|url| ask(&authorizer, "jane", url)));
    let joe = async {
        reviewer.asked_for(5).await;
        let answered = async {
            reviewer.asked_for(6).await;
            reviewer.answers.add_permits(101);
        };
        tokio::join!(ask(&authorizer, "joe", PODS), answered).0
    };
    assert_eq!(tokio::join!(jane, joe), (vec![Ok(()); 100], Ok(())));
    assert_eq!((place.load(SeqCst), reviewer.asked()), (5, 101));
}

#[tokio::test]
async fn a_user_that_asks_something_new_all_the_time_is_reviewed_at_a_pace() {
    let reviewer = Reviewer::start(|_, _| Some(true)).await;
    let authorizer = reviewer.authorizer();
    let began = Instant::now();
    for some in 0..2 {
        let urls: Vec<_> = (0..100).map(|number| format!("{PODS}?labelSelector=a-{some}%3D{number}")).collect();
        let verdicts = future::join_all(urls.iter().map(|url| ask(&authorizer, "jane", url))).await;
        assert_eq!(verdicts, vec![Ok(()); 100], "all come to their turn");
        // Time that passes on a busy machine only allows more.
        let allowed = 41 + began.elapsed().as_millis() / 20;
        assert!(reviewer.asked() as u128 <= allowed, "{} reviews, {allowed} allowed", reviewer.asked());
    }
}

#[tokio::test]
async fn several_users_that_ask_much_share_what_is_free_of_the_pace() {
    let reviewer = Reviewer::start(|_, _| Some(true)).await;
    let authorizer = reviewer.authorizer();
    let began = Instant::now();
    let crowd = ["a", "b", "c", "d", "e"].map(|user| {
        let urls: Vec<_> = (0..60).map(|number| format!("{PODS}?labelSelector=a%3D{number}")).collect();
        let authorizer = &authorizer;
        async move { future::join_all(urls.iter().map(|url| ask(authorizer, user, url))).await }
    });
    assert_eq!(future::join_all(crowd).await.concat(), vec![Ok(()); 300], "all come to their turn");
    // Free are four of each and forty in all; in the time T there are T / 20 ms more of each, and T / 10 ms in all.
    // With forty free for each it would be 380 ms.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis((300 - 5 * 4 - 40) * 20 / 7), "{took:?}");
}

#[tokio::test]
async fn a_user_has_a_quarter_of_the_cached_verdicts() {
    const KEPT: usize = 8192 / 4;
    let reviewer = Reviewer::start(|_, _| Some(true)).await;
    let authorizer = reviewer.authorizer_with(Duration::from_secs(3600));
    let urls: Vec<_> = (0..KEPT + 50).map(|number| format!("{PODS}?labelSelector=a%3D{number}")).collect();
    for asked in [urls.len(), urls.len() + 50] {
        for some in urls.chunks(40) {
            future::join_all(some.iter().map(|url| ask(&authorizer, "jane", url))).await;
            // At the pace that a client may ask in the long run.
            pass(Duration::from_secs(2)).await;
        }
        assert_eq!(reviewer.asked(), asked, "those beyond it are asked for each time");
    }
    let asked = reviewer.asked();
    for _ in 0..2 {
        ask(&authorizer, "joe", PODS).await.unwrap();
        assert_eq!(reviewer.asked(), asked + 1);
    }
    // Expired verdicts release their share.
    pass(Duration::from_secs(3601)).await;
    for _ in 0..2 {
        ask(&authorizer, "jane", PODS).await.unwrap();
        ask(&authorizer, "jane", &urls[KEPT + 1]).await.unwrap();
        assert_eq!(reviewer.asked(), asked + 3);
    }
}

#[tokio::test]
async fn a_question_that_waits_too_long_for_its_turn_has_no_verdict() {
    let reviewer = Reviewer::start(|_, _| Some(true)).await;
    let authorizer = reviewer.authorizer();
    reviewer.answers.forget_permits(Semaphore::MAX_PERMITS);
    let urls: Vec<_> = (0..6).map(|number| format!("{PODS}?labelSelector=a%3D{number}")).collect();
    let asked = future::join_all(urls.iter().map(|url| ask(&authorizer, "jane", url)));
    let later = async {
        reviewer.asked_for(5).await;
        // Less than the timeout of a review.
        pass(Duration::from_secs(6)).await;
        reviewer.answers.add_permits(9);
    };
    let (mut verdicts, ()) = tokio::join!(asked, later);
    assert_eq!((verdicts.pop(), reviewer.asked()), (Some(Err(NotPermitted::Unasked)), 5));
    assert_eq!(verdicts, [Ok(()); 5]);
}

#[tokio::test]
async fn a_lease_whose_review_waits_for_a_turn_counts_as_busy() {
    let reviewer = Reviewer::start(|_, _| Some(true)).await;
    let authorizer = reviewer.authorizer();
    let mut lease = lease(&authorizer).await;
    pass(Duration::from_secs(300)).await;
    reviewer.answers.forget_permits(Semaphore::MAX_PERMITS);
    let before = reviewer.asked();
    let urls: Vec<_> = (0..5).map(|number| format!("{PODS}?labelSelector=a%3D{number}")).collect();
    let flood = future::join_all(urls.iter().map(|url| ask(&authorizer, "jane", url)));
    let renewal = async {
        reviewer.asked_for(before + 5).await;
        // The client asks for what its lease is for: this review waits in the client's line, and the renewal joins it.
        let joined = ask(&authorizer, "jane", "/api/v1/pods?watch=1");
        let renewed = async { settled(&mut lease, Instant::now()).await };
        let later = async {
            // The review begins to wait.
            tokio::task::yield_now().await;
            pass(Duration::from_secs(6)).await;
            reviewer.answers.add_permits(5);
        };
        let (joined, renewed, ()) = tokio::join!(joined, renewed, later);
        assert_eq!(joined, Err(NotPermitted::Unasked));
        renewed
    };
    let (_, renewed) = tokio::join!(flood, renewal);
    let LeaseState::Until(next) = renewed else { panic!("{renewed:?}") };
    assert!(next <= Instant::now() + Duration::from_secs(300 / 8), "it is tried again soon, not after an interval");
}

#[tokio::test]
async fn requests_with_equal_attributes_share_one_verdict() {
    let reviewer = Reviewer::start(|_, _| Some(true)).await;
    let authorizer = reviewer.authorizer();
    for query in [
        "",
        "?resourceVersion=0",
        "?resourceVersion=12345&resourceVersionMatch=NotOlderThan",
        "?limit=7&continue=abc",
        "?timeoutSeconds=3&pretty=true&unknown=x",
        "?labelSelector=&fieldSelector=",
    ] {
        ask(&authorizer, "jane", &format!("{PODS}{query}")).await.unwrap();
    }
    let in_any_order = ["b%3D1%2Ca%3D2", "a%3D2%2Cb%3D1", "a+in+(2)%2Cb%3D%3D1", "a%3D2%2Cn>5%2Cb%3D1"];
    for selector in in_any_order {
        ask(&authorizer, "jane", &format!("{PODS}?labelSelector={selector}")).await.unwrap();
    }
    assert_eq!(reviewer.asked(), 2);
}

#[tokio::test]
async fn leases_are_reviewed_despite_a_flood_of_requests() {
    let reviewer = Reviewer::start(|name, before| Some(before == 0 || name != "jane")).await;
    let authorizer = reviewer.authorizer();
    let mut lease = lease(&authorizer).await;
    pass(Duration::from_secs(300)).await;
    for number in 0..2000 {
        let client = ClientKey::of(&(number % 8));
        assert_eq!(ask_as(&authorizer, client, &number.to_string(), PODS).now_or_never(), None);
    }
    assert_eq!(ask(&authorizer, "joe", PODS).now_or_never(), Some(Err(NotPermitted::Unasked)), "all is taken");
    assert_eq!(settled(&mut lease, Instant::now()).await, LeaseState::Revoked);
}

/// Follows a lease until it ends; returns the time since it was last confirmed.
async fn lasts(lease: &mut Lease) -> Duration {
    let began = Instant::now();
    loop {
        match settled(lease, Instant::now()).await {
            LeaseState::Until(due) => pass(due.duration_since(Instant::now())).await,
            LeaseState::Unconfirmed => return began.elapsed(),
            state @ (LeaseState::UnderReview | LeaseState::Overdue | LeaseState::Revoked) => panic!("{state:?}"),
        }
    }
}

#[tokio::test]
async fn a_lease_that_finds_no_room_for_its_review_ends() {
    let reviewer = Reviewer::start(|_, _| Some(true)).await;
    let authorizer = reviewer.authorizer();
    let mut lease = lease(&authorizer).await;
    // Reviews for many other watches of the same user are in flight, and remain so.
    let mut others = Vec::new();
    for number in 0..250 {
        let watch = attributes(&format!("/api/v1/pods?watch=1&labelSelector=a%3D{number}"));
        let permit = authorizer.authorize(user("jane"), watch, ClientKey::user("jane")).await.unwrap();
        others.push(permit.into_lease().unwrap());
    }
    pass(Duration::from_secs(300)).await;
    reviewer.answers.forget_permits(Semaphore::MAX_PERMITS);
    for other in &mut others {
        let state = poll_fn(|context| Poll::Ready(other.poll(Instant::now(), context))).await;
        assert_eq!(state, LeaseState::UnderReview);
    }
    // No other task runs until this test awaits.
    let began = Instant::now();
    let mut now = began;
    let ended = loop {
        let state = poll_fn(|context| Poll::Ready(lease.poll(now, context))).await;
        let LeaseState::Until(due) = state else { break state };
        now = due;
    };
    // Three intervals after the confirmation, which was one interval earlier.
    let lasted = now.duration_since(began);
    assert_eq!(ended, LeaseState::Unconfirmed);
    assert!((Duration::from_secs(590)..=Duration::from_secs(600)).contains(&lasted), "{lasted:?}");
}

#[tokio::test]
async fn a_lease_ends_when_upstream_gives_no_verdict_for_an_hour() {
    let reviewer = Reviewer::start(|_, before| (before == 0).then_some(true)).await;
    let authorizer = reviewer.authorizer();
    let lasted = lasts(&mut lease(&authorizer).await).await;
    assert!((Duration::from_secs(3600)..Duration::from_secs(3660)).contains(&lasted), "{lasted:?}");
}

#[tokio::test]
async fn what_is_believed_confirms_no_lease() {
    let reviewer = Reviewer::start(|_, _| Some(true)).await;
    let seconds = Duration::from_secs;
    let (allowed_ttl, denied_ttl, watch_interval) = (seconds(10), seconds(10), seconds(300));
    let config = Config { allowed_ttl, denied_ttl, away_ttl: seconds(3600), watch_interval };
    let authorizer = Authorizer::delegated(config, reviewer.server.upstream(), Tasks::new());
    let (mut lease, began) = (lease(&authorizer).await, Instant::now());
    drop(reviewer);
    while let LeaseState::Until(due) = settled(&mut lease, Instant::now()).await {
        pass(due.duration_since(Instant::now())).await;
        let believed = ask(&authorizer, "jane", "/api/v1/pods?watch=1").await;
        assert_eq!(believed.is_ok(), began.elapsed() < seconds(3600));
    }
    assert!(began.elapsed() < seconds(3660), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_lease_without_a_verdict_ends_after_three_intervals_if_others_get_one() {
    let reviewer = Reviewer::start(|name, before| (before == 0 || name == "joe").then_some(true)).await;
    let authorizer = reviewer.authorizer();
    let mut lease = lease(&authorizer).await;
    let began = Instant::now();
    let ended = loop {
        // Upstream answers other reviews all the time.
        ask(&authorizer, "joe", PODS).await.unwrap();
        match settled(&mut lease, Instant::now()).await {
            LeaseState::Until(due) => pass(due.duration_since(Instant::now())).await,
            ended @ (LeaseState::UnderReview | LeaseState::Overdue | LeaseState::Revoked | LeaseState::Unconfirmed) => {
                break ended;
            }
        }
    };
    assert_eq!(ended, LeaseState::Unconfirmed);
    let lasted = began.elapsed();
    assert!((Duration::from_secs(900)..Duration::from_secs(960)).contains(&lasted), "{lasted:?}");
}

#[tokio::test]
async fn an_overdue_lease_is_reviewed_before_anything_is_read() {
    let reviewer = Reviewer::start(|_, before| Some(before == 0)).await;
    let authorizer = reviewer.authorizer();
    let mut lease = lease(&authorizer).await;
    pass(Duration::from_secs(3000)).await;
    let first = poll_fn(|context| Poll::Ready(lease.poll(Instant::now(), context))).await;
    assert_eq!(first, LeaseState::Overdue);
    assert_eq!(settled(&mut lease, Instant::now()).await, LeaseState::Revoked);
}

#[tokio::test]
async fn the_log_says_once_that_access_cannot_be_reviewed_and_once_that_it_can_again() {
    let (log, _guard) = CapturedLog::start();
    let reviewer = Reviewer::start(|_, before| (before % 10 >= 5).then_some(true)).await;
    let authorizer = reviewer.authorizer_with(Duration::ZERO);
    for _ in 0..2 {
        for (expected, text) in [(Err(NotPermitted::NoVerdict), "cannot review access"), (Ok(()), "succeed again")] {
            for number in 0..5 {
                assert_eq!(ask(&authorizer, "jane", PODS).await, expected);
                assert_eq!(log.lines(text), usize::from(number == 0), "{number}: {text}");
            }
        }
    }
}
