//! What a gateway tells one below of the cluster that it is in front of, so that checking it costs the API server
//! nothing (the manual's chapter `operations`, "Several API servers").
//!
//! The question is a GET of `/readyz` with a header that API servers and older gateways do not know: they answer as
//! they always do, and are asked in other ways. The answer is for everyone who can connect: it has what Kubernetes lets
//! everyone read by default (`/readyz`, `/version`), and a digest.

use std::{fmt, sync::atomic::Ordering::Relaxed, time::Duration};

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header::CACHE_CONTROL};
use tokio::{
    join,
    time::{Instant, timeout},
};

use super::Upstream;
use crate::connector::{self, RequestBody, WRITTEN_BY};

/// Of the question, and in the answer: which cluster it is.
const CLUSTER: HeaderName = HeaderName::from_static("kube-fanout-cluster");
const ASKED: HeaderValue = HeaderValue::from_static("?");
/// In the answer: how many gateways a request passes from here on.
const GATEWAYS: HeaderName = HeaderName::from_static("kube-fanout-gateways");
pub(super) const PATH: &str = "/readyz";
/// The API server is asked again if it has told longer ago.
const KNOWN_FOR: Duration = Duration::from_secs(30);
/// How long the question waits for that: less than the gateway below waits.
const FOUND_WITHIN: Duration = Duration::from_secs(2);
/// Characters of a digest that are shown.
const SHOWN: usize = 12;

/// Tells one cluster from another: a digest of the uid of its namespace `kube-system`, which not everyone may read.
#[derive(Clone)]
pub(super) struct ClusterName {
    /// In hexadecimal.
    digest: String,
    /// `None` if a gateway has told the digest alone.
    uid: Option<Box<str>>,
}

/// The cluster that a gateway is in front of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    pub(super) cluster: ClusterName,
    /// Of the API server; `None` if it is not known.
    pub(super) version: Option<String>,
    /// How many gateways there are from the one that tells it to the API server, both it and the last one included.
    pub(super) gateways: u32,
}

impl ClusterName {
    pub(super) fn of_uid(uid: &str) -> Self {
        let digest = digest(&SHA256, uid.as_bytes());
        let digest = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { digest, uid: Some(uid.into()) }
    }

    /// `None` if the text is no digest.
    fn of_digest(text: &HeaderValue) -> Option<Self> {
        let digest = text.to_str().ok()?;
        let is_digest = digest.len() == 64 && digest.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_digest.then(|| Self { digest: digest.to_owned(), uid: None })
    }
}

impl PartialEq for ClusterName {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for ClusterName {}

impl fmt::Display for ClusterName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.uid {
            Some(uid) => uid.fmt(formatter),
            None => write!(formatter, "of the digest {}...", &self.digest[..SHOWN]),
        }
    }
}

impl fmt::Debug for ClusterName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Introduction {
    /// Makes a GET of [`PATH`] the question.
    pub(super) fn ask<B>(request: &mut Request<B>) {
        request.headers_mut().insert(CLUSTER, ASKED);
    }

    /// Whether a request is the question.
    pub fn is_asked<B>(request: &Request<B>) -> bool {
        request.headers().get(CLUSTER) == Some(&ASKED)
            && request.method() == Method::GET
            && request.uri().path() == PATH
    }

    /// The answer: 503 if other gateways are to be preferred.
    pub fn answer(self, upstream: &Upstream, is_draining: bool) -> Response<Bytes> {
        match (is_draining, upstream.is_unreachable()) {
            (true, _) => self.with(StatusCode::SERVICE_UNAVAILABLE, "the gateway is shutting down"),
            (false, true) => self.with(StatusCode::SERVICE_UNAVAILABLE, "the gateway cannot reach the API server"),
            (false, false) => self.with(StatusCode::OK, "ok"),
        }
    }

