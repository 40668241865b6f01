//! Connections to an endpoint, and their use by clients.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::Mutex,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{
    endpoint::{Ask, Endpoint, LoadRequest},
    failure::{ErrorKind, Failure},
    profile::HttpVersion,
};

/// The maximum time for TCP, TLS and HTTP/2 together, as in the gateway itself.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The HTTP/2 windows in bytes, as large as those of Go's clients.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;
/// The maximum size of an error response that is kept, in bytes, and the maximum time to wait for it.
const ERROR_BYTES_MAX: usize = 64 << 10;
const ERROR_MAX: Duration = Duration::from_secs(5);

/// An open connection. An HTTP/2 connection ends when its last user drops it.
#[derive(Debug)]
struct Connection {
    sender: Sender,
    _driver: Arc<JoinSet<()>>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// One of an endpoint's connections: opened when it is first needed, and again after it was lost.
#[derive(Debug)]
pub(super) struct Lane {
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

impl Lane {
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
    /// connection lasts as long as the [`Answer`].
    pub(super) async fn open(&self, ask: &Ask<'_>) -> Result<Answer, Failure> {
        let request = self.endpoint.request(ask, self.http == HttpVersion::Http2).await?;
        let mut connection = self.connection().await?;
        let response = connection.send(request).await?;
        let status = response.status();
        if !status.is_success() {
            let body = Limited::new(response.into_body(), ERROR_BYTES_MAX).collect();
            let body = timeout(ERROR_MAX, body).await.ok().and_then(Result::ok).map(|body| body.to_bytes());
            self.keep(connection).await;
            return Err(Failure::status(status, &body.unwrap_or_default()));
        }
        Ok(Answer { response, connection })
    }

    /// Sends a request and reads the whole response.
    pub(super) async fn whole(&self, ask: &Ask<'_>) -> Result<Bytes, Failure> {
        let Answer { response, connection } = self.open(ask).await?;
        let body = response.into_body().collect().await.map_err(|error| Failure::stream(&error))?.to_bytes();
        self.keep(connection).await;
        Ok(body)
    }

    /// Like [`Self::whole`], with a time limit.
    pub(super) async fn within(&self, limit: Duration, ask: &Ask<'_>) -> Result<Bytes, Failure> {
        timeout(limit, self.whole(ask)).await.unwrap_or_else(|_| Err(Failure::timeout()))
    }

    /// Keeps the connection of a response that was read completely for the next request.
    pub(super) async fn done(&self, answer: Answer) {
        self.keep(answer.connection).await;
    }

    async fn keep(&self, connection: Connection) {
        if let Sender::Http1(_) = connection.sender {
            self.kept.lock().await.connection = Some(connection);
        }
    }

    async fn connection(&self) -> Result<Connection, Failure> {
        let mut kept = self.kept.lock().await;
        let kept = &mut kept.connection;
        let usable = match kept {
            Some(Connection { sender: Sender::Http1(sender), .. }) => sender.ready().await.is_ok(),
            Some(Connection { sender: Sender::Http2(sender), .. }) => !sender.is_closed(),
            None => false,
        };
        if !usable {
            *kept = None;
            *kept = Some(self.endpoint.connect(self.http).await?);
        }
        match (&*kept, self.http) {
            (Some(Connection { sender: Sender::Http2(sender), _driver }), HttpVersion::Http2) => {
                Ok(Connection { sender: Sender::Http2(sender.clone()), _driver: _driver.clone() })
            }
            _ => kept.take().ok_or_else(|| Failure { kind: ErrorKind::Connect, message: "no connection".to_owned() }),
        }
    }
}

/// The head of a response, and the connection on which its body arrives.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) response: Response<Incoming>,
    connection: Connection,
}

impl Answer {
    /// Whether the body is in protobuf, by its `Content-Type`.
    pub(super) fn is_protobuf(&self) -> bool {
        let content_type = self.response.headers().get(CONTENT_TYPE);
        content_type.is_some_and(|of| of.as_bytes().starts_with(b"application/vnd.kubernetes.protobuf"))
    }
}

impl Connection {
    async fn send(&mut self, request: LoadRequest) -> Result<Response<Incoming>, Failure> {
        let sent = match &mut self.sender {
            Sender::Http1(sender) => sender.send_request(request).await,
            Sender::Http2(sender) => match sender.ready().await {
                Ok(()) => sender.send_request(request).await,
                Err(error) => Err(error),
            },
        };
        sent.map_err(|error| Failure::stream(&error))
    }
}

impl Endpoint {
    async fn connect(&self, http: HttpVersion) -> Result<Connection, Failure> {
        let message = || format!("no connection to {} within {CONNECT_MAX:?}", self.url());
        let connected = timeout(CONNECT_MAX, self.dial(http)).await;
        connected.unwrap_or_else(|_| Err(Failure { kind: ErrorKind::Connect, message: message() }))
    }

    async fn dial(&self, http: HttpVersion) -> Result<Connection, Failure> {
        let connect = |error: std::io::Error| Failure::new(ErrorKind::Connect, &error);
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(connect)?;
        stream.set_nodelay(true).map_err(connect)?;
        let Some(tls) = &self.tls else { return handshake(stream, http).await };
        let config = match http {
            HttpVersion::Http1 => tls.http1.clone(),
            HttpVersion::Http2 => tls.http2.clone(),
        };
        let stream = TlsConnector::from(config).connect(tls.name.clone(), stream).await;
        handshake(stream.map_err(|error| Failure::new(ErrorKind::Handshake, &error))?, http).await
    }
}

async fn handshake<I>(io: I, http: HttpVersion) -> Result<Connection, Failure>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |error: hyper::Error| Failure::new(ErrorKind::Handshake, &error);
    let (io, mut driver) = (TokioIo::new(io), JoinSet::new());
    let sender = match http {
        HttpVersion::Http1 => {
            let (sender, connection) = http1::handshake(io).await.map_err(failed)?;
            // An error of the connection also fails the requests on it, which report it.
            driver.spawn(async move { connection.await.unwrap_or_default() });
            Sender::Http1(sender)
        }
        HttpVersion::Http2 => {
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .handshake(io)
                .await
                .map_err(failed)?;
            driver.spawn(async move { connection.await.unwrap_or_default() });
            Sender::Http2(sender)
        }
    };
    Ok(Connection { sender, _driver: Arc::new(driver) })
}
