//! Discovery and OpenAPI: what the API server last answered to the same question. A client that asks for it is given
//! the kept bytes if the API server says that they are still its answer to this client (RFC 9110, 13.1.2), which costs
//! it no body. So that clients can start while it is away, they are also given what cannot be confirmed.
//!
//! The latter is not for all. In `trusted` mode all clients ask as the gateway, so that one may see what another has
//! seen. In `delegated` mode, and only with `clients.awayTTL`, a client with a token is given what others have seen if
//! upstream has given that token an answer from the same path within that time, and the token is believed now.
//!
//! Invariants: an answer is kept for no question but its own, which includes all headers that the answer depends on;
//! never replaced by one that was asked for earlier, or by one of an API server that has just started, which may not
//! have all groups yet; and never given once the cluster was replaced.

mod copying;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter, sync::Cache};
use tokio::time::Instant;

use self::copying::{Copies, Copying};
use crate::{
    authn::{Authenticator, Credentials, Grant},
    serve,
    upstream::Upstream,
};
use base::{
    fairness::{ClientByteBudget, ReservedBytes},
    memo::{Bound, TtlCache},
    telemetry::{limit_reached, show_limit},
};

/// One answer takes at most this part of `cache.discoveryBytes`, so that the largest one does not displace all others.
const PART: u64 = 3;
/// The name of the limit.
const BYTES: &str = "discovery_bytes";
/// The maximum number of bytes of a question.
const QUESTION_MAX: usize = 1 << 10;
/// The only parameters, which client-go and kubectl send: of all questions, and of pages of OpenAPI. With others,
/// clients could fill the space for answers.
const PARAMETERS: [&str; 2] = [TIMEOUT, "hash="];
const TIMEOUT: &str = "timeout=";
/// Headers of proxies: the API server looks for the client's address in them, on which the lists of API groups depend.
const PROXIED: [&str; 2] = ["x-forwarded-for", "x-real-ip"];
/// Headers of an answer that has a body.
const OF_BODY: [HeaderName; 3] = [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::CONTENT_ENCODING];
/// The headers that are kept. Others may be for one client alone, as the cookie of a balancer.
const KEPT: [HeaderName; 7] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::ETAG,
    header::LAST_MODIFIED,
    header::VARY,
    header::CACHE_CONTROL,
    header::X_CONTENT_TYPE_OPTIONS,
];
/// What else lets an answer have no body, a part of it, or headers for one web page.
const CONDITIONS: [HeaderName; 4] = [header::RANGE, header::IF_MATCH, header::IF_UNMODIFIED_SINCE, header::ORIGIN];
/// Headers of a client that has an answer already.
const CACHED: [HeaderName; 2] = [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE];
/// What an answer takes besides its body and its question, in bytes.
const OVERHEAD: usize = 1 << 10;
/// How long an answer is of use: definitions that came later are missing in it.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);

/// Tokens with paths: 400 programs that ask for 50 paths each.
const GRANTS: Bound = Bound { most: 20_000, limit: "discovery_grants" };

/// How long an API server has to be back before its answers replace others.
const STARTING_MAX: Duration = Duration::from_secs(60);

/// The last answers. Cheap to clone.
#[derive(Clone)]
pub struct KeptDiscovery {
    answers: Arc<Cache<Question, Arc<Answer>, ByBytes>>,
    /// Which tokens were given what is at which paths.
    grants: Arc<TtlCache<[u8; 32], ()>>,
    copies: Copies,
    upstream: Upstream,
}

/// Path, query, and the headers on which the form of an answer depends, one per line.
type Question = Box<[u8]>;

