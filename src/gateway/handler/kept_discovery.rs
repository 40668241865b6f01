//! Discovery while the API server is away: what it last answered to the same question, so that clients can start.
//!
//! In `trusted` mode all clients ask as the gateway, so that one may see what another has seen. In `delegated` mode,
//! and only with `clients.awayTTL`, a client with a token is given what others have seen if upstream has given that
//! token an answer from the same path within that time, and the token is believed now. As long as the API server
//! answers, every question is forwarded.
//!
//! Invariants: an answer is kept for no question but its own, which includes all headers that the answer depends on;
//! never replaced by one that was asked for earlier, or by one of an API server that has just started, which may not
//! have all groups yet; and never given once the cluster was replaced.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter, sync::Cache};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::{
    authn::{Authenticator, Credentials, Grant},
    serve,
    upstream::Upstream,
};
use base::memo::{Bound, TtlCache};

/// The maximum number of bytes of all answers: those of a client-go program in a cluster with 1,000 definitions take
/// some 100 KB in gzip. OpenAPI, which is larger and read by few, is not kept.
const BYTES_MAX: u64 = 4 << 20;
/// The maximum number of bytes of one answer.
const ANSWER_MAX: usize = 1 << 20;
/// The answers that are copied at a time while they pass: clients may be slow. Others are not kept.
const COPIED_AT_ONCE: usize = 4;
/// The maximum number of bytes of a question.
const QUESTION_MAX: usize = 1 << 10;
/// The only parameter of discovery, which client-go sends. With others, clients could fill the space for answers.
const TIMEOUT: &str = "timeout=";
/// Headers of proxies: the API server looks for the client's address in them, on which the lists of API groups depend.
const PROXIED: [&str; 2] = ["x-forwarded-for", "x-real-ip"];
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
pub(super) struct KeptDiscovery {
    answers: Arc<Cache<Question, Arc<Answer>, ByBytes>>,
    /// Which tokens were given what is at which paths.
    grants: Arc<TtlCache<[u8; 32], ()>>,
    copies: Arc<Semaphore>,
    upstream: Upstream,
}

/// Path, query, and the headers on which the form of an answer depends, one per line.
type Question = Box<[u8]>;

#[derive(Clone)]
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
#[derive(Clone, Debug)]
pub(super) struct AskedDiscovery {
    kept: KeptDiscovery,
    question: Question,
    at: Instant,
    if_none_match: Option<HeaderValue>,
    /// `None` for a client that asks as the gateway.
    grant: Option<Grant>,
}

/// An answer on its way to the client.
#[derive(Debug)]
pub(super) struct KeepingDiscovery {
    asked: AskedDiscovery,
    headers: HeaderMap,
    body: Vec<u8>,
    _place: OwnedSemaphorePermit,
}

impl KeptDiscovery {
    pub(super) fn new(upstream: Upstream) -> Self {
        // One shard: an answer must fit into its shard's part.
        let options = OptionsBuilder::new().estimated_items_capacity(64).weight_capacity(BYTES_MAX).shards(1).build();
        let options = options.expect("both capacities are given");
        let answers = Cache::with_options(options, ByBytes, DefaultHashBuilder::default(), Default::default());
        let (grants, copies) = (Arc::new(TtlCache::new(GRANTS)), Arc::new(Semaphore::new(COPIED_AT_ONCE)));
        Self { answers: Arc::new(answers), grants, copies, upstream }
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
            || !uri.query().is_none_or(|query| query.starts_with(TIMEOUT) && !query.contains('&'))
            || !is_plain(headers)
        {
            return None;
        }
        let is_of_gateway = matches!(credentials, Credentials::Gateway { impersonates: false });
        let grant = if is_of_gateway { None } else { Some(authenticator.grant(credentials, uri.path())?) };
        let mut question = uri.path_and_query()?.as_str().as_bytes().to_vec();
        for name in [header::ACCEPT, header::ACCEPT_ENCODING] {
            question.push(b'\n');
            question.extend_from_slice(headers.get(name).map_or(&[], HeaderValue::as_bytes));
        }
        let (at, if_none_match) = (Instant::now(), headers.get(header::IF_NONE_MATCH).cloned());
        let is_short = question.len() <= QUESTION_MAX;
        is_short.then(|| AskedDiscovery { kept: self.clone(), question: question.into(), at, if_none_match, grant })
    }

