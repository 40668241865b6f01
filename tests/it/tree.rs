//! A gateway behind a gateway, which is a process of its own: one process would refuse its own requests as a loop.

use std::path::PathBuf;

use futures_util::future::join_all;
use kube_fanout::sim::Sim;
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, UnixStream},
    process::Child,
    task::JoinSet,
};

use crate::harness::{
    Gateway, Route,
    process::{Process, in_front_of},
    within,
};

const WATCH_LIST: &str = "/api/v1/pods?watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
                          &resourceVersionMatch=NotOlderThan&timeoutSeconds=600";
/// The number of clients that begin at once.
const HERD: usize = 20;
const LAYERS: u64 = 3;

/// Three gateways in a row in front of an API server.
struct Layers {
    _upper: Process,
    _middle: (Child, PathBuf, TempDir),
    lower: Gateway,
    _relays: JoinSet<()>,
}

impl Layers {
    async fn start(sim: &Sim) -> Self {
        let upper = Process::in_front_of(sim.clone(), "").await;
        let mut relays = JoinSet::new();
        let middle = in_front_of(&relay(&mut relays, upper.client.clone()).await).await;
        let lower = Gateway::start(&relay(&mut relays, middle.2.path().join("client.sock")).await).await;
        Self { _upper: upper, _middle: middle, lower, _relays: relays }
    }
}

/// The address of a server that passes connections on to a socket.
async fn relay(relays: &mut JoinSet<()>, socket: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    relays.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = UnixStream::connect(&socket).await.unwrap();
            connections.spawn(async move { copy_bidirectional(&mut client, &mut server).await });
        }
    });
    url
}

/// client-go starts informers so since 1.35: with a most-recent watch-list.
#[tokio::test]
async fn most_recent_watch_lists_are_answered_by_the_lowest_gateway() {
    let sim = Sim::new();
    let Layers { lower, _upper, _middle, _relays } = Layers::start(&sim).await;
    lower.warm("/api/v1/pods").await;
    // What no watch of pods shows: the versions in memory are behind upstream's.
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": "default"}});
    sim.create(other).unwrap();
    let before = sim.counts();
    let mut watches = join_all((0..HERD).map(|_| lower.client.watch(WATCH_LIST))).await;
    for watch in &mut watches {
        let lines =
            [within("an object", watch.line()).await, within("the end of the initial events", watch.line()).await];
        let [object, end] = lines.map(|line| line.unwrap().unwrap());
        assert!(object.contains(r#""type":"ADDED""#) && end.contains("k8s.io/initial-events-end"), "{object} {end}");
        assert!(end.contains(&format!(r#""resourceVersion":"{}""#, sim.revision())), "{end}");
    }
    let counts = sim.counts();
    let asked = |verb| counts.requests(verb, "pods") - before.requests(verb, "pods");
    // A head version for each layer, and one proof, for all clients together.
    assert!(asked("list") <= 2 * LAYERS && asked("watch") <= 2, "{before:?}, {counts:?}");
    let mut stopping = lower.stop();
    for (rest, route) in join_all(watches.into_iter().map(|watch| watch.rest())).await {
        assert_eq!(route, Route::Served, "{rest}");
    }
    stopping.drained().await;
}