#[derive(Clone, Debug)]
struct Answer {
    headers: HeaderMap,
    body: Bytes,
    asked_at: Instant,
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<Question, Arc<Answer>> for ByBytes {
    fn weight(&self, question: &Question, answer: &Arc<Answer>) -> u64 {
        (question.len() + answer.body.len() + OVERHEAD) as u64
    }
}

/// A question whose answer is kept.
#[derive(Debug)]
pub(super) struct AskedDiscovery {
    kept: KeptDiscovery,
    question: Question,
    /// For upstream's answer, if there is none yet.
    copying: Option<Copying>,
    at: Instant,
    if_none_match: Option<HeaderValue>,
    /// Whether the client may need no body.
    has_own: bool,
    asker: Asker,
}

#[derive(Clone, Copy, Debug)]
enum Asker {
    /// A client that asks as the gateway.
    Gateway,
    /// A client that may be believed while upstream is away.
    Granted(Grant),
    /// A client that is given nothing that upstream has not confirmed.
    Other,
}

/// An answer that upstream is asked to confirm, with the room for its body.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    kept: Arc<Answer>,
    room: ReservedBytes,
}

/// A body that takes its room until it was sent.
struct Sent {
    body: Bytes,
    _room: ReservedBytes,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// An answer on its way to the client.
#[derive(Debug)]
pub(super) struct KeepingDiscovery {
    asked: AskedDiscovery,
    headers: HeaderMap,
    copying: Copying,
}

impl KeptDiscovery {
    /// All answers together take at most `bytes`.
    pub fn new(upstream: Upstream, bytes: u64) -> Self {
        // One shard: an answer must fit into its shard's part.
        let options = OptionsBuilder::new().estimated_items_capacity(64).weight_capacity(bytes).shards(1).build();
        let options = options.expect("both capacities are given");
        let answers = Cache::with_options(options, ByBytes, DefaultHashBuilder::default(), Default::default());
        let answers = Arc::new(answers);
        let shown = Arc::downgrade(&answers);
        show_limit(BYTES, move || shown.upgrade().map(|answers| (answers.weight(), answers.capacity())));
        let answer_max = usize::try_from(bytes / PART).unwrap_or(usize::MAX);
        Self { answers, grants: Arc::new(TtlCache::new(GRANTS)), copies: Copies::new(bytes, answer_max), upstream }
    }

    /// The question of a request, if its answer is kept.
    pub(super) fn asked<B>(
        &self,
        request: &Request<B>,
        credentials: &Credentials,
        authenticator: &Authenticator,
    ) -> Option<AskedDiscovery> {
        let (uri, headers) = (request.uri(), request.headers());
        if request.method() != Method::GET
            || !is_discovery(uri.path())
            || !uri.query().is_none_or(has_usual_parameters)
            || !is_plain(headers)
        {
            return None;
        }
        let is_of_gateway = matches!(credentials, Credentials::Gateway { impersonates: false });
        let asker = match authenticator.grant(credentials, uri.path()) {
            Some(grant) => Asker::Granted(grant),
            None if is_of_gateway => Asker::Gateway,
            None => Asker::Other,
        };
        // The answer does not depend on the time that the client has for it.
        let asked: Vec<_> = parameters(uri.query().unwrap_or_default()).filter(|it| !it.starts_with(TIMEOUT)).collect();
        let mut question = [uri.path(), &asked.join("&")].join("?").into_bytes();
        for name in [header::ACCEPT, header::ACCEPT_ENCODING] {
            question.push(b'\n');
            question.extend_from_slice(headers.get(name).map_or(&[], HeaderValue::as_bytes));
        }
        let (at, if_none_match) = (Instant::now(), headers.get(header::IF_NONE_MATCH).cloned());
        let is_short = question.len() <= QUESTION_MAX;
        let has_own = CACHED.iter().any(|name| headers.contains_key(name));
        let (kept, question) = (self.clone(), question.into());
        is_short.then(|| AskedDiscovery { kept, question, copying: None, at, if_none_match, has_own, asker })
    }

    fn insert(&self, question: &Question, answer: Answer) {
        let earlier = self.answers.get(question);
        if earlier.as_ref().is_some_and(|earlier| earlier.asked_at > answer.asked_at) {
            return;
        }
        let answer = Arc::new(answer);
        let more = ByBytes.weight(question, &answer);
        if earlier.is_none() && self.answers.weight() + more > self.answers.capacity() {
            limit_reached(BYTES);
        }
        self.answers.insert(question.clone(), answer);
    }

