//! Reads that take much of the gateway's CPU.

use futures_util::future::join_all;
use kube_fanout::sim::Sim;

use crate::{
    delegated::Scene,
    harness::{Route, World, forwarded, upstream::pod},
};

/// The maximum numbers of requirements on labels, of their values, and of requirements on fields.
const REQUIREMENTS: usize = 64;
const VALUES: usize = 1024;
const FIELDS: usize = 256;

fn joined(count: usize, term: impl Fn(usize) -> String) -> String {
    (0..count).map(term).collect::<Vec<_>>().join(",")
}

/// Selects all pods.
fn absent(labels: usize) -> String {
    format!("labelSelector={}", joined(labels, |number| format!("!k{number}")))
}

/// Selects all pods.
fn none_of(values: usize) -> String {
    format!("labelSelector=k%20notin%20%28{}%29", joined(values, |number| format!("v{number}")))
}

/// Selects all pods.
fn not_in(namespaces: usize) -> String {
    format!("fieldSelector={}", joined(namespaces, |number| format!("metadata.namespace%21%3Dn{number}")))
}

fn list(selector: &str) -> String {
    format!("/api/v1/pods?resourceVersion=0&{selector}")
}

#[tokio::test]
async fn costly_selectors_are_left_to_upstream() {
    let world = World::start().await;
    for name in ["a", "b"] {
        world.create_pod("default", name, "x");
    }
    world.gateway.warm("/api/v1/pods").await;
    for selector in [absent(REQUIREMENTS), none_of(VALUES), not_in(FIELDS)] {
        world.assert_same(&list(&selector), &Route::Served).await;
    }
    for selector in [absent(REQUIREMENTS + 1), absent(7_000), none_of(VALUES + 1), not_in(FIELDS + 1)] {
        world.assert_same(&list(&selector), &forwarded("costly_selector")).await;
        let watch = world.client().watch(&format!("{}&watch=1&timeoutSeconds=1", list(&selector))).await;
        let (events, route) = watch.rest().await;
        assert_eq!((events.matches("ADDED").count(), route), (2, forwarded("costly_selector")));
    }
}

#[tokio::test]
async fn costly_selectors_cost_no_review() {
    let scene = Scene::start().await;
    let expected = scene.get("jane-token", &list(&absent(REQUIREMENTS))).await;
    assert_eq!(expected.route, Route::Served);
    let reviews = scene.upstream.reviews();
    for token in ["jane-token", "john-token"] {
        let answer = scene.get(token, &list(&absent(REQUIREMENTS + 1))).await;
        assert_eq!(answer.route, forwarded("costly_selector"));
        assert_eq!(
            (answer.status, answer.text() == expected.text()),
            match token {
                "jane-token" => (expected.status, true),
                _ => (http::StatusCode::FORBIDDEN, false),
            }
        );
    }
    assert_eq!(scene.upstream.reviews(), reviews);
}

/// As the agents of all nodes after a rollout: they are one user, and each selects from all pods.
#[tokio::test]
async fn many_large_reads_of_one_client_are_all_served() {
    let sim = Sim::new();
    for number in 0..4000 {
        sim.create(pod("default", &format!("pod-{number}"), &format!("app-{}", number % 100))).unwrap();
    }
    let world = World::start_with(sim, |_| {}).await;
    world.gateway.warm("/api/v1/pods").await;
    let world = &world;
    let answers = join_all((0..100).map(|number| {
        let path = list(&format!("labelSelector=app%3Dapp-{number}"));
        async move { (world.client().get(&path).await, world.directly(&path).await) }
    }));
    for (answer, (status, expected)) in answers.await {
        assert_eq!((answer.route.clone(), answer.status.as_u16()), (Route::Served, status));
        assert!(answer.text() == expected && expected.matches("\"name\":\"pod-").count() == 40);
    }
}
