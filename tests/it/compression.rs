//! Answers in gzip contain the bytes of the plain answers, over HTTP/1.1 and HTTP/2, for clients that accept gzip and
//! where compression is worthwhile.

use std::io::Read;

use flate2::read::GzDecoder;
use http::{HeaderMap, header};
use kube_fanout::sim::Sim;
use serde_json::json;

use crate::harness::{Answer, Client, Route, World};

/// Bodies larger than this many bytes are compressed (read-path 4.3).
const THRESHOLD: usize = 128 << 10;

/// About 200 objects, most of them pods, and a config map that is large enough to be compressed on its own.
async fn populated() -> World {
    let sim = Sim::new();
    sim.populate(200).unwrap();
    let large = "0123456789abcdef".repeat(10_000);
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "large", "namespace": "default"},
        "data": {"text": large}});
    sim.create(map).unwrap();
    let world = World::start_with(sim, |_| {}).await;
    world.gateway.warm("/api/v1/pods").await;
    world.gateway.warm("/api/v1/configmaps").await;
    world
}

async fn asked(client: &Client, path: &str, accepted: &str) -> Answer {
    let answer = client.request("GET", path, &[("accept-encoding", accepted)], Default::default()).await;
    assert_eq!(answer.route, Route::Served, "{path}");
    answer
}

fn inflated(gzip: &[u8]) -> Vec<u8> {
    let (mut plain, mut decoder) = (Vec::new(), GzDecoder::new(gzip));
    decoder.read_to_end(&mut plain).unwrap();
    assert!(decoder.into_inner().is_empty(), "something follows the member");
    plain
}

/// The values of `Content-Encoding` and `Vary`.
fn coding(headers: &HeaderMap) -> [Option<&str>; 2] {
    [header::CONTENT_ENCODING, header::VARY].map(|name| headers.get(name).map(|value| value.to_str().unwrap()))
}

#[tokio::test]
async fn large_answers_are_the_plain_ones_inflated() {
    let world = populated().await;
    for path in [
        "/api/v1/pods?resourceVersion=0",
        "/api/v1/pods?resourceVersion=0&pretty=true",
        "/api/v1/pods?resourceVersion=0&labelSelector=!no-such-label",
        "/api/v1/pods?resourceVersion=1&resourceVersionMatch=NotOlderThan&limit=60",
        "/api/v1/namespaces/default/configmaps?resourceVersion=0",
        "/api/v1/namespaces/default/configmaps/large?resourceVersion=0",
        "/api/v1/namespaces/default/configmaps/large?resourceVersion=0&pretty=true",
    ] {
        let (_, plain) = world.directly(path).await;
        assert!(plain.len() > THRESHOLD, "{path} is no large answer: {}", plain.len());
        for client in [world.client(), &world.client().over_http2()] {
            // The second answer reuses the compressed bytes of the first one.
            for _ in 0..2 {
                let answer = asked(client, path, "br, gzip").await;
                assert_eq!(coding(&answer.headers), [Some("gzip"), Some("Accept-Encoding")], "{path}");
                assert!(answer.body.len() < plain.len() / 2, "{path}: {}", answer.body.len());
                assert!(inflated(&answer.body) == plain.as_bytes(), "{path}");
                assert_eq!(answer.headers.get(header::CONTENT_LENGTH), None, "{path}");
            }
            let answer = asked(client, path, "gzip;q=1, *").await;
            assert_eq!(coding(&answer.headers), [None, None], "{path}");
            assert!(answer.body == plain, "{path}");
        }
    }
}

#[tokio::test]
async fn small_answers_stay_as_they_are() {
    let world = populated().await;
    for path in [
        "/api/v1/namespaces/none/pods?resourceVersion=0",
        "/api/v1/pods?resourceVersion=1&resourceVersionMatch=NotOlderThan&limit=5",
        "/api/v1/namespaces/default/configmaps/none?resourceVersion=0",
    ] {
        let (_, plain) = world.directly(path).await;
        for client in [world.client(), &world.client().over_http2()] {
            let answer = asked(client, path, "gzip").await;
            assert_eq!(coding(&answer.headers), [None, None], "{path}");
            assert!(answer.body == plain, "{path}");
        }
    }
}

#[tokio::test]
async fn watches_stay_as_they_are() {
    let world = populated().await;
    let path = "/api/v1/pods?resourceVersion=0&watch=1&timeoutSeconds=1";
    let answer = asked(world.client(), path, "gzip").await;
    assert_eq!(coding(&answer.headers), [None, None]);
    assert!(answer.body.len() > THRESHOLD && answer.text().starts_with("{\"type\":\"ADDED\""));
}