    /// Whether the API server could be reached again a short time ago.
    fn is_starting(&self) -> bool {
        Instant::now().checked_sub(STARTING_MAX).is_some_and(|since| self.upstream.was_unreachable_since(since))
    }
}

impl AskedDiscovery {
    /// To be passed the body of upstream's answer; `None` if it is not kept.
    pub(super) fn keep<B>(mut self, answer: &Response<B>) -> Option<KeepingDiscovery> {
        self.learn(answer.status());
        if answer.status() == StatusCode::NOT_MODIFIED {
            self.confirm(answer.headers().get(header::ETAG));
        }
        if answer.status() != StatusCode::OK || self.kept.is_starting() && self.useful().is_some() {
            return None;
        }
        let copying = self.copying.take().or_else(|| self.kept.copies.begin(&self.question))?;
        let of = |name: &HeaderName| Some((name.clone(), answer.headers().get(name)?.clone()));
        let headers = KEPT.iter().filter_map(of).collect();
        Some(KeepingDiscovery { asked: self, headers, copying })
    }

    /// Upstream gives, or refuses, the token of the question what is at its path.
    fn learn(&self, status: StatusCode) {
        let Asker::Granted(Grant { hash, ttl }) = self.asker else { return };
        match status {
            StatusCode::OK | StatusCode::NOT_MODIFIED => self.kept.grants.insert(hash, (), ttl),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.kept.grants.remove(&hash),
            _ => {}
        }
    }

    /// Upstream still has the answer with that tag.
    fn confirm(&self, tag: Option<&HeaderValue>) {
        if let Some(answer) = self.useful().filter(|answer| tag.is_some() && tag == answer.headers.get(header::ETAG)) {
            self.kept.insert(&self.question, Answer { asked_at: self.at, ..Answer::clone(&answer) });
        }
    }

    fn useful(&self) -> Option<Arc<Answer>> {
        let storage = self.kept.upstream.storage();
        let is_useful = |at: Instant| at.elapsed() < KEPT_FOR && !storage.was_replaced_since(at);
        self.kept.answers.get(&self.question).filter(|answer| is_useful(answer.asked_at))
    }

    /// Before upstream is asked: waits for the answer that another client is given, if there is none yet.
    pub(super) async fn joined(mut self) -> Self {
        if !self.has_own && self.useful().is_none() {
            self.copying = self.kept.copies.join(&self.question).await;
            // What the other one's answer depends on may have changed since this question came.
            self.at = Instant::now();
        }
        self
    }

    /// Lets upstream answer without a body if it would answer as before, unless the client has no room for the body.
    pub(super) fn unconfirmed(&self, headers: &mut HeaderMap, room: &ClientByteBudget) -> Option<Unconfirmed> {
        let kept = self.useful().filter(|_| !self.has_own)?;
        // A weak one may be that of other bytes.
        let tag = kept.headers.get(header::ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"))?.clone();
        let room = room.take(kept.body.len())?;
        headers.insert(header::IF_NONE_MATCH, tag);
        Some(Unconfirmed { kept, room })
    }

    /// What upstream last answered, while it cannot be asked. Only for credentials that are still valid.
    pub(super) fn kept(&self) -> Option<Response<Bytes>> {
        match self.asker {
            Asker::Gateway => {}
            Asker::Granted(grant) => self.kept.grants.get(&grant.hash, Instant::now())?,
            Asker::Other => return None,
        }
        let answer = self.useful()?;
        let mut response = Response::new(answer.body.clone());
        *response.headers_mut() = answer.headers.clone();
        if self.has(answer.headers.get(header::ETAG)) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.body_mut() = Bytes::new();
            for of_body in OF_BODY {
                response.headers_mut().remove(of_body);
            }
        }
        response.headers_mut().insert(serve::AUDIT_ID, serve::new_audit_id(None));
        Some(response)
    }

