//! The API server is away: what clients get that start meanwhile.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Discovery,
    runtime::{
        WatchStreamExt, reflector,
        watcher::{self, watcher},
    },
};
use kube_fanout::sim::Refusal;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    harness::{Answer, Route, World, passing, skip, until, within},
    reads::definition,
};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
const QUESTIONS: [(&str, &str); 6] = [
    ("/version", "*/*"),
    ("/api", AGGREGATED),
    ("/apis", AGGREGATED),
    ("/apis", "application/json"),
    ("/api/v1?timeout=32s", "application/json"),
    ("/apis/apps/v1", "application/json"),
];

const WATCH_LIST: &str = "/api/v1/pods?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan\
    &sendInitialEvents=true&timeoutSeconds=500&watch=true";

async fn ask(world: &World, (path, accept): (&str, &str), header: (&str, &str)) -> Answer {
    world.client().request("GET", path, &[("accept", accept), header], Bytes::new()).await
}

#[tokio::test]
async fn discovery_is_what_the_api_server_last_answered() {
    let mut world = World::start().await;
    let (plain, none) = (("accept-encoding", "identity"), Route::Served);
    let mut before = Vec::new();
    for question in QUESTIONS {
        let answer = ask(&world, question, plain).await;
        assert_eq!((answer.status.as_u16(), &answer.route), (200, &Route::Forwarded("non_resource_path".to_owned())));
        before.push(answer);
    }
    world.server.kill().await;
    for (question, before) in QUESTIONS.into_iter().zip(&before) {
        let now = ask(&world, question, plain).await;
        assert_eq!((now.status, now.text()), (before.status, before.text()), "{question:?}");
        assert_eq!(now.route, none);
        let [now, before] = [&now, before].map(|answer| {
            let mut headers = answer.headers.clone();
            for name in ["date", "audit-id"] {
                headers.remove(name);
            }
            headers
        });
        assert_eq!(now, before, "{question:?}");
    }
    // Nothing that was not asked, and nothing for another user.
    for (question, header) in [
        (("/apis/batch/v1", "application/json"), plain),
        (("/version", "application/yaml"), plain),
        (("/version", "*/*"), ("impersonate-user", "jane")),
        (("/version", "*/*"), ("accept-encoding", "gzip")),
        (("/api/v1/namespaces/default/pods/a/log", "*/*"), plain),
    ] {
        assert_eq!(ask(&world, question, header).await.status, 503, "{question:?} {header:?}");
    }
    // Once the API server is back, it answers, unless it is silent.
    world.server.start_again().await.unwrap();
    let is_back = async || (ask(&world, QUESTIONS[0], plain).await.route != Route::Served).then_some(());
    until("an answer of the API server", is_back).await;
    world.sim.swallow(Refusal { verb: Some("get"), resource: None, times: None, status: 500 });
    let now = passing(Duration::from_secs(1), ask(&world, QUESTIONS[0], plain)).await;
    assert_eq!((now.status, now.text(), &now.route), (before[0].status, before[0].text(), &Route::Served));
}

/// An API server that starts does not have all groups at first, and may end again.
#[tokio::test]
async fn what_a_starting_server_says_replaces_nothing() {
    const GROUPS: (&str, &str) = ("/apis", "application/json");
    let mut world = World::start().await;
    let plain = ("accept-encoding", "identity");
    let before = ask(&world, GROUPS, plain).await;
    for is_starting in [true, false] {
        world.server.kill().await;
        assert_eq!(ask(&world, GROUPS, plain).await.text(), before.text());
        world.server.start_again().await.unwrap();
        if is_starting {
            world.sim.create(definition(".spec.size")).unwrap();
        } else {
            until("contact", async || (ask(&world, QUESTIONS[0], plain).await.route != Route::Served).then_some(()))
                .await;
            skip(Duration::from_secs(61)).await;
        }
        let now = async || Some(ask(&world, GROUPS, plain).await).filter(|answer| answer.route != Route::Served);
        let now = until("an answer of the API server", now).await;
        assert!(now.text().contains("example.com") && !before.text().contains("example.com"));
        world.server.kill().await;
        let kept = ask(&world, GROUPS, plain).await;
        assert_eq!(kept.text(), if is_starting { before.text() } else { now.text() });
        world.server.start_again().await.unwrap();
    }
}

