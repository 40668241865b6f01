//! Connections for one request at a time, without tasks of their own.
//!
//! HTTP/1.1. The task that waits for an answer, or reads it, drives its connection: a brief request passes from the
//! client's connection to upstream's and back in one task, without wake-ups in between (figures in
//! the manual's chapter `figures`). One task watches all connections that are idle, and closes those that end.
//!
//! Invariants: a connection is used again only if its last answer was read to the end and nothing is left to be sent;
//! if its reader stops earlier, it is closed, which cancels the request upstream.

mod body;
mod connection;
mod gate;
mod idle;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response, Uri, header::HOST};
use hyper::{body::Incoming, client::conn::http1};
use tower::{Service, ServiceExt};

pub(super) use body::ExclusiveBody;
pub(super) use idle::IDLE_TIMEOUT;

use super::{BoxError, RequestBody, dialer::Dialer};
use connection::Connection;
use idle::Idle;

/// What an HTTP/1.1 connection keeps for reading, and the maximum size of an answer's headers on it, in bytes. Once a
/// fast answer has grown the buffer, it stays with the connection, also while that is idle or has a watch: memory that
/// no budget counts.
pub(super) const HTTP1_BUFFER_MAX: usize = 64 << 10;

/// Opens connections, sends requests and keeps idle connections. Cheap to clone, since each request clones it.
#[derive(Clone)]
pub(super) struct Exclusive(Arc<Shared>);

struct Shared {
    dialer: Dialer,
    /// The value of `Host`.
    host: HeaderValue,
    idle: Arc<Idle>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error("cannot connect")]
    Connect(#[source] BoxError),
    /// `reused`: an earlier request was answered on the same connection.
    #[error("the HTTP request failed")]
    Exchange { reused: bool, source: hyper::Error },
}

impl Exclusive {
    pub(super) fn new(dialer: Dialer, host: HeaderValue) -> Self {
        Self(Arc::new(Shared { dialer, host, idle: Arc::new(Idle::new()) }))
    }
}

impl Shared {
    async fn exchange(
        self: Arc<Self>,
        mut request: Request<RequestBody>,
    ) -> Result<Response<ExclusiveBody>, ExchangeError> {
        let address = std::mem::take(request.uri_mut());
        *request.uri_mut() = address.path_and_query().cloned().map(Uri::from).unwrap_or_default();
        request.headers_mut().insert(HOST, self.host.clone());
        while let Some(connection) = self.idle.take() {
            if connection.is_left() {
                continue;
            }
            match connection.send(request).await {
                Ok((answer, connection)) => return Ok(self.received(answer, connection)),
                Err(mut error) => match error.take_message() {
                    // It was closed while idle, and nothing was sent: safe for writes too.
                    Some(unsent) => request = unsent,
                    None => {
                        // The other idle connections may have ended for the same reason.
                        self.idle.clear();
                        return Err(ExchangeError::Exchange { reused: true, source: error.into_error() });
                    }
                },
            }
        }
        // Boxed: its future is four times as large as the rest of this function's, and most requests find an idle
        // connection.
        let connection = Box::pin(self.connect(address)).await.map_err(ExchangeError::Connect)?;
        match connection.send(request).await {
            Ok((answer, connection)) => Ok(self.received(answer, connection)),
            Err(error) => Err(ExchangeError::Exchange { reused: false, source: error.into_error() }),
        }
    }

    async fn connect(&self, address: Uri) -> Result<Box<Connection>, BoxError> {
        let stream = self.dialer.clone().oneshot(address).await?;
        let breaks = stream.breaks();
        let (sender, driver) = http1::Builder::new().max_buf_size(HTTP1_BUFFER_MAX).handshake(stream).await?;
        Ok(Box::new(Connection::new(sender, driver, breaks)))
    }

    fn received(&self, answer: Response<Incoming>, connection: Box<Connection>) -> Response<ExclusiveBody> {
        answer.map(|incoming| ExclusiveBody::new(incoming, connection, self.idle.clone()))
    }
}

impl Service<Request<RequestBody>> for Exclusive {
    type Response = Response<ExclusiveBody>;
    type Error = ExchangeError;
    type Future = BoxFuture<'static, Result<Self::Response, ExchangeError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ExchangeError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        Box::pin(self.0.clone().exchange(request))
    }
}

impl fmt::Debug for Exclusive {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Exclusive").field("idle", &self.0.idle.len()).finish_non_exhaustive()
    }
}
