//! HTTP/1.1 and HTTP/2 on a connection, within the gateway's limits.

use std::{future::Future, io, pin::Pin, time::Duration};

use hyper::{
    rt::Executor,
    server::conn::{http1, http2},
};
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::lifecycle::Tasks;
use crate::listener::Handler;
use crate::listener::answer::{Latest, in_time};
use crate::listener::io::{Io, detect_http2};
use crate::listener::requests::Requests;

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The first bytes tell: HTTP/2 with prior knowledge, or HTTP/1.1.
    Any,
    Http1,
    Http2,
}

/// Time for a further head on HTTP/1.1, the idle time before it included: longer than the 90 s after which clients in
/// Go close idle connections themselves, so that none is closed while a request is on its way.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(100);
/// A head's size: room for a selector or a token of any sane length. Beyond it: 431.
pub(super) const REQUEST_HEADER_BYTES_MAX: u32 = 256 << 10;
/// A head's lines on HTTP/1.1: front proxies send one line for each of a user's groups. Beyond it: 431.
pub(super) const REQUEST_HEADERS_MAX: usize = 512;
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

/// A connection that is served while it is polled.
pub(super) trait Served: Future<Output = hyper::Result<()>> + Send {
    /// The answers that are under way are its last ones.
    fn graceful_shutdown(self: Pin<&mut Self>);

    /// Whether there is one answer at a time, and this future sends it.
    fn is_http1(&self) -> bool;
}

/// Serves what the client speaks. In a box that is as large as its version needs.
///
/// # Errors
/// The socket broke before the first bytes told.
pub(super) async fn open<H: Handler>(
    io: Io,
    protocol: Protocol,
    requests: Requests<H>,
    tasks: &Tasks,
) -> io::Result<Pin<Box<dyn Served>>> {
    let (is_http2, io) = match protocol {
        Protocol::Any => detect_http2(io).await?,
        Protocol::Http1 => (false, io),
        Protocol::Http2 => (true, io),
    };
    let io = TokioIo::new(io);
    Ok(if is_http2 {
        let spawn = Spawn { tasks: tasks.clone(), latest: requests.latest().clone() };
        Box::pin(http2_builder(spawn).serve_connection(io, requests))
    } else {
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

/// Starts the tasks of HTTP/2 streams.
#[derive(Clone, Debug)]
pub(super) struct Spawn {
    tasks: Tasks,
    /// The answer that the next task sends: hyper starts a stream's task as soon as it has handed its request over.
    latest: Latest,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawn {
    fn execute(&self, stream: F) {
        self.tasks.spawn("stream", in_time(stream, self.latest.get()));
    }
}
