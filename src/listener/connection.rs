//! One connection, from its first byte to its last.

use std::{
    error::Error,
    future::Future,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper::{rt::Executor, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::lifecycle::Tasks;
use crate::listener::{Connection, Handler};
use crate::telemetry::{self, ConnectionError};

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The first bytes tell: HTTP/2 with prior knowledge, or HTTP/1.1.
    Any,
    Http1,
    Http2,
}

/// Time for the first request's head.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a further head on HTTP/1.1, the idle time before it included: longer than the 90 s after which clients in
/// Go close idle connections themselves, so that none is closed while a request is on its way.
const IDLE_TIMEOUT: Duration = Duration::from_secs(100);
/// A head's size: room for a selector or a token of any sane length. Beyond it: 431.
const REQUEST_HEADER_BYTES_MAX: u32 = 256 << 10;
/// A head's lines on HTTP/1.1: front proxies send one line for each of a user's groups. Beyond it: 431.
const REQUEST_HEADERS_MAX: usize = 512;
/// A process with a watch on every resource of a large cluster fits on one connection.
const STREAMS_MAX: u32 = 1000;
/// Streams that a client opened and reset before the gateway saw them: each costs more than it costs the client. Somebody
/// who cancels as a matter of course has a round trip between the two.
const RESET_UNSEEN_MAX: usize = 20;
/// Streams that the gateway had to reset because of what the client sent on them.
const RESET_BROKEN_MAX: usize = 1024;
/// What a stream keeps for a client that does not read; as much as a watch needs to write a burst at once.
const STREAM_SEND_BUFFER: usize = 256 << 10;
/// What a client may send of one body, and of all of a connection, before it is read: writes are small.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// A peer that is gone without a word is noticed after the sum of both.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves requests until the client closes, or the connection is drained.
pub async fn serve_connection<H: Handler>(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    protocol: Protocol,
    connection: Connection,
    handler: H,
    tasks: &Tasks,
) {
    let draining = connection.draining.clone();
    let requested = Arc::new(AtomicBool::new(false));
    let connection = Arc::new(connection);
    let service = service_fn(|request| {
        requested.store(true, Ordering::Relaxed);
        let (handler, connection) = (handler.clone(), connection.clone());
        // In a box, which is gone when there is an answer: a watch's task would keep the room for it as long as it lasts.
        Box::pin(async move { Ok::<_, std::convert::Infallible>(handler.handle(request, &connection).await) })
    });
    let builder = builder(protocol, tasks);
    let mut http = pin!(builder.serve_connection_with_upgrades(TokioIo::new(io), service));
    let mut first_request = pin!(tokio::time::sleep(FIRST_REQUEST_TIMEOUT));
    let mut told = false;
    let mut waited = false;
    let ended = loop {
        tokio::select! {
            // The drain first: a response that the drain ends is the connection's last one.
            biased;
            () = draining.cancelled(), if !told => {
                told = true;
                http.as_mut().graceful_shutdown();
            }
            ended = http.as_mut() => break ended,
            () = first_request.as_mut(), if !waited => {
                waited = true;
                if !requested.load(Ordering::Relaxed) {
                    telemetry::connection_failed(ConnectionError::HeaderTimeout);
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        report(&*error, requested.load(Ordering::Relaxed));
    }
}

fn builder(protocol: Protocol, tasks: &Tasks) -> auto::Builder<Spawn> {
    let mut builder = auto::Builder::new(Spawn(tasks.clone()));
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(REQUEST_HEADER_BYTES_MAX as usize)
        .max_headers(REQUEST_HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESET_UNSEEN_MAX)
        .max_local_error_reset_streams(RESET_BROKEN_MAX)
        .max_header_list_size(REQUEST_HEADER_BYTES_MAX)
        .max_send_buf_size(STREAM_SEND_BUFFER)
        .adaptive_window(false)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    match protocol {
        Protocol::Any => builder,
        Protocol::Http1 => builder.http1_only(),
        Protocol::Http2 => builder.http2_only(),
    }
}

/// Counts what was the client's fault; a client that merely went is nobody's.
fn report(error: &(dyn Error + 'static), requested: bool) {
    tracing::debug!(error, "connection ended");
    let Some(http) = error.downcast_ref::<hyper::Error>() else { return };
    if http.is_parse_too_large() {
        telemetry::limit_reached("request_header_bytes");
    } else if http.is_timeout() {
        // After a request it was merely idle.
        if !requested {
            telemetry::connection_failed(ConnectionError::HeaderTimeout);
        }
    } else if !(http.is_incomplete_message() || http.is_body_write_aborted() || caused_by_io(http)) {
        telemetry::connection_failed(ConnectionError::Protocol);
    }
}

/// The socket broke.
fn caused_by_io(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<io::Error>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Starts the tasks of HTTP/2 streams.
#[derive(Clone, Debug)]
struct Spawn(Tasks);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawn {
    fn execute(&self, stream: F) {
        self.0.spawn("stream", stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use hyper::body::Incoming;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio_util::sync::CancellationToken;

    use crate::lifecycle::Drained;

    /// Answers when the drain begins.
    #[derive(Clone)]
    struct Answer {
        wait: bool,
    }

    impl Handler for Answer {
        type Body = Full<Bytes>;

        async fn handle(&self, _: Request<Incoming>, connection: &Connection) -> Response<Self::Body> {
            if self.wait {
                connection.draining.cancelled().await;
            }
            Response::new(Full::from("done"))
        }
    }

    fn start(wait: bool, protocol: Protocol, tasks: &Tasks) -> DuplexStream {
        let (client, server) = duplex(1 << 20);
        let draining: CancellationToken = tasks.token().child_token();
        let (connection, spawner) =
            (Connection { peer: None, tls: false, client_certificate: None, draining }, tasks.clone());
        tasks.spawn("connection", async move {
            serve_connection(server, protocol, connection, Answer { wait }, &spawner).await;
        });
        client
    }

    /// Paused time only goes on when there is nothing else to do.
    async fn until_all_wait() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn rest(mut client: DuplexStream) -> String {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes).to_lowercase()
    }

    #[tokio::test(start_paused = true)]
    async fn the_drain_lets_a_response_end_and_closes() {
        for protocol in [Protocol::Any, Protocol::Http1] {
            let tasks = Tasks::new();
            let mut client = start(true, protocol, &tasks);
            client.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
            until_all_wait().await;
            assert_eq!(tasks.drain(Duration::from_secs(5)).await, Drained::All);
            let response = rest(client).await;
            assert!(response.starts_with("http/1.1 200 ok"), "{response}");
            assert!(response.contains("connection: close") && response.ends_with("done"), "{response}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_drain_closes_connections_without_a_request() {
        for protocol in [Protocol::Any, Protocol::Http1, Protocol::Http2] {
            let tasks = Tasks::new();
            let client = start(false, protocol, &tasks);
            until_all_wait().await;
            drop(rest(client));
            assert_eq!(tasks.drain(Duration::from_secs(5)).await, Drained::All, "{protocol:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_asks_nothing_loses_its_connection() {
        for (protocol, sent) in [
            (Protocol::Any, ""),
            (Protocol::Any, "PRI * HT"),
            (Protocol::Any, "GET / HTTP/1.1\r\nx"),
            (Protocol::Http1, "GET"),
            (Protocol::Http2, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ] {
            let tasks = Tasks::new();
            let mut client = start(false, protocol, &tasks);
            client.write_all(sent.as_bytes()).await.unwrap();
            let begun = tokio::time::Instant::now();
            rest(client).await;
            assert_eq!(begun.elapsed().as_secs(), FIRST_REQUEST_TIMEOUT.as_secs(), "{protocol:?} {sent}");
        }
    }

    /// For how long a client can spend a second on each byte of a head.
    async fn dribble(client: DuplexStream) -> u64 {
        let begun = tokio::time::Instant::now();
        let (mut read, mut write) = tokio::io::split(client);
        let dribble = async {
            for byte in b"GET /".iter().chain(std::iter::repeat(&b'a')) {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if write.write_all(&[*byte]).await.is_err() {
                    return;
                }
            }
        };
        let mut answers = Vec::new();
        tokio::select! {
            _ = read.read_to_end(&mut answers) => {}
            () = dribble => {}
        }
        begun.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_however_slowly_it_comes() {
        for protocol in [Protocol::Any, Protocol::Http1] {
            let tasks = Tasks::new();
            assert_eq!(dribble(start(false, protocol, &tasks)).await, FIRST_REQUEST_TIMEOUT.as_secs());
            let mut client = start(false, protocol, &tasks);
            client.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
            assert_eq!(dribble(client).await, IDLE_TIMEOUT.as_secs());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_stays_longer_than_clients_keep_theirs() {
        let tasks = Tasks::new();
        let mut client = start(false, Protocol::Any, &tasks);
        client.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        let begun = tokio::time::Instant::now();
        assert!(rest(client).await.ends_with("done"));
        assert_eq!(begun.elapsed().as_secs(), IDLE_TIMEOUT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn heads_that_are_too_large_are_refused() {
        let long = format!("GET / HTTP/1.1\r\nhost: h\r\nx: {}", "y".repeat(REQUEST_HEADER_BYTES_MAX as usize));
        let many = format!("GET / HTTP/1.1\r\nhost: h\r\n{}\r\n", "x: y\r\n".repeat(REQUEST_HEADERS_MAX));
        let fits = format!("GET / HTTP/1.1\r\nhost: h\r\n{}\r\n", "x: y\r\n".repeat(REQUEST_HEADERS_MAX - 1));
        for (head, status) in [(long, "431"), (many, "431"), (fits, "200")] {
            let tasks = Tasks::new();
            let mut client = start(false, Protocol::Any, &tasks);
            client.write_all(head.as_bytes()).await.unwrap();
            let response = rest(client).await;
            assert!(response.starts_with(&format!("http/1.1 {status}")), "{response}");
        }
    }
}
