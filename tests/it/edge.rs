//! What a request meets before anybody looks at what it asks for.

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
async fn a_web_page_under_a_name_of_its_own_gets_nothing() {
    let accept_hosts = vec!["gateway.example".to_owned()];
    let world = World::start_with(Sim::new(), |config| {
        config.clients = ClientsConfig::Trusted(TrustedConfig { accept_hosts });
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

#[tokio::test]
async fn a_request_with_two_readings_goes_nowhere() {
    let world = World::start().await;
    let before = world.sim.counts().requests("deletecollection", "pods");
    let answer = ask(world.client(), "DELETE", &["localhost", "127.0.0.1"]).await;
    assert_eq!((answer.status, reason(&answer).as_str()), (StatusCode::BAD_REQUEST, "BadRequest"));
    assert_eq!(answer.route, Route::Rejected("malformed_host".to_owned()));
    // Nor is anything read that may have been a part of it.
    assert_eq!(answer.headers["connection"], "close");
    assert_eq!(world.sim.counts().requests("deletecollection", "pods"), before);
}
