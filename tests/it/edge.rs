//! Requests that are refused before they are parsed as Kubernetes requests.

use bytes::Bytes;
use http::StatusCode;
use kube_fanout::{
    config::{ClientsConfig, TrustedConfig},
    sim::Sim,
};
use serde_json::Value;

use crate::harness::{Answer, Client, Route, World};

async fn ask(client: &Client, method: &str, hosts: &[&str]) -> Answer {
    let hosts: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
    client.request(method, "/api/v1/pods", &hosts, Bytes::new()).await
}

fn reason(answer: &Answer) -> String {
    let status: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((&status["kind"], &status["status"]), (&"Status".into(), &"Failure".into()));
    status["reason"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn requests_of_web_pages_with_a_foreign_host_are_refused() {
    let accept_hosts = vec!["gateway.example".to_owned()];
    let world = World::start_with(Sim::new(), |config| {
        config.clients = ClientsConfig::Trusted(TrustedConfig { accept_hosts, ..TrustedConfig::default() });
    })
    .await;
    for host in ["localhost:8001", "127.0.0.1", "[::1]:1", "gateway.example"] {
        assert_eq!(ask(world.client(), "GET", &[host]).await.status, StatusCode::OK, "{host}");
    }
    for method in ["GET", "DELETE"] {
        let answer = ask(world.client(), method, &["evil.example:8001"]).await;
        assert_eq!((answer.status, reason(&answer).as_str()), (StatusCode::FORBIDDEN, "Forbidden"));
        assert_eq!(answer.route, Route::Rejected("foreign_host".to_owned()));
    }
    let client = world.client().over_http2();
    assert_eq!(client.get("/api/v1/pods").await.status, StatusCode::OK);
}

const NAMED: &str = "http://localhost:4466";
const EXEC: &str = "/api/v1/namespaces/a/pods/b/exec?command=id";
const SECRETS: &str = "/api/v1/secrets";
const WATCH: &str = "/api/v1/secrets?watch=1&resourceVersion=0";
const WEB_SOCKET: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

async fn world_with_a_named_page() -> World {
    World::start_with(Sim::new(), |config| {
        let accept_origins = vec![NAMED.parse().unwrap()];
        config.clients = ClientsConfig::Trusted(TrustedConfig { accept_origins, ..TrustedConfig::default() });
    })
    .await
}

#[tokio::test]
async fn pages_of_other_origins_are_refused() {
    let world = world_with_a_named_page().await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let other_port = format!("{}0", world.client().url());
    for page in [
        [("origin", "http://evil.example")].as_slice(),
        &[("origin", "null")],
        &[("origin", &other_port)],
        &[("origin", "http://evil.example"), ("origin", NAMED)],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
    ] {
        for (method, path, further) in [
            ("GET", EXEC, WEB_SOCKET.as_slice()),
            ("GET", WATCH, &WEB_SOCKET),
            ("POST", bindings, &[]),
            ("GET", SECRETS, &[]),
            ("OPTIONS", SECRETS, &[("access-control-request-method", "DELETE")]),
        ] {
            let headers = [page, further].concat();
            let answer = world.client().request(method, path, &headers, Bytes::from_static(b"{}")).await;
            assert_eq!(answer.route, Route::Rejected("foreign_origin".to_owned()), "{method} {path} {page:?}");
            assert_eq!((answer.status, reason(&answer).as_str()), (StatusCode::FORBIDDEN, "Forbidden"));
            assert!(answer.text().contains("clients.acceptOrigins"), "{}", answer.text());
            assert!(!answer.headers.contains_key("access-control-allow-origin"), "{:?}", answer.headers);
        }
    }
}

#[tokio::test]
async fn allowed_pages_send_requests_and_read_answers() {
    let world = world_with_a_named_page().await;
    let page = [("origin", NAMED), ("sec-fetch-site", "same-site")];
    for (method, path, further) in [
        ("GET", EXEC, WEB_SOCKET.as_slice()),
        ("GET", SECRETS, &WEB_SOCKET),
        ("POST", "/api/v1/namespaces/a/pods", &[]),
    ] {
        let headers = [page.as_slice(), further].concat();
        let answer = world.client().request(method, path, &headers, Bytes::from_static(b"{}")).await;
        assert!(matches!(answer.route, Route::Forwarded(_)), "{method} {path}: {answer:?}");
        assert_eq!(answer.headers["access-control-allow-origin"], NAMED);
    }
    world.gateway.warm("/api/v1/pods").await;
    let served = world.client().request("GET", "/api/v1/pods?resourceVersion=0", &page, Bytes::new()).await;
    assert_eq!(served.route, Route::Served);
    assert_eq!(served.headers["access-control-allow-origin"], NAMED);

    let leave = [page.as_slice(), &[("access-control-request-method", "DELETE")]].concat();
    let leave = world.client().request("OPTIONS", "/api/v1/pods", &leave, Bytes::new()).await;
    assert_eq!((leave.status, leave.body.len()), (StatusCode::NO_CONTENT, 0));
    assert_eq!(leave.headers["access-control-allow-methods"], "DELETE");
}

#[tokio::test]
async fn pages_of_the_gateways_own_origin_may_do_all_but_run_commands() {
    let world = world_with_a_named_page().await;
    let origin = world.client().url().to_owned();
    let page = [("origin", origin.as_str()), ("sec-fetch-site", "same-origin")];
    let ask = async |path| {
        let headers = [page.as_slice(), &WEB_SOCKET].concat();
        world.client().request("GET", path, &headers, Bytes::new()).await
    };
    assert!(matches!(ask(SECRETS).await.route, Route::Forwarded(_)));
    let answer = ask(EXEC).await;
    assert_eq!((answer.status, answer.route.clone()), (StatusCode::FORBIDDEN, Route::Rejected("own_page".to_owned())));
    assert!(answer.text().contains("clients.acceptOrigins"), "{}", answer.text());
    // kubectl is no web page and sends no `Origin`: it may exec.
    let kubectl = world.client().request("GET", EXEC, &WEB_SOCKET, Bytes::new()).await;
    assert!(matches!(kubectl.route, Route::Forwarded(_)), "{kubectl:?}");
}

#[tokio::test]
async fn ambiguous_requests_are_refused() {
    let world = World::start().await;
    let before = world.sim.counts().requests("deletecollection", "pods");
    let answer = ask(world.client(), "DELETE", &["localhost", "127.0.0.1"]).await;
    assert_eq!((answer.status, reason(&answer).as_str()), (StatusCode::BAD_REQUEST, "BadRequest"));
    assert_eq!(answer.route, Route::Rejected("malformed_host".to_owned()));
    // The connection is closed: bytes after the head may be a part of the refused request.
    assert_eq!(answer.headers["connection"], "close");
    assert_eq!(world.sim.counts().requests("deletecollection", "pods"), before);
}
