//! Random requests over data that does not change: an answer of the gateway, from memory or forwarded, equals the
//! answer of a direct request to upstream. Parameters occur in all combinations, valid or not.
//!
//! `SIMULATION_SEED=…` repeats one seed.

use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use crate::harness::{Route, World, passing, seed::Seed};

const REQUESTS: usize = 1_000;
/// The number of concurrent requests.
const BATCH: usize = 100;
/// The minimum number of requests that are answered from memory: forwarded answers would compare upstream with itself.
const SERVED_MIN: usize = REQUESTS / 8;
const STEP: Duration = Duration::from_millis(400);

const PATHS: &[&str] = &[
    "/api/v1/pods",
    "/api/v1/pods/",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/kube-system/pods",
    "/api/v1/namespaces/none/pods",
    "/api/v1/namespaces/default/pods/a",
    "/api/v1/namespaces/default/pods/none",
    "/api/v1/namespaces/default",
    "/api/v1/namespaces",
    "/api/v1/namespaces/default/pods/a/status",
    "/api/v1/pods/a",
    "/api/v1/nodes",
    "/api/v2/pods",
    "/apis/apps/v1/deployments",
];
const LABELS: &[&str] = &["app%3Dx", "app!%3Dx", "app%20in%20(x,y)", "!app", "app", "app%3D%3D%3Dx", "none%3Dx", ""];
const FIELDS: &[&str] = &[
    "metadata.name%3Da",
    "metadata.name!%3Da",
    "metadata.namespace%3Ddefault",
    "metadata.name%3Da,metadata.namespace%3Ddefault",
    "spec.nodeName%3Dnode-x",
    "status.phase%3DRunning,spec.nodeName!%3Dnode-x",
    "spec.unknown%3D1",
    "nonsense",
    "",
];
const ACCEPTS: &[&str] = &[
    "application/json",
    "*/*",
    "application/json;q=0.5,*/*;q=0.1",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;pretty=1",
    "text/html",
];

#[tokio::test]
async fn answers_to_random_requests_equal_those_of_upstream() {
    let seed = Seed::or(21);
    let mut rng = Rng::with_seed(seed.value());
    let (world, versions) = still().await;
    let mut served = 0;
    for _ in 0..REQUESTS / BATCH {
        let requests: Vec<_> = (0..BATCH).map(|_| random_request(&mut rng, &versions)).collect();
        let compared = requests.iter().map(|(path, accept)| compare(&world, path, *accept));
        let compared = passing(STEP, join_all(compared)).await;
        served += compared.into_iter().filter(|route| *route == Route::Served).count();
    }
    assert!(served >= SERVED_MIN, "{served} of {REQUESTS} were served");
}

/// A world in which nothing changes any more, and the versions that a request may name.
async fn still() -> (World, Vec<u64>) {
    let world = World::start().await;
    world.gateway.warm("/api/v1/pods").await;
    let filled = world.sim.revision();
    for (namespace, name, app) in [("default", "a", "x"), ("default", "b", "y"), ("kube-system", "a", "x")] {
        world.create_pod(namespace, name, app);
    }
    world.label_pod("default/a", "y");
    world.label_pod("default/a", "x");
    world.create_pod("default", "c", "z");
    world.delete_pod("default/c");
    let head = world.sim.revision();
    world.gateway.reach("/api/v1/pods", head).await;
    // Caches without a history, all filled at the same version.
    for collection in ["/api/v1/namespaces", "/api/v1/nodes", "/apis/apps/v1/deployments"] {
        world.gateway.warm(collection).await;
    }
    (world, (filled..=head).chain([head + 1_000]).collect())
}

async fn compare(world: &World, path: &str, accept: Option<&str>) -> Route {
    let headers: Vec<_> = accept.map(|accept| ("accept", accept)).into_iter().collect();
    let mut request = Request::get(path);
    for (name, value) in &headers {
        request = request.header(*name, *value);
    }
    let direct = async {
        let response = world.sim.handle(request.body(Full::default()).unwrap()).await;
        let (head, body) = response.into_parts();
        (head.status, head.headers.get("content-type").cloned(), body.collect().await.unwrap().to_bytes())
    };
    let (answer, direct) = tokio::join!(world.client().request("GET", path, &headers, Default::default()), direct);
    let content_type = answer.headers.get("content-type").cloned();
    let (served, expected) = ((answer.status, content_type, answer.body), direct);
    assert_eq!(served, expected, "{path} {accept:?} {}", answer.route);
    answer.route
}

/// The path with query, and the `Accept` header.
fn random_request(rng: &mut Rng, versions: &[u64]) -> (String, Option<&'static str>) {
    let mut path = (*rng.choice(PATHS).unwrap()).to_owned();
    let is_watch = rng.u32(..4) == 0;
    if is_watch && rng.u32(..4) == 0 {
        path = path.replacen("/v1/", "/v1/watch/", 1);
    }
    let mut query = Vec::new();
    if is_watch {
        // Ends before the bookmark that precedes the end of a longer watch.
        query.push(format!("timeoutSeconds=1&watch={}", rng.choice(["1", "true", "", "0"]).unwrap()));
        if rng.bool() {
            query.push(format!("sendInitialEvents={}", rng.choice(["true", "false", "nonsense"]).unwrap()));
        }
        query.push(format!("allowWatchBookmarks={}", rng.choice(["true", "false", "1", ""]).unwrap()));
    }
    // Only pods have a history; for other resources the newest version and a future one are used.
    let known = if path.contains("pods") { versions } else { &versions[versions.len() - 2..] };
    let version = rng.choice(known).unwrap();
    let mut maybe = |one_in: u32, parameter: String| {
        if rng.u32(..one_in) == 0 {
            query.push(parameter);
        }
    };
    maybe(2, "resourceVersion=0".to_owned());
    maybe(2, format!("resourceVersion={version}"));
    maybe(30, "resourceVersion=nonsense".to_owned());
    maybe(8, "resourceVersionMatch=Exact".to_owned());
    maybe(4, "resourceVersionMatch=NotOlderThan".to_owned());
    maybe(30, "resourceVersionMatch=nonsense".to_owned());
    maybe(8, "limit=1".to_owned());
    maybe(8, "limit=2".to_owned());
    maybe(30, "limit=nonsense".to_owned());
    maybe(30, "limit=-1".to_owned());
    maybe(10, format!("continue={}", token(*version)));
    maybe(30, "pretty=true".to_owned());
    if rng.u32(..3) == 0 {
        query.push(format!("labelSelector={}", rng.choice(LABELS).unwrap()));
    }
    if rng.u32(..3) == 0 {
        query.push(format!("fieldSelector={}", rng.choice(FIELDS).unwrap()));
    }
    rng.shuffle(&mut query);
    let accept = if rng.u32(..3) == 0 { rng.choice(ACCEPTS).copied() } else { None };
    (format!("{path}?{}", query.join("&")), accept)
}

/// A continue token as an API server makes it, after the first pod.
fn token(version: u64) -> String {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    let token = Value::String("/default/a\0".to_owned());
    URL_SAFE_NO_PAD.encode(format!(r#"{{"v":"meta.k8s.io/v1","rv":{version},"start":{token}}}"#))
}
