//! Accepting connections, within the limit, until the drain begins.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_rustls::TlsAcceptor;

use crate::lifecycle::Tasks;
use crate::listener::bind::{Bound, Socket, Stream};
use crate::listener::connection::{Protocol, serve_connection};
use crate::listener::tls::{ALPN_HTTP2, Tls};
use crate::listener::{Connection, Handler};
use crate::telemetry::{self, ConnectionError, ConnectionGuard};

/// Time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted: the process is out of files or memory, and goes on with what it has.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Starts to serve every listener. All of them together keep at most `connections` open; the rest wait in the kernel's
/// queue. Ends with the drain of `tasks`.
pub fn serve<H: Handler>(listeners: Vec<Bound>, connections: usize, handler: &H, tasks: &Tasks) {
    let permits = Arc::new(Semaphore::new(connections));
    for bound in listeners {
        let tls = bound.tls.as_ref().map(Tls::acceptor);
        if let Some(tls) = bound.tls {
            let draining = tasks.token().clone();
            tasks.spawn("certificate reload", async move {
                tokio::select! {
                    () = draining.cancelled() => {}
                    () = tls.reload() => {}
                }
            });
        }
        let accept = Accept {
            socket: bound.socket,
            tls,
            permits: permits.clone(),
            handler: handler.clone(),
            tasks: tasks.clone(),
        };
        tasks.spawn("accept", accept.run());
    }
}

/// One listener's loop.
struct Accept<H> {
    socket: Socket,
    tls: Option<TlsAcceptor>,
    permits: Arc<Semaphore>,
    handler: H,
    tasks: Tasks,
}

impl<H: Handler> Accept<H> {
    async fn run(self) {
        let draining = self.tasks.token().clone();
        loop {
            let (stream, open) = tokio::select! {
                () = draining.cancelled() => return,
                accepted = self.accept() => accepted,
            };
            match stream {
                Stream::Tcp(stream, peer) => self.start(stream, Some(peer), open),
                Stream::Unix(stream) => self.start(stream, None, open),
            }
        }
    }

