//! From a connection's requests to its handler.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use hyper::{body::Incoming, service::Service};

use crate::listener::{Connection, Handler};

/// What answers the requests of one connection. Cheap to clone.
#[derive(Debug)]
pub(super) struct Requests<H>(Arc<Shared<H>>);

#[derive(Debug)]
struct Shared<H> {
    handler: H,
    connection: Connection,
    /// There was one.
    requested: AtomicBool,
}

impl<H> Clone for Requests<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<H> Requests<H> {
    pub(super) fn new(handler: H, connection: Connection) -> Self {
        Self(Arc::new(Shared { handler, connection, requested: AtomicBool::new(false) }))
    }

    /// Whether there was one already.
    pub(super) fn have_come(&self) -> bool {
        self.0.requested.load(Ordering::Relaxed)
    }
}

impl<H: Handler> Service<Request<Incoming>> for Requests<H> {
    type Response = Response<H::Body>;
    type Error = Infallible;
    /// In a box, which is gone when there is an answer: a watch's task would keep the room for it as long as it lasts.
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let shared = self.0.clone();
        shared.requested.store(true, Ordering::Relaxed);
        Box::pin(async move { Ok(shared.handler.handle(request, &shared.connection).await) })
    }
}
