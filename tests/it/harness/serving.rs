//! Servers on a port of this machine: what is done with each of their connections, until the test ends.

use std::{convert::Infallible, net::SocketAddr, path::PathBuf};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream, UnixStream},
    task::JoinSet,
};

/// A listener on a free port, and its address.
pub(crate) async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Accepts connections, and runs `connection` for each of them, beside the others. All end with the returned set.
pub(crate) fn accepting<F>(
    listener: TcpListener,
    mut connection: impl FnMut(TcpStream) -> F + Send + 'static,
) -> JoinSet<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut accepting = JoinSet::new();
    accepting.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            connections.spawn(connection(stream));
        }
    });
    accepting
}

/// Answers the requests of a connection, in HTTP/1.1 or HTTP/2, until it ends.
pub(crate) async fn serve<B, F>(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    answer: impl Fn(Request<Incoming>) -> F,
) where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let http = auto::Builder::new(TokioExecutor::new());
    // However the connection ended, the client notices it.
    http.serve_connection(TokioIo::new(stream), service).await.unwrap_or_default();
}

/// Passes the bytes of two connections on, until both directions have ended or one connection has failed.
pub(crate) async fn relay(mut near: impl AsyncRead + AsyncWrite + Unpin, mut far: impl AsyncRead + AsyncWrite + Unpin) {
    // However it ends, both sides notice.
    copy_bidirectional(&mut near, &mut far).await.ok();
}

/// Relays the connections of a listener to a Unix socket.
pub(crate) fn relaying(listener: TcpListener, socket: PathBuf) -> JoinSet<()> {
    accepting(listener, move |near| {
        let socket = socket.clone();
        async move { relay(near, UnixStream::connect(&socket).await.unwrap()).await }
    })
}

/// A response that ends its connection.
pub(crate) fn closing(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

/// A server that gives this answer to every request; its address.
pub(crate) async fn answering(answer: Vec<u8>) -> (String, JoinSet<()>) {
    let (listener, address) = listener().await;
    let answer = Bytes::from(answer);
    let serving = accepting(listener, move |mut stream| {
        let answer = answer.clone();
        async move {
            let mut head = [0; 4_096];
            let read = stream.read(&mut head).await.unwrap();
            assert!(read > 0);
            // A client may not wait for it.
            stream.write_all(&answer).await.ok();
        }
    });
    (address.to_string(), serving)
}
