//! Requests to servers on loopback, with and without TLS.

use std::time::Duration;

use futures_util::stream;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use tokio::{net::TcpListener, task::JoinSet, time::timeout};

use super::{
    BuildError, Connector, Fault, Finding, RequestBody, Retry, SendError,
    test_server::{TestBody, TestServer, config, full, read_head, write},
};

fn request(method: &str, path: &str) -> Request<RequestBody> {
    Request::builder().method(method).uri(path).body(RequestBody::Empty).unwrap()
}

async fn text(answer: Response<super::ResponseBody>) -> String {
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
}

/// Answers with the request line and the sorted names of the headers.
async fn describe(request: Request<Incoming>) -> Response<TestBody> {
    let mut headers: Vec<_> = request.headers().keys().map(|name| name.as_str().to_owned()).collect();
    headers.sort();
    let line = format!("{} {:?} {:?} {}", request.method(), request.uri(), request.version(), headers.join(","));
    Response::new(full(line))
}

#[tokio::test]
async fn the_path_arrives_as_it_was_given() {
    let server = TestServer::start(describe).await;
    let own = server.connector().own_requests();
    for path in ["//api/v1?", "/a%2Fb/../c?x=%20&x", "/"] {
        let answer = own.send(request("GET", path)).await.unwrap();
        assert_eq!(text(answer).await, format!("GET {path} HTTP/1.1 host,user-agent,via"));
    }
}

#[tokio::test]
async fn http2_is_spoken_where_it_is_offered_and_not_for_upgrades() {
    let server = TestServer::start_tls(describe).await;
    let connector = server.connector();
    let answer = connector.own_requests().send(request("GET", "/api")).await.unwrap();
    assert_eq!(answer.version(), Version::HTTP_2);
    assert_eq!(text(answer).await, format!("GET {}api HTTP/2.0 user-agent,via", server.config.cluster_url));
    let outbound = connector.as_gateway().outbound(request("GET", "/api")).unwrap();
    let answer = outbound.send_http1().await.unwrap();
    assert_eq!(answer.version(), Version::HTTP_11);
}

#[tokio::test]
async fn the_credentials_of_the_configuration_are_added() {
    let server = TestServer::start(|request: Request<Incoming>| async move {
        let identity = request.headers().get("authorization").map_or("none", |value| value.to_str().unwrap());
        Response::new(full(identity.to_owned()))
    })
    .await;
    let mut config = server.config.clone();
    config.auth_info.token = Some("secret".to_owned().into());
    let own = Connector::new(&config).unwrap().own_requests();
    assert_eq!(text(own.send(request("GET", "/")).await.unwrap()).await, "Bearer secret");
}