    fn insert(&self, question: &Question, answer: Answer) {
        if self.answers.get(question).is_none_or(|kept| kept.asked_at <= answer.asked_at) {
            self.answers.insert(question.clone(), Arc::new(answer));
        }
    }

    /// Whether the API server could be reached again a short time ago.
    fn is_starting(&self) -> bool {
        Instant::now().checked_sub(STARTING_MAX).is_some_and(|since| self.upstream.was_unreachable_since(since))
    }
}

impl AskedDiscovery {
    /// To be passed the body of upstream's answer; `None` if it is not kept.
    pub(super) fn keep<B>(self, answer: &Response<B>) -> Option<KeepingDiscovery> {
        self.learn(answer.status());
        if answer.status() == StatusCode::NOT_MODIFIED {
            self.confirm(answer.headers().get(header::ETAG));
        }
        if answer.status() != StatusCode::OK || self.kept.is_starting() && self.useful().is_some() {
            return None;
        }
        let _place = self.kept.copies.clone().try_acquire_owned().ok()?;
        Some(KeepingDiscovery { asked: self, headers: answer.headers().clone(), body: Vec::new(), _place })
    }

    /// Upstream gives, or refuses, the token of the question what is at its path.
    fn learn(&self, status: StatusCode) {
        let Some(Grant { hash, ttl }) = self.grant else { return };
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

    /// What upstream last answered. Only for credentials that are still valid.
    pub(super) fn kept(&self) -> Option<Response<Bytes>> {
        if let Some(grant) = self.grant {
            self.kept.grants.get(&grant.hash, Instant::now())?;
        }
        let answer = self.useful()?;
        let mut response = Response::new(answer.body.clone());
        *response.headers_mut() = answer.headers.clone();
        if self.has(answer.headers.get(header::ETAG)) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.body_mut() = Bytes::new();
            for of_body in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::CONTENT_ENCODING] {
                response.headers_mut().remove(of_body);
            }
        }
        response.headers_mut().remove(header::DATE);
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

impl KeepingDiscovery {
    /// The next bytes. False if there are too many of them.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        self.body.extend_from_slice(bytes);
        self.body.len() <= ANSWER_MAX
    }

    /// The body has ended.
    pub(super) fn end(self) {
        let Self { asked: AskedDiscovery { kept, question, at: asked_at, .. }, headers, body, .. } = self;
        // Without the room that the buffer has to grow.
        kept.insert(&question, Answer { headers, body: body.into_boxed_slice().into(), asked_at });
    }
}

/// Whether no header but those of the question has an influence on the answer: `Connection` may name headers that do
/// not reach upstream, which takes the first of several lines.
fn is_plain(headers: &HeaderMap) -> bool {
    let is_single = |name| headers.get_all(name).iter().nth(1).is_none();
    let is_usual = |value: &HeaderValue| {
        ["close", "keep-alive"].iter().any(|usual| value.as_bytes().eq_ignore_ascii_case(usual.as_bytes()))
    };
    !headers.contains_key(header::RANGE)
        && PROXIED.iter().all(|name| !headers.contains_key(*name))
        && [header::ACCEPT, header::ACCEPT_ENCODING, header::IF_NONE_MATCH].into_iter().all(is_single)
        && headers.get_all(header::CONNECTION).iter().all(is_usual)
}

