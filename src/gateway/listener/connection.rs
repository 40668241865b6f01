//! Serves one connection, from its first byte to its last.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Sleep, sleep};

use crate::listener::activity::Activity;
use crate::listener::answer_timeout::Overdue;
use crate::listener::in_flight::Address;
use crate::listener::io::Io;
use crate::listener::protocol::{Protocol, Served, open};
use crate::listener::requests::Requests;
use crate::listener::{Connection, Handler};
use base::lifecycle::Tasks;
use base::telemetry::{self, Chain, ConnectionError, caused_by};

/// Time limit for the first request's head.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for an idle connection that gives way to close gracefully, in case a request was on its way.
const GIVE_WAY_TIMEOUT: Duration = Duration::from_secs(1);

/// Links a connection to the others and to their limits.
#[derive(Clone, Debug)]
pub struct ConnectionContext {
    pub(super) activity: Arc<Activity>,
    /// How long a finite answer may stay unread.
    pub(super) answer_timeout: Duration,
    /// Age after which the connection takes no further requests; `None` for no limit.
    pub(super) max_age: Option<Duration>,
}

impl ConnectionContext {
    /// For a connection that shares nothing with others.
    pub fn alone(answer_timeout: Duration) -> Self {
        let activity = Arc::new(Activity::new(tokio::time::Instant::now(), Address::unlimited()));
        Self { activity, answer_timeout, max_age: None }
    }
}

/// Serves requests until the client closes the connection, it gives way to another one, or it is drained.
pub async fn serve_connection<H: Handler>(
    io: Io,
    protocol: Protocol,
    connection: Connection,
    handler: H,
    shared: ConnectionContext,
    tasks: &Tasks,
) {
    let draining = connection.draining.clone();
    let ConnectionContext { activity, answer_timeout, max_age } = shared;
    let requests = Requests::new(handler, connection, activity.clone(), answer_timeout);
    let mut timer = pin!(sleep(FIRST_REQUEST_TIMEOUT));
    let opened = tokio::select! {
        biased;
        () = draining.cancelled() => return,
        () = activity.gives_way() => return,
        opened = open(io, protocol, requests.clone(), tasks) => opened,
        () = timer.as_mut() => return telemetry::connection_failed(ConnectionError::HeaderTimeout),
    };
    let Ok(mut http) = opened else { return };
    let (mut told, mut waited, mut gives_way) = (false, false, false);
    let mut overdue = Overdue::default();
    // Boxed, since most connections have none.
    let mut age = max_age.map(|age| Box::pin(sleep(age)));
    let ended = loop {
        tokio::select! {
            // The drain comes first: a response that is ended by the drain is the connection's last one.
            biased;
            () = draining.cancelled(), if !told => {
                told = true;
                http.as_mut().graceful_shutdown();
            }
            () = activity.gives_way(), if !gives_way => {
                if !requests.have_come() {
                    return;
                }
                (told, gives_way, waited) = (true, true, false);
                http.as_mut().graceful_shutdown();
                timer.as_mut().reset(tokio::time::Instant::now() + GIVE_WAY_TIMEOUT);
            }
            () = poll_fn(|context| poll_age(&mut age, context)) => {
                age = None;
                retire(http.as_mut(), &requests);
            }
            ended = poll_fn(|context| poll_served(http.as_mut(), &requests, &mut overdue, context)) => match ended {
                Some(ended) => break ended,
                None => return,
            },
            () = timer.as_mut(), if !waited => {
                if gives_way {
                    if activity.may_close() {
                        return;
                    }
                    // An answer is in flight, and has its own time limit.
                    timer.as_mut().reset(tokio::time::Instant::now() + GIVE_WAY_TIMEOUT);
                    continue;
                }
                waited = true;
                if !requests.have_come() {
                    return telemetry::connection_failed(ConnectionError::HeaderTimeout);
                }
            }
        }
    };
    if let Err(error) = ended {
        report(&error, requests.have_come());
    }
}

