//! Tests over real sockets: protocol versions, certificates, limits.

use super::*;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Empty, Full};
use hyper::{body::Incoming, client::conn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::ServerName, sign::SingleCertAndKey};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::listener::{GivesWay, activity::Connections, bind, in_flight, tls::tests::write_certificate};
use base::config::{Address, ListenerConfig, ListenerTls};
use base::lifecycle::Drained;

/// Answers with a description of the connection.
#[derive(Clone)]
struct Describe;

impl Handler for Describe {
    type Body = Full<Bytes>;

    async fn handle(&self, request: Request<Incoming>, connection: &Connection) -> Response<Self::Body> {
        let (version, tls, tcp) = (request.version(), connection.tls, connection.peer.is_some());
        let certificate = if connection.client_certificate.is_some() { " certificate" } else { "" };
        Response::new(Full::from(format!("{version:?} tls={tls} tcp={tcp}{certificate}")))
    }
}

fn limits(connections: usize, connections_per_address: usize) -> Limits {
    Limits { connections, connections_per_address, gives_way: GivesWay::Idle, answer_timeout: DRAIN }
}

async fn start(config: ListenerConfig, connections: usize, tasks: &Tasks) -> Address {
    start_with(config, limits(connections, connections), tasks).await
}

async fn start_with(config: ListenerConfig, limits: Limits, tasks: &Tasks) -> Address {
    let bound = bind(&config).await.unwrap();
    let address = bound.address().clone();
    serve(vec![bound], &Places::new(limits), &Describe, tasks);
    address
}

/// Connects from another local address.
async fn connect_from(from: &str, address: &Address) -> TcpStream {
    let Address::Tcp(address) = address else { panic!("{address}") };
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(from.parse().unwrap()).unwrap();
    socket.connect(*address).await.unwrap()
}

/// Sends a request on a connection and keeps it open.
async fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"tcp=true") {
        answer.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(answer).unwrap()
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]).await {
        Ok(read) => read == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
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
    ListenerConfig::plain("127.0.0.1:0".parse().unwrap())
}

#[tokio::test]
async fn plain_http_on_a_tls_listener_is_answered_as_the_api_server_does() {
    let tasks = Tasks::new();
    let folder = tempfile::tempdir().unwrap();
    let (tls, _) = write_certificate(folder.path());
    let address = start(ListenerConfig { tls: Some(tls), ..plain() }, 10, &tasks).await;
    for (sent, expected) in [
        (
            &b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"[..],
            &b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"[..],
        ),
        // An alert of TLS: fatal, that this is no message.
        (b"hello, world", b"\x15\x03"),
    ] {
        let mut stream = connect(&address).await;
        stream.write_all(sent).await.unwrap();
        let mut answer = Vec::new();
        // What was sent and not read may reset the connection.
        stream.read_to_end(&mut answer).await.ok();
        assert!(answer.starts_with(expected), "{sent:?}: {answer:?}");
    }
}

#[tokio::test]
async fn plain_sockets_speak_both_versions() {
    let (tasks, clients) = (Tasks::new(), Tasks::new());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let address = start(plain(), 10, &tasks).await;
    start(ListenerConfig::plain(Address::Unix(path.clone())), 10, &tasks).await;
    assert_eq!(get_http1(connect(&address).await, &clients).await, "HTTP/1.1 tls=false tcp=true");
    assert_eq!(get_http2(connect(&address).await, &clients).await, "HTTP/2.0 tls=false tcp=true");
    let stream = UnixStream::connect(&path).await.unwrap();
    assert_eq!(get_http1(stream, &clients).await, "HTTP/1.1 tls=false tcp=false");
    assert_eq!(tasks.drain(DRAIN).await, Drained::All);
    assert!(UnixStream::connect(&path).await.is_err());
}

#[tokio::test]
async fn alpn_chooses_the_version_and_a_certificate_arrives() {
    let (tasks, clients) = (Tasks::new(), Tasks::new());
    let folder = tempfile::tempdir().unwrap();
    let (tls, certificate) = write_certificate(folder.path());
    let client = folder.path().join("client");
    std::fs::create_dir(&client).unwrap();
    let (own, _) = write_certificate(&client);
    let own = own.files.certified_key(&own.files.read().await.unwrap()).unwrap();
    let tls = ListenerTls { client_certificates: true, ..tls };
    let address = start(ListenerConfig { tls: Some(tls), ..plain() }, 10, &tasks).await;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let without = builder.clone().with_no_client_auth();
    let with = builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
    let handshake = async |config: &ClientConfig, protocols: &[&[u8]]| {
        let mut config = config.clone();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, connect(&address).await).await.unwrap()
    };
    let http2: &[&[u8]] = &[ALPN_HTTP2, b"http/1.1"];
    for (config, certificate) in [(&without, ""), (&with, " certificate")] {
        let both = handshake(config, http2).await;
        assert_eq!(get_http2(both, &clients).await, format!("HTTP/2.0 tls=true tcp=true{certificate}"));
        let old = handshake(config, &[]).await;
        assert_eq!(get_http1(old, &clients).await, format!("HTTP/1.1 tls=true tcp=true{certificate}"));
    }
    assert_eq!(tasks.drain(DRAIN).await, Drained::All);
}

#[tokio::test]
async fn an_address_has_its_share_and_takes_nothing_from_others() {
    let tasks = Tasks::new();
    let address = start_with(plain(), limits(2, 1), &tasks).await;
    let mut first = connect(&address).await;
    ask(&mut first).await;
    // More connections than there are places.
    for _ in 0..3 {
        assert!(is_closed(&mut connect(&address).await).await);
    }
    let mut other = connect_from("127.0.0.2:0", &address).await;
    ask(&mut other).await;
    ask(&mut first).await;
    drop(first);
    // The share comes back at the latest when the gateway has seen that the connection is closed.
    loop {
        let mut again = connect(&address).await;
        again.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        if again.read_u8().await.is_ok() {
            break;
        }
    }
}

