//! Gateways that ask others of their cluster for the state of a new cache, and those that are asked.

mod packed;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use futures_util::future::join_all;
use kube_fanout::{
    config::{Config, PeersConfig},
    sim::{Features, Sim, SimServer},
    telemetry::{self, LogFormat, log_subscriber},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::Duration,
};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use uuid::Uuid;

use crate::{
    delegated::{PODS, delegated},
    harness::{
        Answer, Client, Gateway, Route, World,
        guarded::{GATEWAY_TOKEN, Guarded},
        metrics, passing,
        serving::{accepting, listener, relay},
        until,
        upstream::{directly, pod, pods},
    },
    reads::{definition, widget},
    secrecy::Lines,
};

const WATCH_LIST: &str = "/api/v1/pods?watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
                          &resourceVersionMatch=NotOlderThan&resourceVersion=0&timeoutSeconds=2";
const QUESTION: &str = "kube-fanout-peer: another";
/// An address where nothing listens.
const NOWHERE: &str = "http://127.0.0.1:1";
const STEP: Duration = Duration::from_millis(500);

fn peers(address: &str) -> impl FnOnce(&mut Config) {
    let addresses = vec![address.parse().unwrap()];
    move |config| config.cache.peers = Some(PeersConfig { addresses, ca: None })
}

/// A gateway that has pods in memory and answers peers, in front of its upstream.
async fn first() -> World {
    first_in_front_of(Sim::new()).await
}

async fn first_in_front_of(sim: Sim) -> World {
    let world = World::start_with(sim, peers(NOWHERE)).await;
    for name in ["a", "b", "c"] {
        world.create_pod("default", name, "x");
    }
    world.gateway.warm("/api/v1/pods").await;
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    world
}

/// A gateway in front of the same upstream, which asks that address first.
async fn second(world: &World, address: &str) -> Gateway {
    Gateway::start_with(&world.server.url(), peers(address)).await
}

/// Upstream's requests for pods so far: lists and watches.
fn asked_upstream(world: &World) -> (u64, u64) {
    let counts = world.sim.counts();
    (counts.requests("list", "pods"), counts.requests("watch", "pods"))
}

/// The number of questions to peers with this outcome, in all tests.
fn questions(outcome: &str) -> u64 {
    counted("kube_fanout_peer_questions_total{", outcome)
}

