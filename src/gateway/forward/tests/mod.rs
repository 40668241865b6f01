//! A client, a server that forwards and the API server's part, all on loopback.

#[cfg(test)]
mod delegated;

use bytes::Bytes;
use futures_util::{StreamExt, future, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::Instant,
};

use super::*;
use crate::connector::{
    Connector, Fault,
    test_server::{TestBody, TestServer, config, full, read_head, write},
};
use base::fairness::ClientKey;

/// Forwards through `connector` as the gateway; answers an error with 503 and its word.
async fn gateway(connector: Connector) -> TestServer {
    let credentials = Credentials::Gateway { impersonates: false };
    forwarding(Forward::trusted(connector.as_gateway(), Tasks::new()), credentials).await
}

/// Forwards all requests with the same credentials.
async fn forwarding(forward: Forward, credentials: Credentials) -> TestServer {
    TestServer::start(move |request| {
        let (forward, credentials) = (forward.clone(), credentials.clone());
        async move {
            let requester = Requester {
                address: Some([192, 0, 2, 7].into()),
                client: Some(ClientKey::of(&"client")),
                unverified: None,
                cost: CostClass::Usual,
            };
            match forward.send(request, &credentials, requester, false).await {
                Ok(answer) => answer.map(BodyExt::boxed_unsync),
                Err(error) => Response::builder().status(503).body(full(error.as_str())).unwrap(),
            }
        }
    })
    .await
}

async fn connect(server: &TestServer) -> TcpStream {
    TcpStream::connect(server.config.cluster_url.authority().unwrap().as_str()).await.unwrap()
}

/// Sends one request on its own connection and returns everything that comes back; header names in lower case, as hyper
/// writes them.
async fn ask(server: &TestServer, head: &str) -> String {
    let mut client = connect(server).await;
    write(&mut client, head).await;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn expect(client: &mut TcpStream, expected: &str) {
    let mut read = vec![0; expected.len()];
    client.read_exact(&mut read).await.unwrap();
    assert_eq!(String::from_utf8(read).unwrap(), expected);
}

/// Sends a message when dropped.
struct Dropped(mpsc::Sender<&'static str>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.try_send("dropped").unwrap();
    }
}

#[tokio::test]
async fn requests_are_forwarded_unchanged() {
    let upstream = TestServer::start(|request: Request<Incoming>| async move {
        let headers = request.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
        // The gateway's own name differs in each process.
        let mut lines: Vec<_> = headers
            .filter(|(_, value)| !value.starts_with("1.1 kube-fanout-"))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        lines.sort();
        let line = format!("{} {} {}", request.method(), request.uri(), lines.join(";"));
        Response::new(full(line))
    })
    .await;
    let host = upstream.config.cluster_url.authority().unwrap().clone();
    let gateway = gateway(upstream.connector()).await;
    let answer = ask(
        &gateway,
        "DELETE //api/%2F/..?a=%20&a HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer x\r\n\
         impersonate-user: u\r\nvia: 1.0 a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    let expected = format!(
        "DELETE //api/%2F/..?a=%20&a content-length=0;host={host};impersonate-user=u;via=1.0 \
         a;x-forwarded-for=192.0.2.7"
    );
    assert!(answer.ends_with(&expected), "{answer}");
}

