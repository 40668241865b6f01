//! The connections of an endpoint's clients: opened when they are needed, kept, and opened again.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::{sync::Mutex, time::timeout};

use crate::{
    connection::Connection,
    endpoint::{Endpoint, RequestSpec},
    failure::{ErrorKind, Failure},
    profile::HttpVersion,
};

/// The maximum time for TCP, TLS and HTTP/2 together, as in the gateway itself.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The maximum size of an error response that is kept, in bytes, and the maximum time to wait for it.
const ERROR_BYTES_MAX: usize = 64 << 10;
const ERROR_MAX: Duration = Duration::from_secs(5);
/// The maximum time after which a server is asked again.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// One of an endpoint's connections: opened when it is first needed, and again after it was lost.
#[derive(Debug)]
pub(super) struct Channel {
    endpoint: Arc<Endpoint>,
    http: HttpVersion,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// An HTTP/1.1 connection is taken out for the duration of a request; an HTTP/2 connection is cloned.
    connection: Option<Connection>,
    /// The number of the last cut.
    cut: u64,
}

impl Channel {
    pub(super) fn new(endpoint: Arc<Endpoint>, http: HttpVersion) -> Self {
        Self { endpoint, http, kept: Mutex::default() }
    }

    /// Gives up the connection, which closes as soon as no response is being read on it. Only the first call with a
    /// number has an effect, so that all clients that share the connection can call this.
    pub(super) async fn cut(&self, number: u64) {
        let mut kept = self.kept.lock().await;
        if number > kept.cut {
            *kept = Kept { connection: None, cut: number };
        }
    }

    /// Sends a request and returns the head of the response, which must be a success. The body is still to be read. The
    /// connection lasts as long as the [`OpenResponse`].
    pub(super) async fn open(&self, ask: &RequestSpec<'_>) -> Result<OpenResponse, Failure> {
        let request = self.endpoint.request(ask, self.http == HttpVersion::Http2).await?;
        let mut connection = self.connection().await?;
        let response = connection.send(request).await?;
        let status = response.status();
        if !status.is_success() {
            let retry_after = retry_after(&response);
            let body = Limited::new(response.into_body(), ERROR_BYTES_MAX).collect();
            let body = timeout(ERROR_MAX, body).await.ok().and_then(Result::ok).map(|body| body.to_bytes());
            self.keep(connection).await;
            return Err(Failure { retry_after, ..Failure::status(status, &body.unwrap_or_default()) });
        }
        Ok(OpenResponse { response, connection })
    }

    /// Sends a request and reads the whole response.
    pub(super) async fn whole(&self, ask: &RequestSpec<'_>) -> Result<Bytes, Failure> {
        let OpenResponse { response, connection } = self.open(ask).await?;
        let body = response.into_body().collect().await.map_err(|error| Failure::stream(&error))?.to_bytes();
        self.keep(connection).await;
        Ok(body)
    }

    /// Like [`Self::whole`], with a time limit.
    pub(super) async fn within(&self, limit: Duration, ask: &RequestSpec<'_>) -> Result<Bytes, Failure> {
        timeout(limit, self.whole(ask)).await.unwrap_or_else(|_| Err(Failure::timeout()))
    }

    /// Keeps the connection of a response that was read completely for the next request.
    pub(super) async fn done(&self, answer: OpenResponse) {
        self.keep(answer.connection).await;
    }

    async fn keep(&self, connection: Connection) {
        // Of an HTTP/2 connection, one user is kept all the time.
        if self.http == HttpVersion::Http1 {
            self.kept.lock().await.connection = Some(connection);
        }
    }

    async fn connection(&self) -> Result<Connection, Failure> {
        let mut kept = self.kept.lock().await;
        let mut last = kept.connection.take();
        let is_usable = match &mut last {
            Some(connection) => connection.is_usable().await,
            None => false,
        };
        let connection = match last.filter(|_| is_usable) {
            Some(connection) => connection,
            None => self.endpoint.connect(self.http).await?,
        };
        kept.connection = connection.shared();
        Ok(connection)
    }
}

/// After what time to ask again, as client-go reads it: whole seconds, of a 429 or an error of the server.
fn retry_after<B>(response: &Response<B>) -> Option<Duration> {
    let status = response.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

#[cfg(test)]
impl Channel {
    /// Over a connection that is open already.
    pub(super) fn over(endpoint: Arc<Endpoint>, connection: Connection) -> Self {
        let kept = Kept { connection: Some(connection), cut: 0 };
        Self { endpoint, http: HttpVersion::Http1, kept: Mutex::new(kept) }
    }
}

/// The head of a response, and the connection on which its body arrives.
#[derive(Debug)]
pub(super) struct OpenResponse {
    pub(super) response: Response<Incoming>,
    connection: Connection,
}

impl OpenResponse {
    /// Whether the body is in protobuf, by its `Content-Type`.
    pub(super) fn is_protobuf(&self) -> bool {
        let content_type = self.response.headers().get(CONTENT_TYPE);
        content_type.is_some_and(|of| of.as_bytes().starts_with(b"application/vnd.kubernetes.protobuf"))
    }
}

impl Endpoint {
    /// Connects to the first of its addresses that accepts the connection.
    async fn connect(&self, http: HttpVersion) -> Result<Connection, Failure> {
        let mut refused = Failure::of(ErrorKind::Connect, String::new());
        for (host, port) in self.addresses() {
            match self.connect_to(host, port, http).await {
                Err(failure) if failure.kind == ErrorKind::Connect => refused = failure,
                connected => return connected,
            }
        }
        Err(refused)
    }

    async fn connect_to(&self, host: &str, port: u16, http: HttpVersion) -> Result<Connection, Failure> {
        let message = || format!("no connection to {host}:{port} within {CONNECT_MAX:?}");
        let connection = Connection::open(host, port, self.tls.as_ref(), http);
        let connected = timeout(CONNECT_MAX, connection).await;
        connected.unwrap_or_else(|_| Err(Failure::of(ErrorKind::Connect, message())))
    }
}