/// Whether it is the version, or a list of API groups, versions or resources.
fn is_discovery(path: &str) -> bool {
    let mut parts = path.trim_matches('/').split('/');
    let most = match parts.next() {
        Some("version") => 0,
        Some("api") => 1,
        Some("apis") => 2,
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

    const GATEWAY: Credentials = Credentials::Gateway { impersonates: false };

    /// The question of a client that acts as the gateway.
    fn as_gateway(kept: &KeptDiscovery, request: &Request<()>) -> Option<AskedDiscovery> {
        kept.asked(request, &GATEWAY, &Authenticator::trusted())
    }

    /// In front of an API server that is never asked.
    fn nothing() -> KeptDiscovery {
        let address = "127.0.0.1:1".parse().unwrap();
        KeptDiscovery::new(Upstream::new(Connector::new(&test_server::config(address)).unwrap()))
    }

    fn question(path: &str) -> Request<()> {
        Request::get(path).body(()).unwrap()
    }

    #[test]
    fn the_version_groups_and_resources_are_discovery() {
        for path in ["/version", "/version/", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1?timeout=32s"] {
            assert!(is_discovery(question(path).uri().path()), "{path}");
        }
        for path in
            ["/", "/versions", "/version/a", "/api/v1/pods", "/apis/apps/v1/deployments", "/openapi/v2", "/livez"]
        {
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
        for other in [other, question("/api?timeout=32s"), question("/apis")] {
            assert!(as_gateway(&kept, &other).unwrap().kept().is_none(), "{other:?}");
        }
        let with = |headers: &[(&str, &str)]| {
            let mut request = question("/api");
            headers.iter().for_each(|(name, value)| {
                request.headers_mut().append(header::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
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
            &[("x-forwarded-for", "10.0.0.5")],
            &[("range", "bytes=0-1")],
        ] {
            assert!(!asks(&with(headers)), "{headers:?}");
        }
        let mut post = question("/api");
        *post.method_mut() = Method::POST;
        for (request, credentials) in [
            (post, GATEWAY),
            (question(&format!("/api?timeout={}", "1".repeat(QUESTION_MAX))), GATEWAY),
            (question("/api?x=y"), GATEWAY),
            (question("/api?timeout=1s&x=y"), GATEWAY),
            (question("/api"), Credentials::Gateway { impersonates: true }),
            (question("/api"), Credentials::Passed { authorization: None, impersonates: false }),
        ] {
            assert!(
                kept.asked(&request, &credentials, &Authenticator::trusted()).is_none(),
                "{request:?} {credentials:?}"
            );
        }
        let failed = Response::builder().status(503).body(()).unwrap();
        assert!(as_gateway(&kept, &question("/api")).unwrap().keep(&failed).is_none());
    }

    #[tokio::test]
    async fn all_answers_together_are_bounded() {
        let kept = nothing();
        for number in 0..20 {
            let request = question(&format!("/api?timeout={number}s"));
            let mut keeping = as_gateway(&kept, &request).unwrap().keep(&Response::new(())).unwrap();
            assert!(keeping.push(&vec![0; ANSWER_MAX]));
            keeping.end();
        }
        assert!(kept.answers.weight() <= BYTES_MAX && kept.answers.len() >= 2, "{kept:?}");
    }

    #[tokio::test]
    async fn few_answers_are_copied_at_a_time() {
        let kept = nothing();
        let keep = || as_gateway(&kept, &question("/api")).unwrap().keep(&Response::new(()));
        let copied: Vec<_> = (0..COPIED_AT_ONCE).map(|_| keep().unwrap()).collect();
        assert!(keep().is_none());
        drop(copied);
        assert!(keep().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_an_earlier_question_replaces_no_later_one() {
        let (kept, second) = (nothing(), Duration::from_secs(1));
        let ask = || as_gateway(&kept, &question("/version")).unwrap();
        let mut early = ask().keep(&Response::new(())).unwrap();
        tokio::time::advance(second).await;
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

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_of_no_use_after_a_day_or_of_another_cluster() {
        let kept = nothing();
        let asked = as_gateway(&kept, &question("/version")).unwrap();
        asked.clone().keep(&Response::new(())).unwrap().end();
        tokio::time::advance(KEPT_FOR - Duration::from_secs(1)).await;
        assert!(asked.kept().is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(asked.kept().is_none());
        let asked = as_gateway(&kept, &question("/version")).unwrap();
        asked.clone().keep(&Response::new(())).unwrap().end();
        assert!(asked.kept().is_some());
        kept.upstream.storage().replaced();
        assert!(asked.kept().is_none());
    }
}