/// The number of caches of the resource that were filled from this source, in all tests.
fn fills(resource: &str, source: &str) -> u64 {
    counted(&format!(r#"kube_fanout_cache_fills_total{{resource="{resource}""#), source)
}

fn counted(name: &str, label: &str) -> u64 {
    metrics::sum(&telemetry::install().unwrap().render(), name, &format!(r#"="{label}""#))
}

/// A whole response, as it was sent.
async fn raw(address: SocketAddr, line: &str, header: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\nhost: {address}\r\n{header}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    response
}

/// What the first gateway answers a peer that asks for a collection.
async fn recorded(world: &World, path: &str) -> String {
    let response = raw(world.client().address(), &format!("GET {path}"), QUESTION).await;
    let response = String::from_utf8(response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    response
}

/// A peer that answers questions in a given way, and closes each connection. Ends with its test.
struct Fake {
    url: String,
    /// The connections so far, each of which has one question.
    asked: Arc<AtomicUsize>,
    _connections: JoinSet<()>,
}

impl Fake {
    /// `None`: it never answers.
    async fn start(answer: Option<impl Into<Vec<u8>>>) -> Self {
        let answer = answer.map(Into::into);
        Self::answering(move |_| answer.clone()).await
    }

    /// With the answer to each question, which are counted from 0.
    async fn answering(answer: impl Fn(usize) -> Option<Vec<u8>> + Send + 'static) -> Self {
        let (listener, address) = listener().await;
        let url = format!("http://{address}");
        let (asked, mut connections) = (Arc::<AtomicUsize>::default(), JoinSet::new());
        let counted = asked.clone();
        connections.spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let Some(answer) = answer(counted.fetch_add(1, Relaxed)) else {
                    open.push(stream);
                    continue;
                };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                // A gateway that has read enough closes the connection.
                stream.write_all(&answer).await.ok();
            }
        });
        Self { url, asked, _connections: connections }
    }
}

/// Asserts that memory has answered as upstream does.
async fn assert_same(world: &World, answer: Answer, path: &str) {
    assert_eq!((&answer.route, answer.text()), (&Route::Served, directly(&world.sim, path).await.1.as_str()));
}

/// Asserts that a new gateway does not use what a peer answers, counts why, and has upstream's own state.
async fn assert_refused(world: &World, answer: Option<impl Into<Vec<u8>>>, path: &str, outcome: &str) {
    let peer = Fake::start(answer).await;
    assert_refused_at(world, &peer.url, path, outcome).await;
}

async fn assert_refused_at(world: &World, address: &str, path: &str, outcome: &str) {
    let before = questions(outcome);
    let gateway = second(world, address).await;
    assert_same(world, passing(STEP, gateway.client.get(path)).await, path).await;
    assert!(questions(outcome) > before, "{outcome}");
}

#[tokio::test]
async fn a_new_gateway_has_the_state_of_a_peer_and_a_watch_of_its_own() {
    let world = first().await;
    // The peer has to show that nothing of this concerns pods.
    world.sim.skip_revisions(50);
    let (before, filled) = (asked_upstream(&world), fills("pods", "peer"));
    let gateway = second(&world, world.client().url()).await;
    let answer = gateway.client.get(PODS).await;
    let (lists, watches) = asked_upstream(&world);
    assert!(fills("pods", "peer") > filled);
    assert_same(&world, answer, PODS).await;
    // The head version for both gateways, and which fields can be selected.
    assert!(lists - before.0 <= 3, "{lists} {before:?}");
    // The watch, two of no object that show watch-list and its bookmarks, and the peer's small ones.
    assert!(watches - before.1 <= 5, "{watches} {before:?}");
    assert_eq!(world.sim.counts().open_watches("pods"), 2);

    world.create_pod("default", "d", "x");
    world.delete_pod("default/a");
    gateway.reach("/api/v1/pods", world.sim.revision()).await;
    assert_same(&world, gateway.client.get(PODS).await, PODS).await;
    assert_same(&world, passing(STEP, gateway.client.get(WATCH_LIST)).await, WATCH_LIST).await;
}

#[tokio::test]
async fn upstream_sends_no_state_to_a_gateway_that_has_a_peer_s() {
    let world = first().await;
    // Upstream sends these for the first request for pods, and a peer does not know them.
    let silently = |pod: &mut Value| pod["metadata"]["labels"]["app"] = "upstream".into();
    world.sim.change_silently(&pods(), "default/a", silently).unwrap();
    let gateway = second(&world, world.client().url()).await;
    let answer = gateway.client.get(PODS).await;
    assert_eq!((&answer.route, answer.text().contains("upstream")), (&Route::Served, false), "{}", answer.text());
}

#[tokio::test]
async fn custom_resources_of_one_definition_are_taken_and_of_another_are_not() {
    const GEARS: &str = "/apis/example.com/v1/gears?resourceVersion=0";
    let world = World::start_with(Sim::new(), peers(NOWHERE)).await;
    world.sim.create(renamed(&definition(".spec.size"), "gear")).unwrap();
    world.sim.create(renamed(&widget("a", "small"), "gear")).unwrap();
    world.gateway.warm_skipping("/apis/example.com/v1/gears").await;
    let answer = recorded(&world, GEARS).await;
    {
        let gateway = second(&world, world.client().url()).await;
        assert_eq!(gateway.client.get(GEARS).await.text(), directly(&world.sim, GEARS).await.1);
        assert_eq!(fills("gears.example.com", "peer"), 1);
    }
    let crds = kube_fanout::apimachinery::GroupResource {
        group: "apiextensions.k8s.io".into(),
        resource: "customresourcedefinitions".into(),
    };
    world
        .sim
        .modify(&crds, "gears.example.com", |crd| {
            crd["spec"]["versions"][0]["selectableFields"] = serde_json::json!([])
        })
        .unwrap();
    assert_refused(&world, Some(answer), GEARS, "definition").await;
}

#[tokio::test]
async fn a_peer_that_has_no_state_is_asked_for_none() {
    let world = World::start_with(Sim::new(), peers(NOWHERE)).await;
    world.create_pod("default", "a", "x");
    assert_refused_at(&world, world.client().url(), PODS, "no_state").await;
    // The question has started nothing there.
    assert_eq!(world.sim.counts().open_watches("pods"), 1);
    assert_refused_at(&world, NOWHERE, PODS, "unreachable").await;
}

#[tokio::test]
async fn a_gateway_whose_connection_leads_to_itself_asks_upstream() {
    let world = first().await;
    let (way_back, address) = listener().await;
    let gateway = second(&world, &format!("http://{address}")).await;
    let itself = gateway.client.address();
    // Each question has a connection of its own.
    let asked = Arc::<AtomicUsize>::default();
    let counted = asked.clone();
    let _relaying = accepting(way_back, move |question| {
        counted.fetch_add(1, Relaxed);
        async move { relay(question, TcpStream::connect(itself).await.unwrap()).await }
    });
    let before = questions("itself");
    assert_same(&world, gateway.client.get(PODS).await, PODS).await;
    // Once, and five times for each of the gateways that may be there: itself and another one.
    assert_eq!(asked.load(Relaxed), 11);
    assert!(questions("itself") >= before + 11);
}

#[tokio::test]
async fn a_state_of_another_origin_is_refused() {
    let world = first().await;
    let answer = recorded(&world, PODS).await;
    let uid = answer.split("kube-fanout-cluster: ").nth(1).unwrap().split('\r').next().unwrap();
    let elsewhere = answer.replace(uid, &"0".repeat(uid.len()));
    assert_refused(&world, Some(elsewhere), PODS, "cluster").await;
    // The API server itself.
    assert_refused_at(&world, &world.server.url(), PODS, "foreign").await;
    world.sim.upgrade("v1.37.0", &pods(), |_| {}).unwrap();
    assert_refused(&world, Some(answer), PODS, "server").await;
}

#[tokio::test]
async fn a_state_that_is_not_whole_is_refused() {
    let world = first().await;
    let answer = recorded(&world, PODS).await;
    let half = answer[..answer.len() / 2].to_owned();
    assert_refused(&world, Some(half), PODS, "broken").await;
    assert_refused(&world, Some(answer.replace("\"items\"", "\"itemz\"")), PODS, "malformed").await;
    assert_refused(&world, None::<String>, PODS, "timed_out").await;
    let refusal = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";
    assert_refused(&world, Some(refusal.to_owned()), PODS, "refused").await;
}

/// The answer with other items. Its body ends with the connection.
fn with_items(answer: &str, change: impl FnOnce(&mut Vec<Value>)) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let is_of_body = |line: &&str| {
        let line = line.to_ascii_lowercase();
        line.starts_with("content-length:") || line.starts_with("transfer-encoding:")
    };
    let body = whole(head, body.as_bytes());
    let mut list: Value = serde_json::from_slice(&body).unwrap();
    change(list["items"].as_array_mut().unwrap());
    let head: Vec<_> = head.lines().filter(|line| !is_of_body(line)).collect();
    format!("{}\r\n\r\n{list}", head.join("\r\n"))
}

/// The body of a response with that head.
fn whole(head: &str, mut body: &[u8]) -> Vec<u8> {
    if !head.lines().any(|line| line.eq_ignore_ascii_case("transfer-encoding: chunked")) {
        return body.to_owned();
    }
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|end| end == b"\r\n") {
        let size = usize::from_str_radix(str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        whole.extend_from_slice(&body[end + 2..][..size]);
        body = &body[end + 2 + size + 2..];
    }
    whole
}

#[tokio::test]
async fn a_state_may_be_in_any_order() {
    let world = first().await;
    let answer = recorded(&world, PODS).await;
    let peer = Fake::start(Some(with_items(&answer, |items| items.reverse()))).await;
    let filled = fills("pods", "peer");
    let gateway = second(&world, &peer.url).await;
    assert_same(&world, gateway.client.get(PODS).await, PODS).await;
    assert!(fills("pods", "peer") > filled);
}

#[tokio::test]
async fn a_state_that_upstream_cannot_have_is_refused() {
    let world = first().await;
    let answer = recorded(&world, PODS).await;
    let changes: [fn(&mut Vec<Value>); 7] = [
        |items| items.extend_from_within(..1),
        |items| drop(items[0]["metadata"].as_object_mut().unwrap().shift_remove("namespace")),
        |items| drop(items[0]["metadata"].as_object_mut().unwrap().shift_remove("uid")),
        |items| items[0]["metadata"]["name"] = "../x/y\0".into(),
        |items| items[0]["metadata"]["namespace"] = "".into(),
        |items| items[0]["kind"] = "Secret".into(),
        |items| items[0]["apiVersion"] = "v9".into(),
    ];
    for change in changes {
        assert_refused(&world, Some(with_items(&answer, change)), PODS, "malformed").await;
    }
}

#[tokio::test]
async fn items_that_cannot_be_used_are_logged_once_and_read_no_further() {
    let world = first().await;
    let answer = recorded(&world, PODS).await;
    let invalid = json!({"metadata": {"name": "x".repeat(1000)}, "invalid": 1});
    // The rest of this body is never sent.
    let answer = with_items(&answer, |items| *items = vec![invalid; 16_000]);
    let answer = answer.replacen("\r\n\r\n", "\r\ncontent-length: 1000000000\r\n\r\n", 1);
    let (peer, lines) = (Fake::start(Some(answer)).await, Lines::default());
    let (gateway, writer) = (second(&world, &peer.url).await, lines.clone());
    let subscriber = log_subscriber(LogFormat::Json, LevelFilter::WARN, move || writer.clone());
    let _logged = tracing::subscriber::set_default(subscriber.with(gateway.client.log()));
    let before = questions("malformed");
    assert_same(&world, gateway.client.get(PODS).await, PODS).await;
    assert!(questions("malformed") > before);
    let text = lines.text();
    let told: Vec<_> = text.lines().filter(|line| line.contains("cannot use ")).collect();
    assert!(told.len() == 1 && told[0].contains("cannot use a peer's list"), "{told:#?}");
}

#[tokio::test]
async fn a_state_of_another_time_is_refused() {
    let world = first().await;
    let (old, at) = (recorded(&world, PODS).await, world.sim.revision());
    world.create_pod("default", "d", "x");
    world.gateway.reach("/api/v1/pods", world.sim.revision()).await;
    let new = recorded(&world, PODS).await;
    assert_refused(&world, Some(old), PODS, "old").await;
    // Upstream has lost the state that the peer holds, and the peer has not noticed it.
    world.sim.rewind(at).unwrap();
    assert_refused(&world, Some(new), PODS, "ahead").await;
}

#[tokio::test]
async fn a_cache_that_was_given_up_is_filled_by_upstream() {
    let world = first().await;
    let at = world.sim.revision();
    let peer = Fake::start(Some(recorded(&world, PODS).await)).await;
    let gateway = second(&world, &peer.url).await;
    assert_same(&world, gateway.client.get(PODS).await, PODS).await;
    world.create_pod("default", "d", "x");
    gateway.reach("/api/v1/pods", world.sim.revision()).await;
    world.sim.rewind(at).unwrap();
    let look = async || {
        let answer = gateway.client.get(PODS).await;
        let is_upstream_s = answer.text() == directly(&world.sim, PODS).await.1;
        (answer.route == Route::Served && is_upstream_s).then_some(())
    };
    passing(STEP, until("the state before that", look)).await;
    assert_eq!(peer.asked.load(Relaxed), 1);
}

#[tokio::test]
async fn behind_an_upstream_without_watch_list_no_state_is_taken() {
    let sim = Sim::new();
    sim.set_features(Features { watch_list: false, ..Features::default() });
    let world = first_in_front_of(sim).await;
    let peer = Fake::start(Some(recorded(&world, PODS).await)).await;
    let gateway = second(&world, &peer.url).await;
    assert_same(&world, passing(STEP, gateway.client.get(PODS)).await, PODS).await;
    assert_eq!(peer.asked.load(Relaxed), 0);
}

#[tokio::test]
async fn a_state_is_refused_if_upstream_was_upgraded_during_the_search() {
    let world = first().await;
    let (answer, sim) = (recorded(&world, PODS).await, world.sim.clone());
    let newly = |pod: &mut Value| pod["metadata"]["labels"]["app"] = "newly written".into();
    let peer = Fake::answering(move |_| {
        sim.upgrade("v1.37.0", &pods(), newly).unwrap();
        Some(answer.clone().into())
    })
    .await;
    assert_refused_at(&world, &peer.url, PODS, "server").await;
}

/// The answer of a gateway with this name that is fetching the state.
fn filling(name: u128) -> String {
    let name = Uuid::from_u128(name).simple();
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nkube-fanout-rank: 0\r\n";
    format!("{head}kube-fanout-peer: {name}\r\n\r\n")
}

#[tokio::test]
async fn the_state_of_a_peer_is_awaited_while_it_is_fetched() {
    let world = first().await;
    let answer = recorded(&world, PODS).await;
    let peer = Fake::answering(move |number| Some(if number < 30 { filling(1) } else { answer.clone() }.into())).await;
    let filled = fills("pods", "peer");
    let gateway = second(&world, &peer.url).await;
    // In real time: if time were skipped, the search might end first on a busy machine.
    assert_same(&world, gateway.client.get(PODS).await, PODS).await;
    assert_eq!((peer.asked.load(Relaxed), fills("pods", "peer") > filled), (31, true));
}

#[tokio::test]
async fn a_state_that_a_peer_never_has_is_awaited_for_a_limited_time() {
    let world = first().await;
    let peer = Fake::start(Some(filling(1))).await;
    let before = counted("kube_fanout_limits_reached_total{", "peer_search");
    let gateway = second(&world, &peer.url).await;
    assert_same(&world, passing(STEP, gateway.client.get(PODS)).await, PODS).await;
    assert!(counted("kube_fanout_limits_reached_total{", "peer_search") > before);
}

#[tokio::test]
async fn a_user_who_may_list_a_resource_learns_that_it_is_being_fetched() {
    let upstream = Guarded::start(Sim::new()).await;
    upstream.add_user(GATEWAY_TOKEN, "gateway");
    upstream.grant("gateway", "list", "pods");
    let mut access = kube_client::Config::new(format!("http://{}", upstream.address).parse().unwrap());
    access.auth_info.token = Some(GATEWAY_TOKEN.to_owned().into());
    let mute = Fake::start(None::<String>).await;
    let gateway = Gateway::start_in_front_of(access, |config| {
        config.clients = delegated();
        peers(&mute.url)(config);
    })
    .await;
    let authorization = format!("authorization: Bearer {GATEWAY_TOKEN}");
    let question = format!("{QUESTION}\r\n{authorization}");
    let read = format!("GET {PODS}");
    let told = async |header: &str| {
        let response = raw(gateway.client.address(), &read, header).await;
        String::from_utf8(response).unwrap()
    };
    let look = async || told(&question).await.contains("\r\nkube-fanout-rank: ").then_some(());
    tokio::select! {
        _ = raw(gateway.client.address(), &read, &authorization) => panic!("the peer does not answer"),
        () = until("the search has begun", look) => {}
    }
    let to_anyone = told(QUESTION).await;
    assert!(to_anyone.starts_with("HTTP/1.1 503 ") && !to_anyone.contains("kube-fanout-rank"), "{to_anyone}");
}

#[tokio::test]
async fn a_peer_s_question_is_answered_from_memory_or_not_at_all() {
    let world = first().await;
    let address = world.client().address();
    let before = world.sim.counts();
    for line in [
        "GET /api/v1/configmaps?resourceVersion=0",
        "GET /api/v1/pods",
        // As a gateway below asks how far upstream is.
        "GET /api/v1/pods?limit=1",
        "GET /api/v1/namespaces/default/pods/a",
        "GET /api/v1/pods?watch=1",
        "DELETE /api/v1/namespaces/default/pods/a",
        "GET /version",
    ] {
        let response = String::from_utf8(raw(address, line, QUESTION).await).unwrap();
        assert!(response.starts_with("HTTP/1.1 503 "), "{line}: {response}");
        assert!(
            response.contains(r#""message":"kube-fanout: this gateway has no proven cache of this resource that"#),
            "{response}"
        );
        assert!(response.contains("kube-fanout-peer: "), "{response}");
    }
    assert_eq!(world.sim.counts(), before);
    let to_client = String::from_utf8(raw(address, &format!("GET {PODS}"), "accept: */*").await).unwrap();
    assert!(to_client.starts_with("HTTP/1.1 200 ") && !to_client.contains("kube-fanout"), "{to_client}");
}

#[tokio::test]
async fn a_gateway_without_peers_answers_none() {
    let world = World::start().await;
    world.gateway.warm("/api/v1/pods").await;
    let response = String::from_utf8(raw(world.client().address(), &format!("GET {PODS}"), QUESTION).await).unwrap();
    assert!(response.starts_with("HTTP/1.1 503 ") && !response.contains("kube-fanout-peer"), "{response}");
}

#[tokio::test]
async fn a_peer_without_cache_peers_is_logged_as_none() {
    let world = first().await;
    let url = world.sim.start().await.unwrap();
    let plain = Gateway::start(&url.url()).await;
    plain.warm("/api/v1/pods").await;
    let lines = Lines::default();
    let (gateway, writer) = (second(&world, &format!("http://{}", plain.client.address())).await, lines.clone());
    let subscriber = log_subscriber(LogFormat::Json, LevelFilter::WARN, move || writer.clone());
    let _logged = tracing::subscriber::set_default(subscriber.with(gateway.client.log()));
    assert_same(&world, gateway.client.get(PODS).await, PODS).await;
    let text = lines.text();
    assert!(text.contains("what answers is not a gateway with cache.peers") && text.contains("503"), "{text}");
}

/// Two gateways in delegated mode, of which the second has its state from the first if its own user may list pods.
async fn delegated_source(may_list: bool) -> (Route, u64) {
    let sim = Sim::new();
    sim.create(pod("default", "a", "x")).unwrap();
    let upstream = Guarded::start(sim.clone()).await;
    upstream.add_user("jane-token", "jane");
    upstream.add_user(GATEWAY_TOKEN, "gateway");
    upstream.grant("jane", "list", "pods");
    if may_list {
        upstream.grant("gateway", "list", "pods");
    }
    let mut access = kube_client::Config::new(format!("http://{}", upstream.address).parse().unwrap());
    access.auth_info.token = Some(GATEWAY_TOKEN.to_owned().into());
    let start = async |peer: &str| {
        let change = peers(peer);
        Gateway::start_in_front_of(access.clone(), |config| {
            config.clients = delegated();
            change(config);
        })
        .await
    };
    let jane = [("authorization", "Bearer jane-token")];
    let served = async |gateway: &Gateway| {
        let answer = gateway.client.request("GET", PODS, &jane, Bytes::new()).await;
        (answer.route == Route::Served).then_some(answer)
    };
    let first = start(NOWHERE).await;
    until("the cache is filled", async || served(&first).await).await;
    let before = sim.counts().requests("watch", "pods");
    let second = start(first.client.url()).await;
    let answer = until("the cache is filled", async || served(&second).await).await;
    assert_eq!(answer.text(), directly(&sim, PODS).await.1);
    (answer.route, sim.counts().requests("watch", "pods") - before)
}

#[tokio::test]
async fn a_peer_gives_its_state_to_those_who_may_list_it() {
    // The question whether upstream has watch-list; then the bookmark and the watch, or the watch-list alone.
    assert_eq!(delegated_source(true).await, (Route::Served, 3));
    assert_eq!(delegated_source(false).await, (Route::Served, 2));
}

/// Leads each connection to the next of several gateways, as a Service does.
struct Balancer {
    url: String,
    gateways: Arc<Mutex<Vec<SocketAddr>>>,
    _connections: JoinSet<()>,
}

impl Balancer {
    async fn start() -> Self {
        let (listener, address) = listener().await;
        let gateways = Arc::<Mutex<Vec<SocketAddr>>>::default();
        let led_to = gateways.clone();
        let connections = accepting(listener, move |client| {
            let gateway = fastrand::choice(led_to.lock().unwrap().iter().copied());
            async move {
                let Some(gateway) = gateway else { return };
                relay(client, TcpStream::connect(gateway).await.unwrap()).await;
            }
        });
        Self { url: format!("http://{address}"), gateways, _connections: connections }
    }

    /// A gateway behind this address, which asks for peers there.
    async fn gateway(&self, world: &SimServer) -> Gateway {
        let gateway = Gateway::start_with(&world.url(), peers(&self.url)).await;
        self.gateways.lock().unwrap().push(gateway.client.address());
        gateway
    }
}

/// A custom resource of one test: metrics are counted for all tests of the process together.
fn renamed(object: &Value, singular: &str) -> Value {
    let kind = format!("{}{}", singular[..1].to_uppercase(), &singular[1..]);
    serde_json::from_str(&object.to_string().replace("widget", singular).replace("Widget", &kind)).unwrap()
}

/// Of 20 gateways, by chance no more than this ask upstream.
const FEW: u64 = 5;

/// Starts `warm` gateways that have the state, then fills `cold` others together. Returns how many of all of them got
/// their state from upstream, and how many from a peer.
async fn filled_together(singular: &str, warm: usize, cold: usize) -> (u64, u64) {
    let (sim, balancer) = (Sim::new(), Balancer::start().await);
    let server = sim.start().await.unwrap();
    sim.create(renamed(&definition(".spec.size"), singular)).unwrap();
    for number in 0..50 {
        sim.create(renamed(&widget(&number.to_string(), "small"), singular)).unwrap();
    }
    let path = format!("/apis/example.com/v1/{singular}s");
    let first = format!("{path}?resourceVersion=0");
    let mut gateways = Vec::new();
    for _ in 0..warm {
        let gateway = balancer.gateway(&server).await;
        gateway.warm(&path).await;
        gateways.push(gateway);
    }
    let begun = gateways.len();
    for _ in 0..cold {
        gateways.push(balancer.gateway(&server).await);
    }
    // Lines of the access log go to the log of the last one.
    let log = gateways[gateways.len() - 1].client.log();
    let client = |gateway: &Gateway| Client::new(gateway.client.url().to_owned(), log.clone());
    let clients: Vec<_> = gateways[begun..].iter().map(client).collect();
    // In real time: if time were skipped, searches might end without a result on a busy machine.
    let answers = join_all(clients.iter().map(|client| client.get(&first))).await;
    let (_, expected) = directly(&sim, &first).await;
    for answer in answers {
        assert_eq!((&answer.route, answer.text()), (&Route::Served, expected.as_str()));
    }
    let resource = format!("{singular}s.example.com");
    (fills(&resource, "upstream"), fills(&resource, "peer"))
}

#[tokio::test]
async fn many_new_gateways_get_their_state_from_the_few_that_have_it() {
    let (upstream, peers) = filled_together("gadget", 2, 18).await;
    assert_eq!(upstream + peers, 20);
    // The first one, and by a small chance others. How small it is, the tests of the search show.
    assert!((1..=FEW).contains(&upstream), "{upstream} of 20 have asked upstream");
}

#[tokio::test]
async fn of_many_gateways_that_start_together_few_ask_upstream() {
    let (upstream, peers) = filled_together("gizmo", 0, 20).await;
    assert_eq!(upstream + peers, 20);
    assert!((1..=FEW).contains(&upstream), "{upstream} of 20 have asked upstream");
}

#[tokio::test]
async fn an_address_that_does_not_work_is_logged_once_for_each_cause() {
    let world = first().await;
    world.sim.create(definition(".spec.size")).unwrap();
    let (refusing, lines) =
        (Fake::start(Some("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")).await, Lines::default());
    let (gateway, writer) = (second(&world, &refusing.url).await, lines.clone());
    let subscriber = log_subscriber(LogFormat::Json, LevelFilter::WARN, move || writer.clone());
    let _logged = tracing::subscriber::set_default(subscriber.with(gateway.client.log()));
    // Two caches, of which each asks three times.
    for path in [PODS, "/api/v1/configmaps?resourceVersion=0"] {
        assert_same(&world, gateway.client.get(path).await, path).await;
    }
    assert_eq!(refusing.asked.load(Relaxed), 6);
    let text = lines.text();
    let told: Vec<_> =
        text.lines().filter(|line| line.contains("the peer refuses this gateway's credentials")).collect();
    assert!(told.len() == 1 && told[0].contains(&refusing.url) && told[0].contains("401"), "{text}");
}