/// Answers `/`; its answer to `/busy` never ends.
#[derive(Clone)]
struct Busy;

impl Handler for Busy {
    type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>;

    async fn handle(&self, request: Request<Incoming>, _: &Connection) -> Response<Self::Body> {
        let begin = Ok(http_body::Frame::data(Bytes::from_static(b"tcp=true")));
        let rest = async move {
            if request.uri().path() == "/busy" {
                std::future::pending::<()>().await;
            }
            Ok(http_body::Frame::data(Bytes::new()))
        };
        let frames = stream::once(std::future::ready(begin)).chain(stream::once(rest));
        let mut response = Response::new(BodyExt::boxed_unsync(http_body_util::StreamBody::new(frames)));
        response.extensions_mut().insert(crate::listener::LongRunning { unread_max: None });
        response
    }
}

async fn ask_for(stream: &mut TcpStream, path: &str) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"tcp=true\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
}

async fn start_busy(limits: Limits, tasks: &Tasks) -> Address {
    let bound = bind(&plain()).await.unwrap();
    let address = bound.address().clone();
    serve(vec![bound], &Places::new(limits), &Busy, tasks);
    address
}

#[tokio::test]
async fn silent_and_idle_connections_give_way_and_busy_ones_do_not() {
    let tasks = Tasks::new();
    let address = start_busy(limits(3, 3), &tasks).await;
    let mut busy = connect(&address).await;
    ask_for(&mut busy, "/busy").await;
    let mut idle = connect(&address).await;
    ask_for(&mut idle, "/").await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(connect(&address).await);
    }
    let mut newest = connect(&address).await;
    ask_for(&mut newest, "/busy").await;
    for connection in &mut silent {
        assert!(is_closed(connection).await);
    }
    // Silent connections are closed at once, even with a request on its way; one that sent a request before has a
    // second for another.
    let mut next = connect(&address).await;
    ask_for(&mut next, "/busy").await;
    loop {
        if idle.read(&mut [0; 64]).await.unwrap_or(0) == 0 {
            break;
        }
    }
    let mut waits = connect(&address).await;
    waits.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
    for connection in [&mut busy, &mut newest, &mut next] {
        assert_eq!(connection.try_read(&mut [0; 64]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
    assert_eq!(waits.try_read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(busy);
    assert_eq!(waits.read_u8().await.unwrap(), b'H');
}

#[tokio::test]
async fn a_connection_that_becomes_idle_gives_way_to_one_that_waits_already() {
    let tasks = Tasks::new();
    let address = start_busy(limits(1, 2), &tasks).await;
    let (mut sender, connection) =
        conn::http2::handshake(TokioExecutor::new(), TokioIo::new(connect(&address).await)).await.unwrap();
    tasks.spawn("client", async move { connection.await.unwrap_or_default() });
    let busy = Request::get("http://h/busy").version(Version::HTTP_2).body(Empty::<Bytes>::new()).unwrap();
    let answer = sender.send_request(busy).await.unwrap();
    let mut waits = connect(&address).await;
    waits.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
    // The waiting connection is accepted, and none gives way yet.
    tokio::task::yield_now().await;
    drop(answer);
    assert_eq!(waits.read_u8().await.unwrap(), b'H');
}

#[tokio::test]
async fn where_the_oldest_gives_way_a_new_connection_always_gets_in() {
    let tasks = Tasks::new();
    let address = start_busy(Limits { gives_way: GivesWay::Oldest, ..limits(3, 3) }, &tasks).await;
    let mut held = Vec::new();
    for _ in 0..10 {
        let mut connection = connect(&address).await;
        ask_for(&mut connection, "/busy").await;
        held.push(connection);
    }
    let mut probe = connect(&address).await;
    ask_for(&mut probe, "/").await;
}

#[tokio::test]
async fn a_connection_in_its_handshake_counts_as_silent() {
    let tasks = Tasks::new();
    let folder = tempfile::tempdir().unwrap();
    let (tls, _) = write_certificate(folder.path());
    let address = start(ListenerConfig { tls: Some(tls), ..plain() }, 1, &tasks).await;
    let mut first = connect(&address).await;
    // A handshake record that is never completed.
    first.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    let _second = connect(&address).await;
    assert!(is_closed(&mut first).await);
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
            let response = Response::builder().status(101).header("connection", "upgrade").header("upgrade", "echo");
            response.body(Empty::new()).unwrap()
        }
    }
    let tasks = Tasks::new();
    let bound = bind(&plain()).await.unwrap();
    let address = bound.address().clone();
    serve(vec![bound], &Places::new(limits(1, 2)), &Upgrade(tasks.clone()), &tasks);
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

/// HTTP and TLS state is boxed, and the state of the handshake is freed.
#[test]
fn a_connection_is_a_small_task() {
    let tasks = Tasks::new();
    let draining = tasks.token().child_token();
    let connection = Connection { number: 0, peer: None, tls: false, client_certificate: None, draining };
    let entry = Connections::default().enter(in_flight::Address::unlimited());
    let shared = ConnectionContext { activity: entry.activity.clone(), answer_timeout: DRAIN, max_age: None };
    let served = serve_socket(Box::new(tokio::io::empty()), None, connection, Arc::new(Describe), shared, &tasks);
    assert!(size_of_val(&served) <= 1 << 10, "{} bytes", size_of_val(&served));
}

/// Longer than any test waits.
const DRAIN: Duration = Duration::from_secs(20);
