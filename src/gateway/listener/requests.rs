//! Passes the requests of a connection to its handler.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::{BoxFuture, ready};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::{body::Incoming, service::Service};
use tokio_util::io::InspectReader;

use super::{
    activity::Activity,
    answer_timeout::{Answer, AnswerBody, Http2, Latest},
    in_flight::AnswerPlace,
    io::Io,
};
use crate::listener::{Connection, Handler};
use base::telemetry::limit_reached;

/// When a request may be repeated that was refused because its address has too many in flight, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");
/// Largest request head in bytes: room for any reasonable selector or token. Beyond it: 431.
pub(super) const REQUEST_HEADER_BYTES_MAX: u32 = 256 << 10;
/// Maximum header lines: front proxies send one per group of a user. Beyond it: 431.
pub(super) const REQUEST_HEADERS_MAX: usize = 512;

/// Bytes of a head over HTTP/1.1 with whose answer the connection ends: otherwise it would keep a buffer for as many
/// bytes.
const LARGE_HEAD: usize = 32 << 10;

/// The service that answers the requests of one connection. Cheap to clone.
#[derive(Debug)]
pub(super) struct Requests<H>(Arc<Shared<H>>);

#[derive(Debug)]
struct Shared<H> {
    handler: H,
    connection: Connection,
    activity: Arc<Activity>,
    /// How long a finite answer may stay unread.
    answer_timeout: Duration,
    latest: Latest,
    /// Set once the next answer over HTTP/1.1 is to be the connection's last one.
    closes: AtomicBool,
    arrived: Arrived,
}

/// Counts the bytes of each head over HTTP/1.1 as they arrive, white space included, which a parsed head does not show.
#[derive(Debug, Default)]
struct Arrived {
    /// All bytes of the connection.
    read: Arc<AtomicUsize>,
    /// Those of earlier requests.
    earlier: AtomicUsize,
}

impl<H> Clone for Requests<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<H> Requests<H> {
    pub(super) fn new(handler: H, connection: Connection, activity: Arc<Activity>, answer_timeout: Duration) -> Self {
        let (latest, closes, arrived) = Default::default();
        Self(Arc::new(Shared { handler, connection, activity, answer_timeout, latest, closes, arrived }))
    }

    /// The stream of a connection that speaks HTTP/1.1.
    pub(super) fn counted(&self, io: Io) -> Io {
        let read = self.0.arrived.read.clone();
        let count = move |bytes: &[u8]| {
            read.fetch_add(bytes.len(), Relaxed);
        };
        Box::new(InspectReader::new(io, count))
    }

    /// Whether a request has arrived already.
    pub(super) fn have_come(&self) -> bool {
        self.0.activity.has_asked()
    }

    /// Ends an HTTP/1.1 connection with its next answer, which says so (RFC 9112, 9.6).
    pub(super) fn close_with_next(&self) {
        self.0.closes.store(true, Relaxed);
    }

    /// The answer to the latest request.
    pub(super) fn latest(&self) -> &Latest {
        &self.0.latest
    }
}

impl<H: Handler> Service<Request<Incoming>> for Requests<H> {
    type Response = Response<AnswerBody<H::Body>>;
    type Error = Infallible;
    /// Boxed, and freed once there is an answer; otherwise the task of a watch would reserve room for it as long as it
    /// lasts.
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (shared, is_http2) = (self.0.clone(), request.version() == Version::HTTP_2);
        let head_bytes = if is_http2 { head_bytes(&request) } else { shared.arrived.head_bytes(&request) };
        let is_large = !is_http2 && head_bytes > LARGE_HEAD;
        let answer = Answer::begin(shared.activity.clone());
        shared.latest.set(&answer);
        let Some(place) = shared.activity.address.take(head_bytes) else {
            return refused(answer, StatusCode::TOO_MANY_REQUESTS, None, is_large);
        };
        if let Err(status) = check_size(&request) {
            return refused(answer, status, Some(place).filter(|_| is_http2), is_large);
        }
        let is_head = request.method() == Method::HEAD;
        Box::pin(async move {
            let mut response = shared.handler.handle(request, &shared.connection).await;
            let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            if !is_http2 && !is_upgrade && (is_large || shared.closes.load(Relaxed)) {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(answer.respond(response, place, shared.answer_timeout, is_http2.then_some(Http2 { is_head })))
        })
    }
}

/// The answer to a request that is not passed on.
fn refused<B: Send + 'static>(
    answer: Arc<Answer>,
    status: StatusCode,
    place: Option<AnswerPlace>,
    is_large: bool,
) -> BoxFuture<'static, Result<Response<AnswerBody<B>>, Infallible>> {
    let mut response = answer.refuse(status, place);
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    if is_large {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Box::pin(ready(Ok(response)))
}

impl Arrived {
    /// The bytes of the head of the request that comes next: what has arrived since the request before it, without the
    /// bodies of both, and at least its lines. A body may hide as many bytes around the lines of a head, and so does a
    /// chunked one before it.
    fn head_bytes<B>(&self, request: &Request<B>) -> usize {
        let body = request.headers().get(header::CONTENT_LENGTH);
        let body = body.and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(0);
        let read = self.read.load(Relaxed);
        // How long a chunked body is shows only when it has ended.
        let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
        let until = if is_chunked { usize::MAX } else { read.saturating_add(body) };
        let arrived = read.saturating_sub(self.earlier.swap(until, Relaxed)).saturating_sub(body);
        head_bytes(request).max(arrived.min(REQUEST_HEADER_BYTES_MAX as usize))
    }
}

/// The bytes of a head over HTTP/2.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let uri = request.uri();
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let target = request.method().as_str().len() + authority + path;
    let lines = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    target + lines.sum::<usize>()
}

/// Whether the head has no more lines than one of HTTP/1.1 may have. Over HTTP/2 a line that is repeated takes a byte,
/// and a hundred in memory.
fn check_size<B>(request: &Request<B>) -> Result<(), StatusCode> {
    if request.headers().len() > REQUEST_HEADERS_MAX {
        limit_reached("request_header_bytes");
        return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    Ok(())
}