    /// Whether the client has the answer with that tag already (RFC 9110, 13.1.2).
    fn has(&self, tag: Option<&HeaderValue>) -> bool {
        let known = self.if_none_match.as_ref().and_then(|known| known.to_str().ok());
        let tag = tag.and_then(|tag| tag.to_str().ok());
        known.zip(tag).is_some_and(|(known, tag)| known.split(',').any(|known| known.trim() == tag))
    }
}

impl Unconfirmed {
    /// The whole answer, if upstream has confirmed it.
    pub(super) fn confirmed<B>(self, answer: &Response<B>) -> Option<Response<Bytes>> {
        // Whatever tag it has: it was asked about no other one.
        if answer.status() != StatusCode::NOT_MODIFIED {
            return None;
        }
        let Self { kept, room } = self;
        let mut headers = answer.headers().clone();
        for name in OF_BODY {
            headers.remove(name);
        }
        for (name, value) in &kept.headers {
            if name == header::ETAG || !answer.headers().contains_key(name) || OF_BODY.contains(name) {
                headers.insert(name, value.clone());
            }
        }
        let mut response = Response::new(Bytes::from_owner(Sent { body: kept.body.clone(), _room: room }));
        *response.headers_mut() = headers;
        Some(response)
    }
}

impl KeepingDiscovery {
    /// The next bytes. False if there are too many of them.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        let has_room = self.copying.push(bytes);
        if !has_room {
            limit_reached(BYTES);
        }
        has_room
    }

    /// The body has ended.
    pub(super) fn end(self) {
        let Self { asked: AskedDiscovery { kept, question, at: asked_at, .. }, headers, mut copying } = self;
        kept.insert(&question, Answer { headers, body: copying.body().into(), asked_at });
    }
}

/// Whether no header but those of the question has an influence on the answer: `Connection` may name headers that do
/// not reach upstream, which takes the first of several lines.
fn is_plain(headers: &HeaderMap) -> bool {
    let is_single = |name| headers.get_all(name).iter().nth(1).is_none();
    let is_usual = |value: &HeaderValue| {
        ["close", "keep-alive"].iter().any(|usual| value.as_bytes().eq_ignore_ascii_case(usual.as_bytes()))
    };
    CONDITIONS.iter().all(|name| !headers.contains_key(name))
        && PROXIED.iter().all(|name| !headers.contains_key(*name))
        && [header::ACCEPT, header::ACCEPT_ENCODING].into_iter().chain(CACHED).all(is_single)
        && headers.get_all(header::CONNECTION).iter().all(is_usual)
}

/// Whether there are no other parameters, and none twice.
fn has_usual_parameters(query: &str) -> bool {
    let known = PARAMETERS.map(|name| parameters(query).filter(|parameter| parameter.starts_with(name)).count());
    known.iter().sum::<usize>() == parameters(query).count() && known.iter().all(|count| *count <= 1)
}

fn parameters(query: &str) -> impl Iterator<Item = &str> {
    query.split('&').filter(|parameter| !parameter.is_empty())
}

/// Whether it is the version, a list of API groups, versions or resources, or OpenAPI.
fn is_discovery(path: &str) -> bool {
    let mut parts = path.trim_matches('/').split('/');
    let most = match parts.next() {
        Some("version") => 0,
        Some("api") => 1,
        Some("apis") => 2,
        // `v3/apis/GROUP/VERSION`
        Some("openapi") => 4,
        Some(_) | None => return false,
    };
    parts.count() <= most
}

impl fmt::Debug for KeptDiscovery {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeptDiscovery").field("bytes", &self.answers.weight()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::{Connector, test_server};
    use base::fairness::ByteBudget;
    use futures_util::FutureExt;

    const BYTES_MAX: u64 = 12 << 20;
    const ANSWER_MAX: usize = 4 << 20;
    const GATEWAY: Credentials = Credentials::Gateway { impersonates: false };

