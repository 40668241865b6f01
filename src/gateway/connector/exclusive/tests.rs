//! Requests to servers that a test scripts byte by byte.

use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::Instant,
};
use tower::service_fn;

use super::HTTP1_BUFFER_MAX;
use crate::connector::{
    AsGateway, BoxError, Connector, Finding, RequestBody, ResponseBody, Retry, SendError, Socket, SocketOpener,
    test_server::{config, read_head, write},
};

const EMPTY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";

async fn server() -> (TcpListener, AsGateway) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connector = Connector::new(&config(listener.local_addr().unwrap())).unwrap();
    (listener, connector.as_gateway())
}

async fn send(gateway: &AsGateway, method: &str, path: &str) -> Result<Response<ResponseBody>, SendError> {
    let request = Request::builder().method(method).uri(path).body(RequestBody::Empty).unwrap();
    gateway.outbound(request).unwrap().send().await
}

/// Sends a request that a script answers; its body.
async fn text(gateway: &AsGateway, method: &str, path: &str) -> String {
    let body = send(gateway, method, path).await.unwrap().into_body().collect().await.unwrap();
    String::from_utf8(body.to_bytes().into()).unwrap()
}

/// Reads the head of a request and answers it.
async fn answer(stream: &mut TcpStream, text: &str) -> String {
    let head = read_head(stream).await;
    write(stream, text).await;
    head
}

/// Runs what the server does beside the client.
struct Script(JoinSet<Vec<String>>);

impl Script {
    fn new(script: impl Future<Output = Vec<String>> + Send + 'static) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(script);
        Self(tasks)
    }

    /// The first lines of what came.
    async fn end(mut self) -> Vec<String> {
        let heads = self.0.join_next().await.unwrap().unwrap();
        heads.iter().map(|head| head.lines().next().unwrap_or_default().to_owned()).collect()
    }
}

#[tokio::test]
async fn an_answer_that_was_read_leaves_its_connection_to_the_next_request() {
    let (listener, gateway) = server().await;
    let script = Script::new(async move {
        let (mut only, _) = listener.accept().await.unwrap();
        vec![answer(&mut only, CHUNKED).await, answer(&mut only, EMPTY).await, answer(&mut only, CHUNKED).await]
    });
    for (method, path, body) in [("GET", "/a", "hello"), ("DELETE", "/b", ""), ("GET", "/c?", "hello")] {
        assert_eq!(text(&gateway, method, path).await, body);
    }
    assert_eq!(script.end().await, ["GET /a HTTP/1.1", "DELETE /b HTTP/1.1", "GET /c? HTTP/1.1"]);
}

#[tokio::test]
async fn an_answer_that_is_given_up_closes_its_connection() {
    let (listener, gateway) = server().await;
    let script = Script::new(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        let half = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";
        let mut heads = vec![answer(&mut first, half).await];
        // Until the client goes.
        first.read_to_end(&mut Vec::new()).await.unwrap();
        let (mut second, _) = listener.accept().await.unwrap();
        heads.push(answer(&mut second, EMPTY).await);
        heads
    });
    let mut given_up = send(&gateway, "GET", "/log").await.unwrap().into_body();
    assert_eq!(given_up.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
    drop(given_up);
    assert_eq!(text(&gateway, "GET", "/next").await, "");
    assert_eq!(script.end().await, ["GET /log HTTP/1.1", "GET /next HTTP/1.1"]);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error() {
    for head in ["content-length: 9\r\n\r\nhalf", "transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"] {
        let (listener, gateway) = server().await;
        let script = Script::new(async move {
            let (mut first, _) = listener.accept().await.unwrap();
            vec![answer(&mut first, &format!("HTTP/1.1 200 OK\r\n{head}")).await]
        });
        let mut body = send(&gateway, "GET", "/").await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
        assert!(body.frame().await.unwrap().is_err(), "{head}");
        assert_eq!(script.end().await.len(), 1);
    }
}

/// The API server's warnings are a few KB at most. hyper may take up to twice as many bytes.
#[tokio::test]
async fn the_headers_of_an_answer_are_limited() {
    for (length, is_accepted) in [(HTTP1_BUFFER_MAX - 1024, true), (2 * HTTP1_BUFFER_MAX + 1024, false)] {
        let (listener, gateway) = server().await;
        let text = format!("HTTP/1.1 200 OK\r\nwarning: {}\r\ncontent-length: 0\r\n\r\n", "x".repeat(length));
        let _script = Script::new(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            vec![answer(&mut stream, &text).await]
        });
        match send(&gateway, "GET", "/").await {
            Ok(answer) => assert!(is_accepted && answer.headers()["warning"].len() == length),
            Err(error) => assert!(!is_accepted && matches!(error, SendError::Malformed(_)), "{error:?}"),
        }
    }
}

#[tokio::test]
async fn a_write_that_finds_its_connection_closed_goes_on_another() {
    let (listener, gateway) = server().await;
    let script = Script::new(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        let mut heads = vec![answer(&mut first, EMPTY).await];
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        heads.push(answer(&mut second, EMPTY).await);
        heads
    });
    assert_eq!(text(&gateway, "GET", "/first").await, "");
    // The end of the first connection has to arrive; it is not read before the next request.
    tokio::task::yield_now().await;
    assert_eq!(text(&gateway, "POST", "/write").await, "");
    assert_eq!(script.end().await, ["GET /first HTTP/1.1", "POST /write HTTP/1.1"]);
}

