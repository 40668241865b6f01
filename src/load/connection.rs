//! A connection to a server: TCP, TLS, HTTP/1.1 or HTTP/2. What a request contains is up to its sender.

use std::{io, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinSet,
};
use tokio_rustls::TlsConnector;

use crate::{
    failure::{ErrorKind, Failure},
    profile::HttpVersion,
};

/// The HTTP/2 windows in bytes, as large as those of Go's clients.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// An open connection. It closes when it is dropped; with HTTP/2, when its last user drops it.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    _driver: Arc<JoinSet<()>>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// TLS to a server; the two configurations differ in the protocol that they offer.
#[derive(Clone, Debug)]
pub struct Tls {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// Offers either protocol by ALPN. Connections of one value resume each other's sessions if `config` allows it.
    pub fn new(mut config: ClientConfig, name: ServerName<'static>) -> Self {
        let mut http2 = config.clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        http2.alpn_protocols = vec![b"h2".to_vec()];
        Self { http1: Arc::new(config), http2: Arc::new(http2), name }
    }
}

impl Connection {
    /// Connects to a host. Without `tls` it is plain HTTP, with prior knowledge of HTTP/2.
    ///
    /// # Errors
    /// There is no connection, or TLS or HTTP/2 could not be set up on it.
    pub async fn open(host: &str, port: u16, tls: Option<&Tls>, http: HttpVersion) -> Result<Self, Failure> {
        let connect = |error: io::Error| Failure::new(ErrorKind::Connect, &error);
        let stream = TcpStream::connect((host, port)).await.map_err(connect)?;
        stream.set_nodelay(true).map_err(connect)?;
        let Some(tls) = tls else { return handshake(stream, http).await };
        let config = match http {
            HttpVersion::Http1 => tls.http1.clone(),
            HttpVersion::Http2 => tls.http2.clone(),
        };
        let stream = TlsConnector::from(config).connect(tls.name.clone(), stream).await;
        handshake(stream.map_err(|error| Failure::new(of_tls(&error), &error))?, http).await
    }

    /// Sends a request, as soon as the response to the previous one on HTTP/1.1 has been read. Returns the head of the
    /// response, whatever its status; the body is still to be read.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        let sent = match &mut self.sender {
            Sender::Http1(sender) => match sender.ready().await {
                Ok(()) => sender.send_request(request).await,
                Err(error) => Err(error),
            },
            Sender::Http2(sender) => match sender.ready().await {
                Ok(()) => sender.send_request(request).await,
                Err(error) => Err(error),
            },
        };
        sent.map_err(|error| Failure::stream(&error))
    }

    /// Whether another request can be sent.
    pub(super) async fn is_usable(&mut self) -> bool {
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await.is_ok(),
            Sender::Http2(sender) => !sender.is_closed(),
        }
    }

    /// Another user of an HTTP/2 connection; `None` for HTTP/1.1, which has one user at a time.
    pub(super) fn shared(&self) -> Option<Self> {
        match &self.sender {
            Sender::Http1(_) => None,
            Sender::Http2(sender) => {
                Some(Self { sender: Sender::Http2(sender.clone()), _driver: self._driver.clone() })
            }
        }
    }
}

/// The kind of a failure of a TLS handshake: a server that ends meanwhile is lost like one that refuses connections.
/// client-go repeats both.
fn of_tls(error: &io::Error) -> ErrorKind {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let is_lost = matches!(error.kind(), ConnectionReset | ConnectionAborted | BrokenPipe | UnexpectedEof);
    if is_lost { ErrorKind::Connect } else { ErrorKind::Handshake }
}

pub(super) async fn handshake<I>(io: I, http: HttpVersion) -> Result<Connection, Failure>
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_during_the_handshake_is_lost() {
        for (error, expected) in [
            (io::ErrorKind::ConnectionReset, ErrorKind::Connect),
            (io::ErrorKind::UnexpectedEof, ErrorKind::Connect),
            (io::ErrorKind::InvalidData, ErrorKind::Handshake),
        ] {
            assert_eq!(of_tls(&error.into()), expected, "{error:?}");
        }
    }
}
