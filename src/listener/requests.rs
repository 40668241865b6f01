//! Passes the requests of a connection to its handler.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use hyper::{body::Incoming, service::Service};

use super::{
    activity::Activity,
    answer::{Answer, AnswerBody, Latest},
};
use crate::listener::{Connection, Handler};

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
}

impl<H> Clone for Requests<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<H> Requests<H> {
    pub(super) fn new(handler: H, connection: Connection, activity: Arc<Activity>, answer_timeout: Duration) -> Self {
        let (latest, closes) = Default::default();
        Self(Arc::new(Shared { handler, connection, activity, answer_timeout, latest, closes }))
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
        let answer = Answer::begin(shared.activity.clone());
        shared.latest.set(&answer);
        Box::pin(async move {
            let mut response = shared.handler.handle(request, &shared.connection).await;
            let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            if !is_http2 && !is_upgrade && shared.closes.load(Relaxed) {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(answer.respond(response, shared.answer_timeout, is_http2))
        })
    }
}