#[tokio::test]
async fn responses_are_forwarded_unchanged() {
    let upstream = TestServer::start(|_| async {
        let mut answer = Response::builder().status(429).header("retry-after", "1").header("x-hop", "1");
        for value in ["299 - \"b\"", "299 - \"a\""] {
            answer = answer.header("warning", value);
        }
        answer.header("connection", "x-hop").header("keep-alive", "timeout=5").body(full("{\"kind\":1}")).unwrap()
    })
    .await;
    let gateway = gateway(upstream.connector()).await;
    let answer = ask(&gateway, "GET / HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{answer}");
    assert!(answer.contains("warning: 299 - \"b\"\r\nwarning: 299 - \"a\"\r\n"), "{answer}");
    assert!(answer.contains("retry-after: 1\r\n") && answer.contains("content-length: 10\r\n"), "{answer}");
    assert!(!answer.contains("x-hop") && !answer.contains("keep-alive"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n{\"kind\":1}"), "{answer}");
}

#[tokio::test]
async fn head_keeps_the_length_without_a_body() {
    let upstream = TestServer::start_tls(|_| async { Response::new(full("12345")) }).await;
    let gateway = gateway(upstream.connector()).await;
    let answer = ask(&gateway, "HEAD / HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n").await;
    assert!(answer.contains("content-length: 5\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn bodies_and_trailers_stream_both_ways() {
    let upstream = TestServer::start_tls(|request: Request<Incoming>| async {
        let trailer = request.headers()["trailer"].clone();
        Response::builder().header("trailer", trailer).body(request.into_body().boxed_unsync()).unwrap()
    })
    .await;
    let gateway = gateway(upstream.connector()).await;
    let mut client = connect(&gateway).await;
    let head = "POST / HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\nte: trailers\r\ntrailer: x-sum\r\n\r\n";
    write(&mut client, head).await;
    let answer = read_head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for chunk in ["3\r\none\r\n", "3\r\ntwo\r\n"] {
        write(&mut client, chunk).await;
        expect(&mut client, chunk).await;
    }
    write(&mut client, "0\r\nx-sum: 6\r\n\r\n").await;
    expect(&mut client, "0\r\nx-sum: 6\r\n\r\n").await;
}

#[tokio::test]
async fn few_requests_of_a_client_that_cost_upstream_much_are_sent_at_once() {
    for (kind, cost, at_once) in [("unreviewed", CostClass::Unreviewed, 3), ("costly", CostClass::Costly, 1)] {
        few_are_sent_at_once(kind, cost, at_once).await;
    }
}

async fn few_are_sent_at_once(kind: &'static str, cost: CostClass, at_once: u32) {
    let (came, answers) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let shared = (came.clone(), answers.clone());
    let upstream = TestServer::start(move |_| {
        let (came, answers) = shared.clone();
        async move {
            came.add_permits(1);
            answers.acquire().await.unwrap().forget();
            Response::new(full(""))
        }
    })
    .await;
    let client = upstream.connector().as_client().unwrap();
    let forward = Forward::delegated(client, None, Shares::new(100, "test"), Tasks::new());
    // A turn that ends by itself would let one more through on a busy machine.
    let turns = HeavyTurns { turn_max: Duration::from_secs(3600), ..HeavyTurns::new(&forward.tasks) };
    let forward = Forward { turns: Arc::new(turns), ..forward };
    let gateway = TestServer::start(move |request: Request<Incoming>| {
        let forward = forward.clone();
        async move {
            let path = request.uri().path().to_owned();
            let client = Some(ClientKey::of(&path.split('/').nth(1)));
            let cost = if path.ends_with(kind) { cost } else { CostClass::Usual };
            let requester = Requester { address: None, client, unverified: None, cost };
            let credentials = Credentials::Passed { authorization: None, impersonates: false };
            forward.send(request, &credentials, requester, false).await.unwrap().map(BodyExt::boxed_unsync)
        }
    })
    .await;
    let send = async |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n");
        assert!(ask(&gateway, &head).await.starts_with("HTTP/1.1 200 OK"), "{path}");
    };
    let [hers, his] = ["jane", "john"].map(|name| format!("/{name}/{kind}"));
    let all = future::join_all((0..20).map(|_| send(&hers)));
    let others = async {
        came.acquire_many(at_once).await.unwrap().forget();
        // Her other requests, and those of others, do not wait.
        let more = future::join_all(["/jane/get", &his].map(&send));
        let come = async {
            came.acquire_many(2).await.unwrap().forget();
            assert_eq!(came.available_permits(), 0, "the rest of the twenty wait: {kind}");
            answers.add_permits(22);
        };
        tokio::join!(more, come);
    };
    tokio::join!(all, others);
}

#[tokio::test(start_paused = true)]
async fn a_costly_request_that_waits_for_upstream_holds_up_no_other_for_long() {
    let client = Connector::new(&config(([127, 0, 0, 1], 1).into())).unwrap().as_client().unwrap();
    let forward = Forward::delegated(client, None, Shares::new(100, "test"), Tasks::new());
    let client = Some(ClientKey::of(&"jane"));
    let requester = Requester { address: None, client, unverified: None, cost: CostClass::Costly };
    let began = Instant::now();
    let turns = [forward.turn(&requester).await.unwrap(), forward.turn(&requester).await.unwrap()];
    assert!(turns.iter().all(Option::is_some) && began.elapsed() >= HEAVY_TURN_MAX, "{:?}", began.elapsed());
    assert!(began.elapsed() < HEAVY_TURN_MAX * 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_disconnecting_client_cancels_the_request_before_and_after_its_head() {
    let (sender, mut seen) = mpsc::channel(8);
    let answers = sender.clone();
    let upstream = TestServer::start_tls(move |request: Request<Incoming>| {
        let dropped = Dropped(answers.clone());
        answers.try_send("asked").unwrap();
        async move {
            if request.uri().path() == "/never" {
                future::pending::<()>().await;
            }
            let first = stream::iter([Ok(Frame::data(Bytes::from_static(b"first")))]);
            let endless = first.chain(stream::pending()).map(move |frame| (frame, &dropped).0);
            Response::<TestBody>::new(BodyExt::boxed_unsync(StreamBody::new(endless)))
        }
    })
    .await;
    let gateway = gateway(upstream.connector()).await;
    for path in ["/never", "/endless"] {
        let mut client = connect(&gateway).await;
        write(&mut client, &format!("GET {path} HTTP/1.1\r\nhost: g\r\n\r\n")).await;
        assert_eq!(seen.recv().await, Some("asked"), "{path}");
        if path == "/endless" {
            read_head(&mut client).await;
            expect(&mut client, "5\r\nfirst\r\n").await;
        }
        drop(client);
        assert_eq!(seen.recv().await, Some("dropped"), "{path}");
    }
}

#[tokio::test]
async fn an_upgrade_becomes_a_tunnel_with_half_close() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connector = Connector::new(&config(listener.local_addr().unwrap())).unwrap();
    becomes_a_tunnel(listener, gateway(connector).await).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Connector::new(&config(listener.local_addr().unwrap())).unwrap().as_client().unwrap();
    let credentials = Credentials::Passed { authorization: None, impersonates: false };
    let gateway =
        forwarding(Forward::delegated(client, None, Shares::new(10, "test"), Tasks::new()), credentials).await;
    becomes_a_tunnel(listener, gateway).await;
}

async fn becomes_a_tunnel(listener: TcpListener, gateway: TestServer) {
    let mut server = JoinSet::new();
    server.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = read_head(&mut stream).await;
        let granted = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\
                       x-stream-protocol-version: v4.channel.k8s.io\r\n\r\nearly";
        write(&mut stream, granted).await;
        let mut all = String::new();
        stream.read_to_string(&mut all).await.unwrap();
        write(&mut stream, &format!(" got {all}")).await;
        head
    });
    let mut client = connect(&gateway).await;
    let head = "POST /api/v1/namespaces/d/pods/p/exec?command=a&command=b HTTP/1.1\r\nhost: g\r\n\
                connection: Upgrade\r\nupgrade: SPDY/3.1\r\nx-stream-protocol-version: v4.channel.k8s.io\r\n\
                x-stream-protocol-version: v3.channel.k8s.io\r\ncontent-length: 0\r\n\r\nping";
    write(&mut client, head).await;
    let answer = read_head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{answer}");
    for header in ["connection: Upgrade\r\n", "upgrade: SPDY/3.1\r\n", "x-stream-protocol-version: v4.channel"] {
        assert!(answer.contains(header), "{answer}");
    }
    expect(&mut client, "early").await;
    client.shutdown().await.unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, " got ping");
    let head = server.join_next().await.unwrap().unwrap();
    assert!(head.starts_with("POST /api/v1/namespaces/d/pods/p/exec?command=a&command=b HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("connection: Upgrade\r\n") && head.contains("upgrade: SPDY/3.1\r\n"), "{head}");
    assert!(head.contains("v4.channel.k8s.io\r\nx-stream-protocol-version: v3"), "{head}");
}

#[tokio::test]
async fn an_upgrade_that_is_not_granted_is_answered_as_upstream_does() {
    let upstream = TestServer::start_tls(|request: Request<Incoming>| async move {
        assert_eq!(request.version(), Version::HTTP_11);
        Response::builder().status(403).body(full("{\"kind\":\"Status\"}")).unwrap()
    })
    .await;
    let gateway = gateway(upstream.connector()).await;
    let mut client = connect(&gateway).await;
    write(&mut client, "GET /exec HTTP/1.1\r\nhost: g\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").await;
    let answer = read_head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n") && !answer.contains("upgrade"), "{answer}");
    expect(&mut client, "{\"kind\":\"Status\"}").await;
}

#[tokio::test]
async fn requests_that_cannot_be_forwarded_have_their_own_errors() {
    // Nothing listens there, and no other test is given this port.
    let closed = ([127, 0, 0, 1], 1).into();
    let gateway = gateway(Connector::new(&config(closed)).unwrap()).await;
    for (request, word) in
        [("GET /api", "unreachable"), ("CONNECT elsewhere:443", "connect_method"), ("OPTIONS *", "invalid_target")]
    {
        let answer = ask(&gateway, &format!("{request} HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with(word), "{request}: {answer}");
    }
    assert_eq!(ForwardError::Connect.fault(), Fault::Client);
}

#[tokio::test]
async fn impersonation_headers_are_refused_if_the_gateway_impersonates_itself() {
    let upstream = TestServer::start(|_| async { Response::new(full("")) }).await;
    let mut config = upstream.config.clone();
    config.auth_info.impersonate = Some("somebody".to_owned());
    let gateway = gateway(Connector::new(&config).unwrap()).await;
    let head = |line: &str| format!("GET / HTTP/1.1\r\nhost: g\r\nconnection: close\r\n{line}\r\n");
    assert!(ask(&gateway, &head("impersonate-group: g\r\n")).await.ends_with("impersonation"));
    assert!(ask(&gateway, &head("")).await.starts_with("HTTP/1.1 200"));
}