    /// The question of a client that acts as the gateway.
    fn as_gateway(kept: &KeptDiscovery, request: &Request<()>) -> Option<AskedDiscovery> {
        kept.asked(request, &GATEWAY, &Authenticator::trusted())
    }

    /// In front of an API server that is never asked.
    fn nothing() -> KeptDiscovery {
        let address = "127.0.0.1:1".parse().unwrap();
        KeptDiscovery::new(Upstream::new(Connector::new(&test_server::config(address)).unwrap()), BYTES_MAX)
    }

    fn question(path: &str) -> Request<()> {
        Request::get(path).body(()).unwrap()
    }

    #[test]
    fn the_version_groups_and_resources_are_discovery() {
        for path in [
            "/version",
            "/version/",
            "/api",
            "/apis",
            "/api/v1",
            "/apis/apps",
            "/apis/apps/v1?timeout=32s",
            "/openapi/v2",
            "/openapi/v3/apis/apps/v1?hash=AB",
        ] {
            assert!(is_discovery(question(path).uri().path()), "{path}");
        }
        for path in [
            "/",
            "/versions",
            "/version/a",
            "/api/v1/pods",
            "/apis/apps/v1/deployments",
            "/openapi/v3/a/b/c/d",
            "/livez",
        ] {
            assert!(!is_discovery(path), "{path}");
        }
    }

    #[tokio::test]
    async fn an_answer_is_for_the_same_question_of_the_gateway_itself() {
        let kept = nothing();
        let keep = |request: &Request<()>, body: &[u8]| {
            let mut keeping = as_gateway(&kept, request).unwrap().keep(&Response::new(())).unwrap();
            let is_small = keeping.push(body);
            is_small.then(|| keeping.end()).is_some()
        };
        assert!(keep(&question("/api"), b"{}"));
        assert!(!keep(&question("/apis"), &vec![0; ANSWER_MAX + 1]));
        assert_eq!(as_gateway(&kept, &question("/api")).unwrap().kept().unwrap().body(), "{}");
        let other = Request::get("/api").header(header::ACCEPT, "application/yaml").body(()).unwrap();
        assert!(as_gateway(&kept, &question("/api?timeout=32s")).unwrap().kept().is_some());
        assert!(keep(&question("/openapi/v3/api/v1?hash=A&timeout=32s"), b"{}"));
        assert!(as_gateway(&kept, &question("/openapi/v3/api/v1?hash=A")).unwrap().kept().is_some());
        // As kubectl asks for what it has kept of an answer without a tag.
        let mut since = question("/api");
        since.headers_mut().insert("if-modified-since", HeaderValue::from_static("Sun, 29 Nov 2026 04:00:00 GMT"));
        assert_eq!(as_gateway(&kept, &since).unwrap().kept().unwrap().body(), "{}");
        for other in [other, question("/api?hash=1"), question("/apis")] {
            assert!(as_gateway(&kept, &other).unwrap().kept().is_none(), "{other:?}");
        }
        let with = |headers: &[(&str, &str)]| {
            let mut request = question("/api");
            headers.iter().for_each(|(name, value)| {
                request.headers_mut().append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
            });
            request
        };
        let asks = |request: &Request<()>| as_gateway(&kept, request).is_some();
        assert!(asks(&with(&[("connection", "Keep-Alive"), ("accept", "a, b")])));
        for headers in [
            &[("connection", "accept"), ("accept", "application/yaml")][..],
            &[("accept", "a"), ("accept", "b")],
            &[("accept-encoding", "gzip"), ("accept-encoding", "br")],
            &[("if-none-match", "a"), ("if-none-match", "b")],
            &[("if-modified-since", "a"), ("if-modified-since", "b")],
            &[("x-forwarded-for", "10.0.0.5")],
            &[("range", "bytes=0-1")],
            &[("origin", "https://page.example")],
        ] {
            assert!(!asks(&with(headers)), "{headers:?}");
        }
        let mut post = question("/api");
        *post.method_mut() = Method::POST;
        for (request, credentials) in [
            (post, GATEWAY),
            (question(&format!("/api?hash={}", "1".repeat(QUESTION_MAX))), GATEWAY),
            (question("/api?x=y"), GATEWAY),
            (question("/api?timeout=1s&x=y"), GATEWAY),
            (question("/api?hash=A&hash=B"), GATEWAY),
        ] {
            assert!(
                kept.asked(&request, &credentials, &Authenticator::trusted()).is_none(),
                "{request:?} {credentials:?}"
            );
        }
        // Others are given what upstream confirms.
        for credentials in [
            Credentials::Gateway { impersonates: true },
            Credentials::Passed { authorization: None, impersonates: false },
        ] {
            let asked = kept.asked(&question("/api"), &credentials, &Authenticator::trusted()).unwrap();
            assert!(asked.kept().is_none(), "{credentials:?}");
        }
        let failed = Response::builder().status(503).body(()).unwrap();
        assert!(as_gateway(&kept, &question("/api")).unwrap().keep(&failed).is_none());
    }