#[tokio::test]
async fn memory_answers_what_it_knows_and_the_rest_is_refused() {
    let mut world = World::start().await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    let before = world.sim.revision();
    world.create_pod("default", "b", "x");
    let now = world.sim.revision();
    world.gateway.reach("/api/v1/pods", now).await;
    let exact = format!("/api/v1/pods?resourceVersion={before}&resourceVersionMatch=Exact");
    let known = [
        "/api/v1/pods?resourceVersion=0".to_owned(),
        format!("/api/v1/pods?resourceVersion={now}&resourceVersionMatch=NotOlderThan"),
        "/api/v1/namespaces/default/pods/a?resourceVersion=0".to_owned(),
        exact,
    ];
    let mut answers = Vec::new();
    for path in &known {
        answers.push(world.directly(path).await);
    }
    let mut open = world.client().watch(&format!("/api/v1/pods?watch=1&resourceVersion={now}")).await;
    world.server.kill().await;
    for (path, (status, body)) in known.iter().zip(answers) {
        let answer = world.client().get(path).await;
        assert_eq!((answer.status.as_u16(), answer.text(), &answer.route), (status, &*body, &Route::Served), "{path}");
    }
    let mut resumed = world.client().watch(&format!("/api/v1/pods?watch=1&resourceVersion={before}")).await;
    assert!(within("the change", resumed.line()).await.unwrap().unwrap().contains(r#""name":"b""#));
    for (path, retry) in [
        ("/api/v1/pods".to_owned(), None),
        ("/api/v1/namespaces/default/pods/a".to_owned(), None),
        (format!("/api/v1/pods?watch=1&resourceVersion={}", before - 1), Some("1")),
        // As informers begin: with a number they would repeat it for ten seconds before they list.
        (WATCH_LIST.to_owned(), None),
        ("/api/v1/configmaps?resourceVersion=0".to_owned(), None),
    ] {
        let answer = passing(Duration::from_secs(1), world.client().get(&path)).await;
        assert_eq!(answer.status, 503, "{path}");
        assert_eq!(answer.headers.get("retry-after").map(|value| value.to_str().unwrap()), retry, "{path}");
    }
    // A watch that was open goes on afterwards.
    world.create_pod("default", "c", "x");
    world.server.start_again().await.unwrap();
    let change = passing(Duration::from_secs(1), open.line()).await.unwrap().unwrap();
    assert!(change.contains(r#""type":"ADDED""#) && change.contains(r#""name":"c""#), "{change}");
}

#[tokio::test]
async fn a_program_starts_that_has_started_before() {
    let world = World::start().await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    let client = || Client::try_from(kube::Config::new(world.client().url().parse().unwrap())).unwrap();
    let starts = async || {
        let version = client().apiserver_version().await.unwrap();
        let discovery = Discovery::new(client()).run_aggregated().await.unwrap();
        (version.git_version, discovery.groups().count())
    };
    let before = starts().await;
    world.server.kill().await;
    assert_eq!(starts().await, before);
    // A watch-list from any version. Lists of kube-rs are most recent if they have a limit.
    let (store, writer) = reflector::store();
    let pods = Api::<Pod>::all(client());
    let stream = reflector(writer, watcher(pods, watcher::Config::default().streaming_lists())).default_backoff();
    let mut following = JoinSet::new();
    following.spawn(stream.for_each(|event| async move { drop(event) }));
    let has_pod = until("the pod", async || (store.state().len() == 1).then_some(()));
    passing(Duration::from_millis(500), has_pod).await;
}

/// It takes connections, or holds them open, and answers nothing.
#[tokio::test]
async fn a_frozen_server_is_noticed_and_refused_for_at_once() {
    let world = World::start().await;
    world.create_pod("default", "a", "x");
    world.gateway.warm("/api/v1/pods").await;
    let memory = "/api/v1/pods?resourceVersion=0";
    let before = world.client().get(memory).await;
    world.sim.swallow(Refusal { verb: None, resource: None, times: None, status: 0 });
    let client = world.client();
    let refused = [
        ("GET", "/api/v1/pods"),
        ("GET", "/api/v1/configmaps?resourceVersion=0"),
        ("GET", "/apis"),
        ("DELETE", "/api/v1/namespaces/default/pods/a"),
    ];
    let silent = async || {
        for (method, path) in refused {
            let began = Instant::now();
            let answer = passing(Duration::from_millis(100), client.request(method, path, &[], Bytes::new())).await;
            assert_eq!(answer.status, 503, "{path}");
            assert!(answer.text().contains("keeps connections open"), "{path}: {}", answer.text());
            assert!(began.elapsed() < Duration::from_secs(5), "{path}: {:?}", began.elapsed());
        }
        let now = client.get(memory).await;
        assert_eq!((now.text(), &now.route), (before.text(), &Route::Served));
    };
    silent().await;
    silent().await;
    world.sim.accept_all();
    let is_back = async || (client.get("/api/v1/pods").await.status == 200).then_some(());
    passing(Duration::from_millis(500), until("the API server", is_back)).await;
    assert_eq!(client.request("DELETE", refused[3].1, &[], Bytes::new()).await.status, 200);
    assert_eq!(client.get(refused[1].1).await.status, 200);
}
