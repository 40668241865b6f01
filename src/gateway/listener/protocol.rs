//! HTTP/1.1 and HTTP/2 on a connection, within the gateway's limits.

use std::{future::Future, io, pin::Pin, time::Duration};

use hyper::{
    rt::Executor,
    server::conn::{http1, http2},
};
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::listener::Handler;
use crate::listener::answer_timeout::{Latest, in_time};
use crate::listener::io::{Io, detect_http2};
use crate::listener::requests::{REQUEST_HEADER_BYTES_MAX, REQUEST_HEADERS_MAX, Requests};
use base::lifecycle::Tasks;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Detected by the first bytes: HTTP/2 with prior knowledge, or HTTP/1.1.
    Any,
    Http1,
    Http2,
}

/// Time limit for the next request head on HTTP/1.1, including the idle time before it. Longer than the 90 s after
/// which Go clients close idle connections themselves, so that none is closed while a request is on its way.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(100);
/// Concurrent HTTP/2 streams per connection: enough for a process that watches every resource of a large cluster.
const STREAMS_MAX: u32 = 1000;
/// Streams that the client opened and reset before the gateway accepted them: each costs the gateway more than the
/// client. A client that cancels in the ordinary way leaves a round trip between the two.
const RESET_UNSEEN_MAX: usize = 20;
/// Streams that the gateway had to reset because of what the client sent on them.
const RESET_BROKEN_MAX: usize = 1024;
/// Send buffer per stream, in bytes: enough for a watch to write a burst at once.
const STREAM_SEND_BUFFER: usize = 256 << 10;
/// How many bytes of one request body, and of all on a connection, a client may send before they are read: writes are
/// small.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// A peer that vanished is noticed after the sum of both.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection that is served while it is polled.
pub(super) trait Served: Future<Output = hyper::Result<()>> + Send {
    /// Lets the answers in flight finish, then closes the connection.
    fn graceful_shutdown(self: Pin<&mut Self>);

    /// Whether this is HTTP/1.1, where answers come one at a time and this future sends them.
    fn is_http1(&self) -> bool;
}

/// Starts to serve the protocol that the client speaks. The future is boxed, so that its size is that of the protocol
/// in use.
///
/// # Errors
/// The socket failed before the protocol was detected.
pub(super) async fn open<H: Handler>(
    io: Io,
    protocol: Protocol,
    requests: Requests<H>,
    tasks: &Tasks,
) -> io::Result<Pin<Box<dyn Served>>> {
    let (is_http2, io) = match protocol {
        // Boxed, and freed when HTTP begins.
        Protocol::Any => Box::pin(detect_http2(io)).await?,
        Protocol::Http1 => (false, io),
        Protocol::Http2 => (true, io),
    };
    Ok(if is_http2 {
        let spawn = Spawn { tasks: tasks.clone(), latest: requests.latest().clone() };
        Box::pin(http2_builder(spawn).serve_connection(TokioIo::new(io), requests))
    } else {
        let io = TokioIo::new(requests.counted(io));
        Box::pin(http1_builder().serve_connection(io, requests).with_upgrades())
    })
}

impl<H: Handler> Served for http1::UpgradeableConnection<TokioIo<Io>, Requests<H>> {
    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }

    fn is_http1(&self) -> bool {
        true
    }
}

impl<H: Handler> Served for http2::Connection<TokioIo<Io>, Requests<H>, Spawn> {
    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }

    fn is_http1(&self) -> bool {
        false
    }
}

fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(REQUEST_HEADER_BYTES_MAX as usize)
        .max_headers(REQUEST_HEADERS_MAX);
    builder
}

fn http2_builder(spawn: Spawn) -> http2::Builder<Spawn> {
    let mut builder = http2::Builder::new(spawn);
    builder
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
    builder
}

/// Spawns the tasks of HTTP/2 streams.
#[derive(Clone, Debug)]
pub(super) struct Spawn {
    tasks: Tasks,
    /// The answer that the next task sends: hyper spawns a stream's task right after it has passed its request to the
    /// service.
    latest: Latest,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawn {
    fn execute(&self, stream: F) {
        self.tasks.spawn("stream", in_time(stream, self.latest.get()));
    }
}