    fn with(self, status: StatusCode, body: &'static str) -> Response<Bytes> {
        let mut answer = Response::new(Bytes::from_static(body.as_bytes()));
        *answer.status_mut() = status;
        let headers = answer.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.extend(HeaderValue::try_from(self.cluster.digest).ok().map(|digest| (CLUSTER, digest)));
        headers.insert(GATEWAYS, self.gateways.into());
        headers.extend(self.version.and_then(|version| HeaderValue::try_from(version).ok()).map(|it| (WRITTEN_BY, it)));
        answer
    }

    /// What an answer tells; `None` if it is not that of a gateway.
    pub(super) fn of<B>(answer: &Response<B>) -> Option<Self> {
        let cluster = ClusterName::of_digest(answer.headers().get(CLUSTER)?)?;
        let version = connector::written_by(answer);
        // Each tells of itself.
        let gateways = answer.headers().get(GATEWAYS).and_then(|number| number.to_str().ok()?.parse().ok());
        Some(Self { cluster, version, gateways: gateways.unwrap_or(1) })
    }
}

impl Upstream {
    /// What this gateway tells those below; `None` if it does not know that.
    pub async fn introduction(&self) -> Option<Introduction> {
        if !self.is_unreachable() {
            let now = Instant::now();
            let since = now.checked_sub(KNOWN_FOR).unwrap_or(now);
            // Of several servers the checks tell which cluster it is.
            let cluster = async {
                if self.shared.connector.servers().is_none() {
                    self.cluster(since).await;
                }
            };
            timeout(FOUND_WITHIN, async { join!(cluster, self.server_version(since)) }).await.ok();
        }
        let (cluster, version) = (self.shared.cluster.name()?, Some(self.shared.server_version.last()?));
        Some(Introduction { cluster, version, gateways: self.gateways_above().saturating_add(1) })
    }

    /// How many gateways there are between this one and the API server, as far as they have told.
    pub fn gateways_above(&self) -> u32 {
        self.shared.gateways_above.load(Relaxed)
    }

    pub(super) fn note_gateways_above(&self, gateways: u32) {
        self.shared.gateways_above.store(gateways, Relaxed);
    }

    /// Asks the only address whether it is that of a gateway. Several servers are asked by their checks.
    pub(super) async fn look_above(&self) {
        if self.shared.connector.servers().is_some() {
            return;
        }
        let mut request = Request::new(RequestBody::Empty);
        *request.uri_mut() = Uri::from_static(PATH);
        Introduction::ask(&mut request);
        if let Ok(Ok(answer)) = timeout(FOUND_WITHIN, self.send(request)).await {
            self.note_gateways_above(Introduction::of(&answer).map_or(0, |introduction| introduction.gateways));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        for version in [None, Some("v1.36.2 abc 1.36".to_owned())] {
            let told = Introduction { cluster: ClusterName::of_uid("u"), version, gateways: 2 };
            let answer = told.clone().with(StatusCode::OK, "ok");
            assert!(!answer.headers()[CLUSTER].to_str().unwrap().contains('u'), "the uid is not for everyone");
            assert_eq!(Introduction::of(&answer), Some(told));
        }
        assert_ne!(ClusterName::of_uid("u"), ClusterName::of_uid("v"));
    }

    #[test]
    fn what_an_api_server_answers_is_no_introduction() {
        let mut answer = Response::new(());
        assert_eq!(Introduction::of(&answer), None);
        for text in ["?", "", "abc"] {
            answer.headers_mut().insert(CLUSTER, HeaderValue::from_static(text));
            assert_eq!(Introduction::of(&answer), None, "{text:?}");
        }
    }

    #[test]
    fn only_the_question_is_one() {
        let mut request = Request::get(PATH).body(()).unwrap();
        assert!(!Introduction::is_asked(&request), "a client's own");
        Introduction::ask(&mut request);
        assert!(Introduction::is_asked(&request));
        *request.uri_mut() = "/readyz/ping".parse().unwrap();
        assert!(!Introduction::is_asked(&request));
    }
}