#[tokio::test]
async fn a_read_whose_connection_breaks_is_asked_again_and_a_write_is_not() {
    for (method, again) in [("GET", true), ("POST", false)] {
        let (listener, gateway) = server().await;
        let script = Script::new(async move {
            let (mut first, _) = listener.accept().await.unwrap();
            let mut heads = vec![answer(&mut first, EMPTY).await, read_head(&mut first).await];
            drop(first);
            let (mut second, _) = listener.accept().await.unwrap();
            heads.push(answer(&mut second, EMPTY).await);
            heads
        });
        assert_eq!(text(&gateway, "GET", "/1").await, "");
        let broken = send(&gateway, method, "/2").await;
        assert_eq!(broken.is_ok(), again);
        if let Err(error) = broken {
            assert!(matches!(error, SendError::ConnectionLost { reused: true, .. }), "{error:?}");
            assert_eq!(error.retry(), Retry::AtOnce);
            assert_eq!(text(&gateway, "GET", "/2").await, "");
        }
        let last = format!("{} /2 HTTP/1.1", if again { method } else { "GET" });
        assert_eq!(script.end().await, ["GET /1 HTTP/1.1".to_owned(), format!("{method} /2 HTTP/1.1"), last]);
    }
}

#[tokio::test]
async fn lost_connections_malformed_answers_and_unreachable_servers_have_their_own_errors() {
    let (listener, gateway) = server().await;
    let script = Script::new(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        let mut heads = vec![read_head(&mut first).await];
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        heads.push(answer(&mut second, "what is this?\r\n\r\n").await);
        heads
    });
    let error = send(&gateway, "GET", "/1").await.unwrap_err();
    assert!(matches!(error, SendError::ConnectionLost { reused: false, .. }), "{error:?}");
    let error = send(&gateway, "GET", "/2").await.unwrap_err();
    assert!(matches!(error, SendError::Malformed(_)), "{error:?}");
    assert_eq!(script.end().await.len(), 2);
    // The listener is closed.
    let error = send(&gateway, "GET", "/3").await.unwrap_err();
    assert!(matches!(error, SendError::Unreachable(_)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_idle_for_long_is_not_used_again() {
    let (listener, gateway) = server().await;
    let script = Script::new(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        let mut heads = vec![answer(&mut first, EMPTY).await];
        let (mut second, _) = listener.accept().await.unwrap();
        heads.push(answer(&mut second, EMPTY).await);
        heads
    });
    assert_eq!(text(&gateway, "GET", "/1").await, "");
    tokio::time::advance(super::IDLE_TIMEOUT).await;
    assert_eq!(text(&gateway, "POST", "/2").await, "");
    assert_eq!(script.end().await, ["GET /1 HTTP/1.1", "POST /2 HTTP/1.1"]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_in_time_also_if_no_other_becomes_idle() {
    let (listener, gateway) = server().await;
    let script = Script::new(async move {
        let mut heads = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            heads.push(answer(&mut stream, EMPTY).await);
            // Until the client goes.
            stream.read_to_end(&mut Vec::new()).await.unwrap();
        }
        heads
    });
    // The second one after the first was closed: each is closed, not only the first.
    for path in ["/1", "/2"] {
        assert_eq!(text(&gateway, "GET", path).await, "");
        tokio::time::sleep(super::IDLE_TIMEOUT).await;
    }
    let heads = tokio::time::timeout(super::IDLE_TIMEOUT, script.end()).await;
    assert_eq!(heads.expect("both are closed"), ["GET /1 HTTP/1.1", "GET /2 HTTP/1.1"]);
}

/// A connector to one of `upstream.servers`, and the server's ends of its connections, in memory: what one end does is
/// seen by the other before a paused clock goes on.
fn in_memory() -> (Connector, mpsc::Receiver<DuplexStream>) {
    let (accepted, connections) = mpsc::channel(1);
    let opener = SocketOpener::new(service_fn(move |_| {
        let (near, far) = duplex(4096);
        let taken = accepted.try_send(far);
        async move { taken.map(|()| Socket::new(near)).map_err(BoxError::from) }
    }));
    let address = ([127, 0, 0, 1], 1).into();
    let servers = ["127.0.0.1:1".parse().unwrap()];
    let connector = Connector::to_servers(&config(address), &servers, None, Some(opener)).unwrap();
    connector.servers().unwrap().found(vec![Some(Finding::Ready { version: None })]);
    (connector, connections)
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_when_its_server_closes_it_or_is_not_used_any_more() {
    for is_killed in [true, false] {
        let (connector, mut connections) = in_memory();
        let (gateway, servers) = (connector.as_gateway(), connector.servers().unwrap());
        let began = Instant::now();
        let (body, mut stream) = tokio::join!(text(&gateway, "GET", "/1"), async {
            let mut stream = connections.recv().await.unwrap();
            write(&mut stream, EMPTY).await;
            read_head(&mut stream).await;
            stream
        });
        assert_eq!((&*body, servers.states()[0].connections), ("", 1));
        if is_killed {
            stream.shutdown().await.unwrap();
        } else {
            connector.break_all();
        }
        // Until the client goes.
        stream.read_to_end(&mut Vec::new()).await.unwrap();
        assert_eq!(began.elapsed().as_secs(), 0, "killed: {is_killed}");
        assert_eq!(servers.states()[0].connections, 0, "killed: {is_killed}");
    }
}