#[tokio::test]
async fn a_token_file_may_end_in_a_line_break() {
    let server = TestServer::start(|request: Request<Incoming>| async move {
        let identity = request.headers().get("authorization").map_or("none", |value| value.to_str().unwrap());
        Response::new(full(identity.to_owned()))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tok");
    let mut config = server.config.clone();
    config.auth_info.token_file = Some(path.display().to_string());
    // The file takes precedence, as in kube-client.
    let exec = serde_json::json!({"command": "/nowhere", "interactiveMode": "Never"});
    config.auth_info.exec = Some(serde_json::from_value(exec).unwrap());
    std::fs::write(&path, "made\n").unwrap();
    let connector = Connector::new(&config).unwrap();
    assert_eq!(text(connector.own_requests().send(request("GET", "/")).await.unwrap()).await, "Bearer made");
    let outbound = connector.as_gateway().outbound(request("GET", "/")).unwrap();
    assert_eq!(text(outbound.send().await.unwrap()).await, "Bearer made");
    std::fs::write(&path, "\n").unwrap();
    assert!(matches!(Connector::new(&config), Err(BuildError::Token(_))));
    config.auth_info.token = Some("inline".to_owned().into());
    let own = Connector::new(&config).unwrap().own_requests();
    assert_eq!(text(own.send(request("GET", "/")).await.unwrap()).await, "Bearer inline");
}

#[tokio::test]
async fn an_unreachable_server_has_its_own_error() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = Connector::new(&config(address)).unwrap().own_requests().send(request("GET", "/")).await.unwrap_err();
    assert!(matches!(error, SendError::Unreachable(_)), "{error:?}");
    assert_eq!((error.fault(), error.retry()), (Fault::Upstream, Retry::Later));
}

/// Answers the first request of the first connection, then closes it upon its second; answers all that come on others.
/// Returns what came on the second connection.
async fn closes_after_one(listener: TcpListener) -> String {
    let (mut first, _) = listener.accept().await.unwrap();
    read_head(&mut first).await;
    write(&mut first, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    read_head(&mut first).await;
    drop(first);
    let (mut second, _) = listener.accept().await.unwrap();
    let head = read_head(&mut second).await;
    write(&mut second, "HTTP/1.1 204 No Content\r\n\r\n").await;
    head
}

#[tokio::test]
async fn a_read_is_repeated_once_when_a_used_connection_turns_out_dead() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = Connector::new(&config(listener.local_addr().unwrap())).unwrap().own_requests();
    let mut server = JoinSet::new();
    server.spawn(closes_after_one(listener));
    assert_eq!(own.send(request("GET", "/1")).await.unwrap().status(), StatusCode::OK);
    assert_eq!(own.send(request("GET", "/2")).await.unwrap().status(), StatusCode::NO_CONTENT);
    assert!(server.join_next().await.unwrap().unwrap().starts_with("GET /2 "));
}

/// The command of an exec over a WebSocket, which is a GET, may have been started.
#[tokio::test]
async fn an_upgrade_is_never_repeated() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = Connector::new(&config(listener.local_addr().unwrap())).unwrap().as_gateway();
    let mut server = JoinSet::new();
    server.spawn(closes_after_one(listener));
    let upgrade = async |path| {
        let mut request = request("GET", path);
        request.headers_mut().insert("connection", HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert("upgrade", HeaderValue::from_static("websocket"));
        gateway.outbound(request).unwrap().send_http1().await
    };
    assert_eq!(text(upgrade("/1").await.unwrap()).await, "");
    let error = upgrade("/2").await.unwrap_err();
    assert!(matches!(error, SendError::ConnectionLost { reused: true, .. }), "{error:?}");
    assert_eq!(upgrade("/3").await.unwrap().status(), StatusCode::NO_CONTENT);
    assert!(server.join_next().await.unwrap().unwrap().starts_with("GET /3 "));
}

#[tokio::test]
async fn a_write_is_never_repeated() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = Connector::new(&config(listener.local_addr().unwrap())).unwrap().own_requests();
    let mut server = JoinSet::new();
    server.spawn(closes_after_one(listener));
    assert_eq!(own.send(request("GET", "/1")).await.unwrap().status(), StatusCode::OK);
    let error = own.send(request("POST", "/2")).await.unwrap_err();
    assert!(matches!(error, SendError::ConnectionLost { reused: true, .. }), "{error:?}");
    assert_eq!(own.send(request("GET", "/3")).await.unwrap().status(), StatusCode::NO_CONTENT);
    assert!(server.join_next().await.unwrap().unwrap().starts_with("GET /3 "));
}

/// API servers and load balancers close unused connections. A write that is sent at that moment is lost.
#[tokio::test(start_paused = true)]
async fn a_connection_that_upstream_may_be_closing_is_not_used_for_a_write() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = Connector::new(&config(listener.local_addr().unwrap())).unwrap().own_requests();
    let mut server = JoinSet::new();
    server.spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        read_head(&mut first).await;
        write(&mut first, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let (mut second, _) = listener.accept().await.unwrap();
        let head = read_head(&mut second).await;
        write(&mut second, "HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").await;
        head
    });
    let answer = own.send(request("POST", "/1")).await.unwrap();
    assert_eq!(text(answer).await, "");
    tokio::time::advance(Duration::from_secs(31)).await;
    let answer = timeout(Duration::from_secs(5), own.send(request("POST", "/2"))).await;
    assert_eq!(answer.expect("sent on a connection of its own").unwrap().status(), StatusCode::CREATED);
    assert!(server.join_next().await.unwrap().unwrap().starts_with("POST /2 "));
}