    async fn accept(&self) -> (Stream, Open) {
        let permit = self.permit().await;
        loop {
            match self.socket.accept().await {
                Ok(stream) => return (stream, Open { _count: telemetry::connection_accepted(), _permit: permit }),
                // That client's own doing; the next one need not wait for it.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
                    telemetry::connection_failed(ConnectionError::Accept);
                }
                Err(error) => {
                    tracing::warn!(%error, "no connection accepted");
                    telemetry::connection_failed(ConnectionError::Accept);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn permit(&self) -> OwnedSemaphorePermit {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return permit;
        }
        telemetry::limit_reached("connections");
        self.permits.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    fn start<I>(&self, stream: I, peer: Option<SocketAddr>, open: Open)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let connection = Connection {
            peer,
            tls: self.tls.is_some(),
            client_certificate: None,
            draining: self.tasks.token().child_token(),
        };
        let (tls, handler, tasks) = (self.tls.clone(), self.handler.clone(), self.tasks.clone());
        self.tasks.spawn("connection", async move {
            let stream = Counted { stream, _open: open };
            match tls {
                None => serve_connection(stream, Protocol::Any, connection, handler, &tasks).await,
                Some(tls) => serve_tls(stream, &tls, connection, handler, &tasks).await,
            }
        });
    }
}

/// Holds a connection's place.
struct Open {
    _count: ConnectionGuard,
    _permit: OwnedSemaphorePermit,
}

/// A socket that holds its place for as long as it is open: an upgraded connection outlives the task that served it.
struct Counted<I> {
    stream: I,
    _open: Open,
}

impl<I: AsyncRead + Unpin> AsyncRead for Counted<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Counted<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The handshake, then what ALPN chose.
async fn serve_tls<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    tls: &TlsAcceptor,
    connection: Connection,
    handler: H,
    tasks: &Tasks,
) {
    let handshake = tokio::select! {
        () = connection.draining.cancelled() => return,
        handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)) => handshake,
    };
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, peer = ?connection.peer, "handshake failed");
            return telemetry::connection_failed(ConnectionError::Handshake);
        }
        Err(_) => return telemetry::connection_failed(ConnectionError::HandshakeTimeout),
    };
    let protocol =
        if stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2) { Protocol::Http2 } else { Protocol::Http1 };
    serve_connection(stream, protocol, connection, handler, tasks).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    use bytes::Bytes;
    use http::{Request, Response, Version};
    use http_body_util::{BodyExt, Empty, Full};
    use hyper::{body::Incoming, client::conn};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpStream, UnixStream};
    use tokio_rustls::TlsConnector;

    use crate::config::{Address, ListenerConfig, ListenerTls};
    use crate::lifecycle::Drained;
    use crate::listener::{bind, tls::tests::write_certificate};

    /// Says what the connection is.
    #[derive(Clone)]
    struct Describe;

    impl Handler for Describe {
        type Body = Full<Bytes>;

        async fn handle(&self, request: Request<Incoming>, connection: &Connection) -> Response<Self::Body> {
            let (version, tls, tcp) = (request.version(), connection.tls, connection.peer.is_some());
            Response::new(Full::from(format!("{version:?} tls={tls} tcp={tcp}")))
        }
    }

    async fn start(config: ListenerConfig, connections: usize, tasks: &Tasks) -> Address {
        let bound = bind(&config).await.unwrap();
        let address = bound.address().clone();
        serve(vec![bound], connections, &Describe, tasks);
        address
    }

    async fn connect(address: &Address) -> TcpStream {
        let Address::Tcp(address) = address else { panic!("{address}") };
        TcpStream::connect(address).await.unwrap()
    }

    fn request(version: Version) -> Request<Empty<Bytes>> {
        Request::builder().version(version).uri("http://localhost/").body(Empty::new()).unwrap()
    }

    async fn text(response: Response<Incoming>) -> String {
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    async fn get_http1(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, tasks: &Tasks) -> String {
        let (mut sender, connection) = conn::http1::handshake(TokioIo::new(io)).await.unwrap();
        tasks.spawn("client", async move { connection.await.unwrap() });
        text(sender.send_request(request(Version::HTTP_11)).await.unwrap()).await
    }

    async fn get_http2(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, tasks: &Tasks) -> String {
        let (mut sender, connection) = conn::http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await.unwrap();
        tasks.spawn("client", async move { connection.await.unwrap() });
        text(sender.send_request(request(Version::HTTP_2)).await.unwrap()).await
    }

    fn plain() -> ListenerConfig {
        ListenerConfig { address: "127.0.0.1:0".parse().unwrap(), tls: None }
    }

    #[tokio::test]
    async fn plain_sockets_speak_both_versions() {
        let (tasks, clients) = (Tasks::new(), Tasks::new());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let address = start(plain(), 10, &tasks).await;
        start(ListenerConfig { address: Address::Unix(path.clone()), tls: None }, 10, &tasks).await;
        assert_eq!(get_http1(connect(&address).await, &clients).await, "HTTP/1.1 tls=false tcp=true");
        assert_eq!(get_http2(connect(&address).await, &clients).await, "HTTP/2.0 tls=false tcp=true");
        let stream = UnixStream::connect(&path).await.unwrap();
        assert_eq!(get_http1(stream, &clients).await, "HTTP/1.1 tls=false tcp=false");
        assert_eq!(tasks.drain(DRAIN).await, Drained::All);
        assert!(UnixStream::connect(&path).await.is_err());
    }

    #[tokio::test]
    async fn alpn_chooses_the_version() {
        let (tasks, clients) = (Tasks::new(), Tasks::new());
        let folder = tempfile::tempdir().unwrap();
        let (files, certificate) = write_certificate(folder.path());
        let address = start(
            ListenerConfig { tls: Some(ListenerTls { files, client_certificates: false }), ..plain() },
            10,
            &tasks,
        )
        .await;
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let handshake = async |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            let name = ServerName::try_from("localhost").unwrap();
            TlsConnector::from(Arc::new(config)).connect(name, connect(&address).await).await.unwrap()
        };
        let both = handshake(&[ALPN_HTTP2, b"http/1.1"]).await;
        assert_eq!(get_http2(both, &clients).await, "HTTP/2.0 tls=true tcp=true");
        assert_eq!(get_http1(handshake(&[]).await, &clients).await, "HTTP/1.1 tls=true tcp=true");
        assert_eq!(tasks.drain(DRAIN).await, Drained::All);
    }

    #[tokio::test]
    async fn a_connection_beyond_the_limit_waits_for_a_place() {
        let (tasks, clients) = (Tasks::new(), Tasks::new());
        let address = start(plain(), 1, &tasks).await;
        let (mut sender, connection) = conn::http1::handshake(TokioIo::new(connect(&address).await)).await.unwrap();
        let first = tokio_util::sync::CancellationToken::new();
        let closed = first.clone();
        clients.spawn("first", async move {
            tokio::select! {
                ended = connection => ended.unwrap(),
                () = closed.cancelled() => {}
            }
        });
        text(sender.send_request(request(Version::HTTP_11)).await.unwrap()).await;
        let mut second = Box::pin(get_http1(connect(&address).await, &clients));
        assert!(futures_util::poll!(&mut second).is_pending());
        text(sender.send_request(request(Version::HTTP_11)).await.unwrap()).await;
        assert!(futures_util::poll!(&mut second).is_pending());
        first.cancel();
        assert_eq!(second.await, "HTTP/1.1 tls=false tcp=true");
    }

    #[tokio::test]
    async fn an_upgraded_connection_keeps_its_place() {
        #[derive(Clone)]
        struct Upgrade(Tasks);
        impl Handler for Upgrade {
            type Body = Empty<Bytes>;
            async fn handle(&self, request: Request<Incoming>, _: &Connection) -> Response<Self::Body> {
                self.0.spawn("tunnel", async move {
                    let io = hyper::upgrade::on(request).await.unwrap();
                    let (mut read, mut write) = tokio::io::split(TokioIo::new(io));
                    tokio::io::copy(&mut read, &mut write).await.unwrap();
                });
                let response =
                    Response::builder().status(101).header("connection", "upgrade").header("upgrade", "echo");
                response.body(Empty::new()).unwrap()
            }
        }
        let tasks = Tasks::new();
        let bound = bind(&plain()).await.unwrap();
        let address = bound.address().clone();
        serve(vec![bound], 1, &Upgrade(tasks.clone()), &tasks);
        let mut tunnel = connect(&address).await;
        let head = b"GET / HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
        tunnel.write_all(head).await.unwrap();
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\n") {
            response.push(tunnel.read_u8().await.unwrap());
        }
        assert!(response.starts_with(b"HTTP/1.1 101"));
        let mut second = connect(&address).await;
        second.write_all(head).await.unwrap();
        tunnel.write_all(b"ping").await.unwrap();
        let mut echoed = [0; 4];
        tunnel.read_exact(&mut echoed).await.unwrap();
        assert_eq!(&echoed, b"ping");
        assert_eq!(second.try_read(&mut echoed).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(tunnel);
        assert_eq!(second.read_u8().await.unwrap(), b'H');
    }

    /// Longer than any test waits.
    const DRAIN: Duration = Duration::from_secs(20);
}