    #[tokio::test]
    async fn all_answers_together_are_bounded() {
        let kept = nothing();
        for number in 0..20 {
            let request = question(&format!("/api?hash={number}"));
            let mut keeping = as_gateway(&kept, &request).unwrap().keep(&Response::new(())).unwrap();
            assert!(keeping.push(&vec![0; ANSWER_MAX]));
            keeping.end();
        }
        assert!(kept.answers.weight() <= BYTES_MAX && kept.answers.len() >= 2, "{kept:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_start_at_once_let_upstream_confirm_what_the_first_one_is_given() {
        let (kept, room) = (nothing(), ByteBudget::undivided(BYTES_MAX).of(None));
        let tagged = || Response::builder().header("etag", "\"a\"").body(()).unwrap();
        let ask = || as_gateway(&kept, &question("/apis")).unwrap().joined();
        let (first, mut second) = (ask().await, Box::pin(ask()));
        assert!(first.unconfirmed(&mut HeaderMap::new(), &room).is_none());
        assert!(second.as_mut().now_or_never().is_none());
        let mut keeping = first.keep(&tagged()).unwrap();
        assert!(keeping.push(b"groups") && second.as_mut().now_or_never().is_none());
        keeping.end();
        assert!(second.await.unconfirmed(&mut HeaderMap::new(), &room).is_some());
        // One that has its own needs no other.
        kept.upstream.storage().replaced();
        let (_first, mut own) = (ask().await, question("/apis"));
        own.headers_mut().insert("if-none-match", "\"b\"".parse().unwrap());
        assert!(as_gateway(&kept, &own).unwrap().joined().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_an_earlier_question_replaces_no_later_one() {
        let (kept, seconds) = (nothing(), Duration::from_secs(2));
        let ask = || as_gateway(&kept, &question("/version")).unwrap();
        let mut early = ask().keep(&Response::new(())).unwrap();
        tokio::time::advance(seconds).await;
        let mut late = ask().keep(&Response::new(())).unwrap();
        assert!(early.push(b"early") && late.push(b"late"));
        late.end();
        early.end();
        assert_eq!(ask().kept().unwrap().body(), "late");
    }

    #[tokio::test(start_paused = true)]
    async fn upstream_confirms_an_answer_by_its_tag() {
        let kept = nothing();
        let ask = || as_gateway(&kept, &question("/apis")).unwrap();
        let tagged = |status: u16, tag: &str| Response::builder().status(status).header("etag", tag).body(()).unwrap();
        ask().keep(&tagged(200, "\"a\"")).unwrap().end();
        for (tag, is_useful) in [("\"a\"", true), ("\"b\"", false)] {
            tokio::time::advance(KEPT_FOR / 4 * 3).await;
            assert!(ask().keep(&tagged(304, tag)).is_none());
            tokio::time::advance(KEPT_FOR / 2).await;
            assert_eq!(ask().kept().is_some(), is_useful, "{tag}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_upstream_confirms_is_given_with_its_new_headers() {
        let (kept, room) = (nothing(), ByteBudget::undivided(BYTES_MAX).of(None));
        let ask = |tag: Option<&str>| {
            let mut request = question("/apis");
            if let Some(tag) = tag {
                request.headers_mut().insert("if-none-match", tag.parse().unwrap());
            }
            let asked = as_gateway(&kept, &request).unwrap();
            let unconfirmed = asked.unconfirmed(request.headers_mut(), &room);
            (unconfirmed, request.headers().get("if-none-match").cloned())
        };
        assert!(matches!(ask(None), (None, None)), "nothing is kept");
        let first = Response::builder().header("etag", "\"a\"").header("x-id", "1").header("content-type", "t");
        let mut keeping = as_gateway(&kept, &question("/apis")).unwrap().keep(&first.body(()).unwrap()).unwrap();
        assert!(keeping.push(b"groups"));
        keeping.end();
        assert!(matches!(ask(Some("\"b\"")), (None, Some(tag)) if tag == "\"b\""), "the client has its own");
        let other = Response::builder().header("etag", "W/\"a\"").header("set-cookie", "of=another");
        as_gateway(&kept, &question("/api")).unwrap().keep(&other.body(()).unwrap()).unwrap().end();
        let weak = as_gateway(&kept, &question("/api")).unwrap();
        assert!(weak.unconfirmed(&mut HeaderMap::new(), &room).is_none());
        assert!(!weak.kept().unwrap().headers().contains_key("set-cookie"));
        for (status, tag, is_confirmed) in
            [(304, "\"a\"", true), (304, "\"b\"", true), (200, "\"a\"", false), (403, "\"a\"", false)]
        {
            let (unconfirmed, asked) = ask(None);
            assert_eq!(asked.unwrap(), "\"a\"");
            let answer = Response::builder().status(status).header("etag", tag).header("x-id", "2");
            let confirmed = unconfirmed.unwrap().confirmed(&answer.body(()).unwrap());
            let shown = confirmed.map(|answer| {
                let headers = ["x-id", "content-type", "etag"].map(|name| answer.headers()[name].clone());
                (answer.status().as_u16(), answer.body().clone(), headers)
            });
            let expected = (200, Bytes::from_static(b"groups"), ["2", "t", "\"a\""].map(HeaderValue::from_static));
            assert_eq!(shown, is_confirmed.then_some(expected), "{status} {tag}");
        }
    }

    #[tokio::test]
    async fn confirmed_bodies_take_room_until_they_are_sent() {
        let (kept, room) = (nothing(), ByteBudget::undivided(20).of(None));
        let asked = || as_gateway(&kept, &question("/openapi/v2")).unwrap();
        let tagged = |status: u16| Response::builder().status(status).header("etag", "\"a\"").body(()).unwrap();
        let mut keeping = asked().keep(&tagged(200)).unwrap();
        assert!(keeping.push(b"a document"));
        keeping.end();
        let ask = || {
            let mut headers = HeaderMap::new();
            let unconfirmed = asked().unconfirmed(&mut headers, &room);
            assert_eq!(unconfirmed.is_some(), headers.contains_key("if-none-match"), "else it is forwarded as it is");
            unconfirmed
        };
        let unread: Vec<_> = [ask(), ask()].map(|each| each.unwrap().confirmed(&tagged(304)).unwrap()).into();
        assert!(ask().is_none());
        drop(unread);
        assert!(ask().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_of_no_use_after_a_day_or_of_another_cluster() {
        let kept = nothing();
        let asked = || as_gateway(&kept, &question("/version")).unwrap();
        asked().keep(&Response::new(())).unwrap().end();
        tokio::time::advance(KEPT_FOR - Duration::from_secs(1)).await;
        assert!(asked().kept().is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(asked().kept().is_none());
        asked().keep(&Response::new(())).unwrap().end();
        assert!(asked().kept().is_some());
        kept.upstream.storage().replaced();
        assert!(asked().kept().is_none());
    }
}