/// The result of the connection; `None` if an answer on HTTP/1.1 was not read in time. (On HTTP/2 each stream's own
/// task takes care of that.)
fn poll_served<H>(
    http: Pin<&mut (dyn Served + 'static)>,
    requests: &Requests<H>,
    overdue: &mut Overdue,
    context: &mut Context<'_>,
) -> Poll<Option<hyper::Result<()>>> {
    let is_http1 = http.is_http1();
    match http.poll(context) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending if is_http1 => overdue.poll(requests.latest().get().as_deref(), context).map(|()| None),
        Poll::Pending => Poll::Pending,
    }
}

/// Has a connection of age take no further requests.
fn retire<H>(http: Pin<&mut (dyn Served + 'static)>, requests: &Requests<H>) {
    telemetry::limit_reached("connection_age");
    if http.is_http1() {
        // Closed now, it would meet a request that is on its way.
        requests.close_with_next();
    } else {
        http.graceful_shutdown();
    }
}

/// Ready when the connection has reached its maximum age; never if it has none.
fn poll_age(age: &mut Option<Pin<Box<Sleep>>>, context: &mut Context<'_>) -> Poll<()> {
    match age {
        Some(age) => age.as_mut().poll(context),
        None => Poll::Pending,
    }
}

/// Counts errors that the client caused. A client that merely disconnects is not an error.
fn report(error: &hyper::Error, requested: bool) {
    tracing::debug!(error = %Chain(error), "connection ended");
    let is_of_socket = caused_by::<io::Error>(error).is_some();
    if error.is_parse_too_large() {
        telemetry::limit_reached("request_header_bytes");
    } else if error.is_timeout() {
        // After a request the connection was merely idle.
        if !requested {
            telemetry::connection_failed(ConnectionError::HeaderTimeout);
        }
    } else if !(error.is_incomplete_message() || error.is_body_write_aborted() || is_of_socket) {
        telemetry::connection_failed(ConnectionError::Protocol);
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

    use crate::listener::protocol::IDLE_TIMEOUT;
    use crate::listener::requests::REQUEST_HEADER_BYTES_MAX;
    use crate::listener::requests::REQUEST_HEADERS_MAX;
    use base::lifecycle::Drained;

    const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

    /// Answers at once, or when the drain begins.
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
        serve(Answer { wait }, protocol, tasks, ConnectionContext::alone(ANSWER_TIMEOUT), 1 << 20)
    }

    /// The client's end of a connection that buffers `room` bytes.
    fn serve<H: Handler>(
        handler: H,
        protocol: Protocol,
        tasks: &Tasks,
        shared: ConnectionContext,
        room: usize,
    ) -> DuplexStream {
        let (client, server) = duplex(room);
        let draining: CancellationToken = tasks.token().child_token();
        let connection = Connection { number: 0, peer: None, tls: false, client_certificate: None, draining };
        let spawner = tasks.clone();
        tasks.spawn("connection", async move {
            serve_connection(Box::new(server), protocol, connection, handler, shared, &spawner).await;
        });
        client
    }

    /// Paused time advances only when all tasks are idle.
    async fn until_all_wait() {
        sleep(Duration::from_millis(1)).await;
    }

    async fn rest(mut client: DuplexStream) -> String {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes).to_lowercase()
    }

    #[tokio::test(start_paused = true)]
    async fn the_drain_closes_a_connection_after_its_response() {
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
    async fn a_connection_without_a_request_is_closed() {
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

    /// How long, in seconds, a client can go on sending one byte of a head per second.
    async fn dribble(client: DuplexStream) -> u64 {
        let begun = tokio::time::Instant::now();
        let (mut read, mut write) = tokio::io::split(client);
        let dribble = async {
            for byte in b"GET /".iter().chain(std::iter::repeat(&b'a')) {
                sleep(Duration::from_secs(1)).await;
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
    async fn a_slowly_sent_head_is_cut_off_at_the_time_limit() {
        for protocol in [Protocol::Any, Protocol::Http1] {
            let tasks = Tasks::new();
            assert_eq!(dribble(start(false, protocol, &tasks)).await, FIRST_REQUEST_TIMEOUT.as_secs());
            let mut client = start(false, protocol, &tasks);
            client.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
            assert_eq!(dribble(client).await, IDLE_TIMEOUT.as_secs());
        }
    }

    /// The longest time for which a client may take nothing of `/events`.
    const UNREAD_MAX: Duration = Duration::from_secs(300);

    /// An endless body. Without a time limit at `/watch`; limited only in unread time at `/events`.
    #[derive(Clone)]
    struct Endless;

    impl Handler for Endless {
        type Body = http_body_util::StreamBody<EndlessFrames>;

        async fn handle(&self, request: Request<Incoming>, _: &Connection) -> Response<Self::Body> {
            let piece = || Ok::<_, std::convert::Infallible>(http_body::Frame::data(Bytes::from(vec![b'x'; 1 << 16])));
            let mut response = Response::new(http_body_util::StreamBody::new(futures_util::stream::iter(
                std::iter::repeat_with(piece as fn() -> _),
            )));
            let unread_max = match request.uri().path() {
                "/watch" => None,
                "/events" => Some(UNREAD_MAX),
                _ => return response,
            };
            response.extensions_mut().insert(crate::listener::LongRunning { unread_max });
            response
        }
    }

    type EndlessFrames = futures_util::stream::Iter<
        std::iter::RepeatWith<fn() -> Result<http_body::Frame<Bytes>, std::convert::Infallible>>,
    >;

    fn start_endless(protocol: Protocol, tasks: &Tasks) -> DuplexStream {
        start_sharing(protocol, tasks, ConnectionContext::alone(ANSWER_TIMEOUT))
    }

    fn start_sharing(protocol: Protocol, tasks: &Tasks, shared: ConnectionContext) -> DuplexStream {
        serve(Endless, protocol, tasks, shared, 1 << 10)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_read_in_time_ends_its_connection() {
        let tasks = Tasks::new();
        let mut client = start_endless(Protocol::Http1, &tasks);
        client.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        client.read_u8().await.unwrap();
        sleep(ANSWER_TIMEOUT * 2).await;
        let mut left = Vec::new();
        client.read_to_end(&mut left).await.unwrap();
        assert!(left.len() <= 1 << 10, "{} bytes came after it", left.len());

        let mut client = start_endless(Protocol::Http1, &tasks);
        client.write_all(b"GET /watch HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        sleep(ANSWER_TIMEOUT * 20).await;
        client.read_exact(&mut [0; 1 << 16]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_unread_stream_is_reset_and_others_continue() {
        use http_body_util::BodyExt;
        use hyper_util::rt::{TokioExecutor, TokioIo};

        let tasks = Tasks::new();
        let client = start_endless(Protocol::Http2, &tasks);
        let (mut sender, driver) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client)).await.unwrap();
        tasks.spawn("client", async move { driver.await.unwrap_or_default() });
        let request = |path: &str| Request::get(format!("http://h{path}")).body(Full::<Bytes>::default()).unwrap();
        let mut answer = sender.send_request(request("/")).await.unwrap().into_body();
        let mut watch = sender.send_request(request("/watch")).await.unwrap().into_body();
        sleep(ANSWER_TIMEOUT * 2).await;
        let ended = async {
            loop {
                if let Err(error) = answer.frame().await.unwrap() {
                    return error;
                }
            }
        };
        let error = ended.await;
        assert!(format!("{error:?}").contains("CANCEL") || error.is_canceled(), "{error:?}");
        let mut read = 0;
        while read < 1 << 24 {
            read += watch.frame().await.unwrap().unwrap().into_data().unwrap().len();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_at_its_maximum_age_ends_with_its_last_answers() {
        use http_body_util::BodyExt;
        use hyper_util::rt::{TokioExecutor, TokioIo};

        let max_age = Duration::from_secs(600);
        let shared = || ConnectionContext { max_age: Some(max_age), ..ConnectionContext::alone(ANSWER_TIMEOUT) };
        let tasks = Tasks::new();
        let mut http1 = start_sharing(Protocol::Http1, &tasks, shared());
        http1.write_all(b"GET /watch HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        let (mut sender, driver) = hyper::client::conn::http2::handshake(
            TokioExecutor::new(),
            TokioIo::new(start_sharing(Protocol::Http2, &tasks, shared())),
        )
        .await
        .unwrap();
        tasks.spawn("client", async move { driver.await.unwrap_or_default() });
        let request = |path: &str| Request::get(format!("http://h{path}")).body(Full::<Bytes>::default()).unwrap();
        let mut watch = sender.send_request(request("/watch")).await.unwrap().into_body();
        sleep(max_age * 2).await;
        // Answers in flight go on.
        http1.read_exact(&mut [0; 1 << 17]).await.unwrap();
        for _ in 0..100 {
            watch.frame().await.unwrap().unwrap();
        }
        assert!(sender.send_request(request("/")).await.is_err(), "the client was told to connect again");

        // A request that comes on an idle HTTP/1.1 connection is answered, and is the last.
        let max_age = Duration::from_secs(60);
        let shared = ConnectionContext { max_age: Some(max_age), ..ConnectionContext::alone(ANSWER_TIMEOUT) };
        let mut idle = serve(Answer { wait: false }, Protocol::Http1, &tasks, shared, 1 << 20);
        let get = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n";
        idle.write_all(get).await.unwrap();
        sleep(max_age + Duration::from_secs(1)).await;
        idle.write_all(get).await.unwrap();
        let answers = rest(idle).await;
        assert_eq!(answers.matches("http/1.1 200 ok").count(), 2, "{answers}");
        assert_eq!(answers.matches("connection: close").count(), 1, "{answers}");
    }

    /// An idle connection would keep a buffer for as many bytes.
    #[tokio::test(start_paused = true)]
    async fn a_large_head_is_the_last_of_its_connection() {
        let tasks = Tasks::new();
        let [less, more] = [30 << 10, 40 << 10];
        let spaces = " ".repeat(more);
        for (value, answers) in [
            ("x".repeat(less), 2),
            ("x".repeat(more), 1),
            // White space around a value is not part of it.
            (" ".repeat(less) + "x", 2),
            (format!("{spaces}x"), 1),
            (format!("x{spaces}"), 1),
        ] {
            let mut client = start(false, Protocol::Http1, &tasks);
            let large = format!("GET / HTTP/1.1\r\nhost: h\r\nx-large: {value}\r\n\r\n");
            client.write_all(large.as_bytes()).await.unwrap();
            // The connection may have ended.
            drop(client.write_all(b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").await);
            let text = rest(client).await;
            assert_eq!(text.matches("http/1.1 200 ok").count(), answers, "{}: {text}", value.len());
            assert!(answers > 1 || text.contains("connection: close"), "{}: {text}", value.len());
        }
    }

    /// Answers once it has read the body.
    #[derive(Clone)]
    struct Reads;

    impl Handler for Reads {
        type Body = Full<Bytes>;

        async fn handle(&self, request: Request<Incoming>, _: &Connection) -> Response<Self::Body> {
            let body = http_body_util::BodyExt::collect(request.into_body()).await.unwrap().to_bytes();
            Response::new(Full::from(format!("{} bytes", body.len())))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_body_is_no_large_head() {
        const BODY: usize = 200 << 10;
        let tasks = Tasks::new();
        let body = "x".repeat(BODY);
        let put = format!("PUT / HTTP/1.1\r\nhost: h\r\ncontent-length: {BODY}\r\n\r\n{body}");
        let chunked =
            format!("PUT / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n{BODY:x}\r\n{body}\r\n0\r\n\r\n");
        // As little as TLS gives at once, and all of it.
        for (request, at_once) in [(&put, 4 << 10), (&put, 1 << 20), (&chunked, 4 << 10), (&chunked, 1 << 20)] {
            let mut client = serve(Reads, Protocol::Http1, &tasks, ConnectionContext::alone(ANSWER_TIMEOUT), at_once);
            for _ in 0..3 {
                client.write_all(request.as_bytes()).await.unwrap();
            }
            client.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
            let text = rest(client).await;
            assert_eq!(text.matches(&format!("{BODY} bytes")).count(), 3, "{text}");
            assert!(text.ends_with("\r\n\r\n0 bytes") && !text.contains("connection: close"), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_not_read_for_too_long_ends() {
        let tasks = Tasks::new();
        let mut client = start_endless(Protocol::Http1, &tasks);
        client.write_all(b"GET /events HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        // A client that reads slowly is still served.
        for _ in 0..10 {
            client.read_exact(&mut [0; 1 << 17]).await.unwrap();
            sleep(UNREAD_MAX - Duration::from_secs(1)).await;
        }
        sleep(UNREAD_MAX * 2).await;
        let mut left = Vec::new();
        client.read_to_end(&mut left).await.unwrap();
        assert!(left.len() <= 1 << 10, "{} bytes came after it", left.len());

        let client = start_endless(Protocol::Http2, &tasks);
        let (mut sender, driver) = hyper::client::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new())
            .initial_stream_window_size(0)
            .handshake(hyper_util::rt::TokioIo::new(client))
            .await
            .unwrap();
        tasks.spawn("client", async move { driver.await.unwrap_or_default() });
        let request = Request::get("http://h/events").body(Full::<Bytes>::default()).unwrap();
        let mut events = sender.send_request(request).await.unwrap().into_body();
        let error = http_body_util::BodyExt::frame(&mut events).await.unwrap().unwrap_err();
        assert!(format!("{error:?}").contains("CANCEL") || error.is_canceled(), "{error:?}");
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
        let spaces = format!("GET / HTTP/1.1\r\nhost: h\r\nx: {}", " ".repeat(1 << 20));
        let many = format!("GET / HTTP/1.1\r\nhost: h\r\n{}\r\n", "x: y\r\n".repeat(REQUEST_HEADERS_MAX));
        let fits = format!("GET / HTTP/1.1\r\nhost: h\r\n{}\r\n", "x: y\r\n".repeat(REQUEST_HEADERS_MAX - 1));
        for (head, status) in [(long, "431"), (spaces, "431"), (many, "431"), (fits, "200")] {
            let tasks = Tasks::new();
            let mut client = start(false, Protocol::Any, &tasks);
            // The connection may have ended before all of it is written.
            drop(client.write_all(head.as_bytes()).await);
            let response = rest(client).await;
            assert!(response.starts_with(&format!("http/1.1 {status}")), "{response}");
        }
    }

    /// They are sent as an index of a byte each.
    #[tokio::test(start_paused = true)]
    async fn heads_of_too_many_lines_are_refused_over_http2() {
        use http_body_util::BodyExt;
        use hyper_util::rt::{TokioExecutor, TokioIo};

        let tasks = Tasks::new();
        let client = start(false, Protocol::Http2, &tasks);
        let (mut sender, driver) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client)).await.unwrap();
        tasks.spawn("client", async move { driver.await.unwrap_or_default() });
        for (lines, status) in [(REQUEST_HEADERS_MAX + 1, 431), (REQUEST_HEADERS_MAX, 200)] {
            let lines = std::iter::repeat_n(("x", "y"), lines);
            let request = lines.fold(Request::get("http://h/"), |request, (name, value)| request.header(name, value));
            let response = sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
            let (head, body) = response.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            assert_eq!((head.status.as_u16(), body.is_empty()), (status, status == 431));
        }
    }
}