#[tokio::test]
async fn a_fresh_connection_that_breaks_is_not_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = Connector::new(&config(listener.local_addr().unwrap())).unwrap().own_requests();
    let mut server = JoinSet::new();
    server.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        drop(stream);
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        write(&mut stream, "what is this?\r\n\r\n").await;
        read_head(&mut stream).await;
    });
    let error = own.send(request("GET", "/")).await.unwrap_err();
    assert!(matches!(error, SendError::ConnectionLost { reused: false, .. }), "{error:?}");
    let error = own.send(request("GET", "/")).await.unwrap_err();
    assert!(matches!(error, SendError::Malformed(_)), "{error:?}");
}

#[tokio::test]
async fn an_exec_plugin_runs_no_more_often_for_more_connections() {
    let server = TestServer::start(|request: Request<Incoming>| async move {
        Response::new(full(request.headers()["authorization"].to_str().unwrap().to_owned()))
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let runs = directory.path().join("runs");
    let credential = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":
        {"token":"made","expirationTimestamp":"2999-01-01T00:00:00Z"}}"#;
    let script = format!("echo run >> {}; echo '{credential}'", runs.display());
    let exec = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", script],
        "interactiveMode": "Never",
    });
    let mut config = server.config.clone();
    config.auth_info.exec = Some(serde_json::from_value(exec).unwrap());
    let connector = Connector::new(&config).unwrap();
    assert_eq!(text(connector.own_requests().send(request("GET", "/")).await.unwrap()).await, "Bearer made");
    let outbound = connector.as_gateway().outbound(request("GET", "/")).unwrap();
    assert_eq!(text(outbound.send().await.unwrap()).await, "Bearer made");
    // Once for a certificate, once for a token.
    assert_eq!(std::fs::read_to_string(runs).unwrap().lines().count(), 2);
}

#[tokio::test]
async fn a_proxy_is_asked_for_a_tunnel_with_its_credentials() {
    let server = TestServer::start(describe).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = server.config.clone();
    let proxy = format!("http://me:p%40ss@{}", listener.local_addr().unwrap());
    config.proxy_url = Some(proxy.parse().unwrap());
    let target = config.cluster_url.authority().unwrap().to_string();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let head = read_head(&mut client).await;
        assert!(head.starts_with(&format!("CONNECT {target} ")), "{head}");
        assert!(head.to_lowercase().contains("proxy-authorization: basic bwu6cebzcw=="), "{head}");
        write(&mut client, "HTTP/1.1 200 OK\r\n\r\n").await;
        let mut upstream = tokio::net::TcpStream::connect(target).await.unwrap();
        // Ends when the client goes, however it goes.
        let _ended = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
    });
    let own = Connector::new(&config).unwrap().own_requests();
    assert_eq!(text(own.send(request("GET", "/x")).await.unwrap()).await, "GET /x HTTP/1.1 host,user-agent,via");
    config.proxy_url = Some("ftp://proxy".parse().unwrap());
    assert!(matches!(Connector::new(&config), Err(BuildError::Proxy(_))));
}

/// A connector to a server at that address in place of the configuration's.
fn among(config: &kube_client::Config, server: &str) -> Connector {
    let connector = Connector::to_servers(config, &[server.parse().unwrap()], None, None).unwrap();
    connector.servers().unwrap().found(vec![Some(Finding::Ready { version: None })]);
    connector
}

#[tokio::test]
async fn a_server_shows_a_certificate_of_its_address_or_of_the_configured_name() {
    let server = TestServer::start_tls(describe).await;
    let port = server.config.cluster_url.port_u16().unwrap();
    let mut config = server.config.clone();
    config.cluster_url = "https://cluster.invalid:6443/prefix".parse().unwrap();
    let sent = async |config: &kube_client::Config, host: &str| {
        let own = among(config, &format!("{host}:{port}")).own_requests();
        Ok::<_, SendError>(text(own.send(request("GET", "/api")).await?).await)
    };
    let expected = "GET https://cluster.invalid:6443/prefix/api HTTP/2.0 user-agent,via";
    assert_eq!(sent(&config, "localhost").await.unwrap(), expected);
    let error = sent(&config, "127.0.0.1").await.unwrap_err();
    assert!(matches!(error, SendError::Unreachable(_)), "{error:?}");
    config.tls_server_name = Some("localhost".to_owned());
    assert_eq!(sent(&config, "127.0.0.1").await.unwrap(), expected);
}

#[tokio::test]
async fn the_connections_of_every_kind_lead_to_a_server_and_break_when_it_is_not_used_any_more() {
    let server = TestServer::start(describe).await;
    let address = server.config.cluster_url.authority().unwrap().to_string();
    let mut config = server.config.clone();
    config.cluster_url = "http://127.0.0.1:1".parse().unwrap();
    let connector = among(&config, &address);
    let (own, gateway) = (connector.own_requests(), connector.as_gateway());
    assert!(own.send(request("GET", "/")).await.is_ok());
    let outbound = || gateway.outbound(request("GET", "/")).unwrap();
    for answer in [outbound().send().await, outbound().long_running(true).send().await, outbound().send_http1().await] {
        assert!(text(answer.unwrap()).await.starts_with("GET / HTTP/1.1"));
    }
    let states = || connector.servers().unwrap().states()[0].clone();
    assert_eq!((states().server, states().connections), (address, 4));
    let foreign = Finding::Foreign { error: "another cluster".to_owned() };
    connector.servers().unwrap().found(vec![Some(foreign)]);
    assert!(connector.server_checks().unwrap().send(0, request("GET", "/")).await.is_ok(), "it is checked");
    let unused = async || {
        let checks = async {
            connector.servers().unwrap().wanted().await;
            connector.servers().unwrap().found(vec![None]);
            std::future::pending().await
        };
        tokio::select! {
            answer = outbound().send() => answer,
            never = checks => never,
        }
    };
    let error = unused().await.unwrap_err();
    assert!(matches!(error, SendError::Unreachable(_)), "an idle connection is not used: {error:?}");
}

/// Otherwise reviews would go on at a cluster that was replaced, whose connections are still open.
#[tokio::test]
async fn connections_of_another_configuration_break_together_with_those_of_upstream() {
    let silent = || async { Response::new(StreamBody::new(stream::pending()).boxed_unsync()) };
    let server = TestServer::start(move |_| silent()).await;
    let connector = server.connector();
    let reviews = connector.beside(&server.config).unwrap().own_requests();
    let body = reviews.send(request("GET", "/")).await.unwrap().into_body();
    connector.break_all();
    let ended = timeout(Duration::from_secs(20), body.collect()).await.expect("the connection breaks");
    assert!(ended.is_err(), "{ended:?}");
}

#[tokio::test]
async fn clients_credentials_are_not_sent_to_a_server_in_clear_text() {
    let mut config = config(([127, 0, 0, 1], 1).into());
    assert!(among(&config, "localhost:1").as_client().is_ok());
    assert!(matches!(among(&config, "10.0.0.1:1").as_client(), Err(BuildError::ClearText(_))));
    config.cluster_url = "http://elsewhere:1".parse().unwrap();
    assert!(among(&config, "[::1]:1").as_client().is_ok(), "that address is not dialled");
}
