//! Several API servers of one cluster behind one gateway: they end, freeze, lag, come back, or are of another cluster.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use hyper::body::Incoming;
use kube_fanout::{
    apimachinery::GroupResource,
    config::FallbackConfig,
    sim::{Refusal, Sim},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex, split},
    join,
    net::{TcpSocket, TcpStream},
    sync::watch,
    task::JoinSet,
};

use crate::harness::{
    Gateway, Informer, Route, Selection, passing,
    serving::{self, accepting},
    skip, until,
    upstream::pod,
    within,
};

/// Longer than the gateway leaves servers alone between two checks.
const CHECKED: Duration = Duration::from_secs(6);
/// Small enough to be no reason for a watch to end.
const STEP: Duration = Duration::from_millis(500);
const BUFFER: usize = 64 << 10;
/// The maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 1_024;

/// One of several API servers of a storage, at its own address.
pub(crate) struct ApiServer {
    /// What answers its requests. Another one answers also those on connections that are already open.
    pub(crate) sim: watch::Sender<Sim>,
    /// Which of the storage's servers it is: each has its own cache.
    number: usize,
    pub(crate) address: SocketAddr,
    /// Keeps others from taking the port while the server is down.
    _reserved: TcpSocket,
    frozen: watch::Sender<bool>,
    running: JoinSet<()>,
}

impl ApiServer {
    pub(crate) async fn start(sim: &Sim, number: usize) -> Self {
        let reserved = bound(([127, 0, 0, 1], 0).into());
        let mut server = Self {
            sim: watch::Sender::new(sim.clone()),
            number,
            address: reserved.local_addr().unwrap(),
            _reserved: reserved,
            frozen: watch::Sender::new(false),
            running: JoinSet::new(),
        };
        server.start_again().await;
        server
    }

    pub(crate) async fn start_again(&mut self) {
        let listener = bound(self.address).listen(BACKLOG).unwrap();
        let (sims, number, frozen) = (self.sim.subscribe(), self.number, self.frozen.subscribe());
        self.running = accepting(listener, move |stream| serve(sims.clone(), number, stream, frozen.clone()));
    }

    /// Breaks its connections and closes its port.
    pub(crate) async fn kill(&mut self) {
        self.running.shutdown().await;
    }

    /// Takes connections and bytes, and answers none.
    fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    fn thaw(&self) {
        self.frozen.send_replace(false);
    }
}

/// A socket at this address. Several may have one address, of which one listens.
fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

/// Passes bytes on while the server is not frozen.
async fn pass_on(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut frozen: watch::Receiver<bool>) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        frozen.wait_for(|frozen| !frozen).await.unwrap();
        if to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
    to.shutdown().await.ok();
}

/// Serves one connection while the server is not frozen.
async fn serve(sims: watch::Receiver<Sim>, number: usize, stream: TcpStream, frozen: watch::Receiver<bool>) {
    let (outer, inner) = duplex(BUFFER);
    let (read, write) = stream.into_split();
    let (from_server, to_server) = split(outer);
    let requests = pass_on(read, to_server, frozen.clone());
    let answers = pass_on(from_server, write, frozen);
    let answer = move |request: Request<Incoming>| {
        let sim = sims.borrow().clone();
        async move { sim.handle_by(number, request).await }
    };
    tokio::select! {
        () = serving::serve(inner, answer) => {}
        ((), ()) = async { join!(requests, answers) } => {}
    }
}

/// A storage, its servers, and a gateway that has all of them.
struct Cluster {
    sim: Sim,
    servers: Vec<ApiServer>,
    gateway: Gateway,
}

impl Cluster {
    async fn start(servers: usize) -> Self {
        let sim = Sim::new();
        let mut started = Vec::new();
        for number in 0..servers {
            started.push(ApiServer::start(&sim, number).await);
        }
        let gateway = in_front_of(&started).await;
        Self { sim, servers: started, gateway }
    }

    fn create(&self, name: &str) {
        self.sim.create(pod("default", name, "x")).unwrap();
    }

    /// Returns when the gateway finds this many servers in use.
    async fn in_use(&self, count: usize) {
        let look = async || {
            let (_, text) = self.gateway.verbose_readyz().await;
            (text.lines().filter(|line| line.contains("]upstream/") && line.ends_with(" ok")).count() == count)
                .then_some(())
        };
        passing(STEP, until("the servers in use", look)).await;
    }
}

/// A gateway whose kubeconfig leads nowhere: only its servers are dialled.
pub(crate) async fn in_front_of(servers: &[ApiServer]) -> Gateway {
    let addresses: Vec<_> = servers.iter().map(|server| server.address.to_string().parse().unwrap()).collect();
    Gateway::start_with("http://127.0.0.1:1", |config| config.servers = addresses).await
}

const PODS: &str = "/api/v1/pods";
const FORWARDED: &str = "/api/v1/namespaces/default/events";

#[tokio::test]
async fn a_server_at_a_time_may_end_and_no_client_lists_again() {
    let mut cluster = Cluster::start(2).await;
    cluster.gateway.warm(PODS).await;
    cluster.in_use(2).await;
    let mut informer = Informer::new(cluster.gateway.client.clone(), cluster.sim.clone(), Selection::pods());
    informer.catch_up().await;
    for (round, down) in [0, 1, 0, 1].into_iter().enumerate() {
        cluster.servers[down].kill().await;
        cluster.create(&format!("pod-{round}"));
        assert_eq!(cluster.gateway.client.get(FORWARDED).await.status, 200, "round {round}");
        let created = cluster
            .gateway
            .client
            .request(
                "POST",
                "/api/v1/namespaces/default/configmaps",
                &[("content-type", "application/json")],
                Bytes::from(format!(r#"{{"metadata":{{"name":"m-{round}"}}}}"#)),
            )
            .await;
        assert_eq!(created.status, 201, "round {round}: {}", created.text());
        passing(STEP, informer.catch_up()).await;
        cluster.servers[down].start_again().await;
        cluster.in_use(2).await;
    }
    assert_eq!((informer.told.states, informer.told.broken, informer.told.expired), (1, 0, 0), "{:?}", informer.told);
}

#[tokio::test]
async fn connections_to_a_frozen_server_are_given_up() {
    let cluster = Cluster::start(2).await;
    cluster.gateway.warm(PODS).await;
    cluster.in_use(2).await;
    let mut informer = Informer::new(cluster.gateway.client.clone(), cluster.sim.clone(), Selection::pods());
    informer.catch_up().await;
    for frozen in [0, 1] {
        // So that there are connections to both that have worked: a request on one that has not is not sent again.
        join_all((0..8).map(|_| cluster.gateway.client.get(FORWARDED))).await;
        cluster.servers[frozen].freeze();
        cluster.create(&format!("pod-{frozen}"));
        // Also those on connections to the frozen server.
        let answers = async {
            for _ in 0..5 {
                let answer = cluster.gateway.client.get(FORWARDED).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
            informer.catch_up().await;
        };
        Box::pin(passing(STEP, within("answers in spite of the frozen server", answers))).await;
        cluster.in_use(1).await;
        cluster.servers[frozen].thaw();
        cluster.in_use(2).await;
    }
    assert_eq!((informer.told.states, informer.told.expired), (1, 0), "{:?}", informer.told);
}

#[tokio::test]
async fn a_server_of_another_cluster_is_refused_and_never_used() {
    let (sim, other) = (Sim::new(), Sim::new());
    other.create(pod("default", "of-another-cluster", "x")).unwrap();
    let servers = [ApiServer::start(&sim, 0).await, ApiServer::start(&other, 0).await];
    let gateway = in_front_of(&servers).await;
    gateway.warm(PODS).await;
    skip(CHECKED).await;
    for _ in 0..20 {
        assert!(!gateway.client.get("/api/v1/pods").await.text().contains("of-another-cluster"));
        assert_eq!(gateway.client.get(FORWARDED).await.status, 200);
    }
    let (status, text) = gateway.verbose_readyz().await;
    assert_eq!(status, 200, "{text}");
    let lines = [
        format!("[+]upstream/{} ok", servers[0].address),
        format!("[i]upstream/{} not ready: never used, since it is not of the cluster", servers[1].address),
    ];
    assert!(lines.iter().all(|line| text.contains(line)), "{text}");
    let asked = other.counts();
    assert_eq!((asked.requests("list", "pods"), asked.requests("list", "events")), (0, 0));
    assert!(asked.requests("list", "namespaces") > 0);
}

#[tokio::test]
async fn nothing_of_a_cluster_that_was_replaced_is_served() {
    let mut cluster = Cluster::start(2).await;
    cluster.create("of-the-old-cluster");
    cluster.gateway.warm(PODS).await;
    cluster.in_use(2).await;
    assert!(cluster.gateway.client.get(PODS).await.text().contains("of-the-old-cluster"));
    let new = Sim::new();
    // Its versions are higher, so that no version goes back.
    for number in 0..100 {
        new.create(pod("default", &format!("filler-{number}"), "x")).unwrap();
    }
    new.create(pod("default", "of-the-new-cluster", "x")).unwrap();
    for server in &mut cluster.servers {
        server.kill().await;
    }
    for server in &mut cluster.servers {
        server.sim.send_replace(new.clone());
        server.start_again().await;
    }
    let compared = async || {
        let (_, text) = cluster.gateway.verbose_readyz().await;
        (new.counts().requests("list", "namespaces") > 2 && text.matches("]upstream/").count() == 2).then_some(())
    };
    passing(STEP, until("checks of the new servers", compared)).await;
    cluster.in_use(2).await;
    for query in ["", "?resourceVersion=0"] {
        let text = cluster.gateway.client.get(&format!("{PODS}{query}")).await.text().to_owned();
        assert!(text.contains("of-the-new-cluster") && !text.contains("of-the-old-cluster"), "{query}: {text}");
    }
    cluster.gateway.warm(PODS).await;
    let text = cluster.gateway.client.get(PODS).await.text().to_owned();
    assert!(text.contains("of-the-new-cluster") && !text.contains("of-the-old-cluster"), "{text}");
}

#[tokio::test]
async fn a_watch_that_goes_on_at_a_server_that_lags_is_silent_and_not_wrong() {
    let mut cluster = Cluster::start(2).await;
    cluster.gateway.warm(PODS).await;
    cluster.in_use(2).await;
    let mut informer = Informer::new(cluster.gateway.client.clone(), cluster.sim.clone(), Selection::pods());
    informer.catch_up().await;
    for round in 0..4 {
        cluster.sim.lag_caches(&if round % 2 == 0 {
            [Duration::ZERO, Duration::from_secs(20)]
        } else {
            [Duration::from_secs(20), Duration::ZERO]
        });
        cluster.create(&format!("pod-{round}"));
        passing(STEP, informer.catch_up()).await;
        let fresh = round % 2;
        cluster.servers[fresh].kill().await;
        cluster.create(&format!("late-{round}"));
        passing(STEP, informer.catch_up()).await;
        cluster.servers[fresh].start_again().await;
        cluster.in_use(2).await;
    }
    assert_eq!((informer.told.states, informer.told.expired), (1, 0), "{:?}", informer.told);
}

#[tokio::test]
async fn without_any_server_the_gateway_behaves_as_with_one() {
    let mut cluster = Cluster::start(2).await;
    cluster.gateway.warm(PODS).await;
    cluster.in_use(2).await;
    for server in &mut cluster.servers {
        server.kill().await;
    }
    let answer = cluster.gateway.client.get(FORWARDED).await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(cluster.gateway.client.get(&format!("{PODS}?resourceVersion=0")).await.route, Route::Served);
    // The first request finds that it is back: none waits for the next check.
    cluster.servers[1].start_again().await;
    assert_eq!(cluster.gateway.client.get(FORWARDED).await.status, 200);
}

#[tokio::test]
async fn caches_are_filled_soon_after_a_server_has_come_into_use() {
    let sim = Sim::new();
    sim.refuse(Refusal { resource: Some("namespaces".to_owned()), status: 403, ..Refusal::default() });
    let server = ApiServer::start(&sim, 0).await;
    let address = server.address.to_string().parse().unwrap();
    let gateway = Gateway::start_with("http://127.0.0.1:1", |config| {
        config.servers = vec![address];
        config.cache.prewarm = vec![GroupResource { group: "".into(), resource: "pods".into() }.into()];
    })
    .await;
    let checks = || sim.counts().requests("list", "namespaces");
    passing(STEP, until("several checks", async || (checks() > 3).then_some(()))).await;
    sim.accept_all();
    let before = checks();
    passing(STEP, until("the cache is filled", async || (gateway.readyz().await.0 == 200).then_some(()))).await;
    assert!(checks() <= before + 3, "{} checks", checks() - before);
}

#[tokio::test]
async fn tunnels_lead_to_a_server_that_is_in_use() {
    let mut cluster = Cluster::start(2).await;
    cluster.gateway.warm(PODS).await;
    cluster.in_use(2).await;
    cluster.servers[0].kill().await;
    let mut stream = TcpStream::connect(cluster.gateway.client.address()).await.unwrap();
    let head = "GET /api/v1/namespaces/default/pods/p/exec HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n\
                upgrade: websocket\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    within("an answer", stream.read_exact(&mut status)).await.unwrap();
    // The embedded server has no such pod, and says so.
    assert_eq!(&status, b"HTTP/1.1 404");
}

/// `upstream.fallback` of a gateway that goes there: its clients notice nothing, and without need it asks nothing.
#[tokio::test]
async fn the_fallback_is_used_while_upstream_is_gone_and_left_when_it_is_back() {
    let sim = Sim::new();
    let mut upstream = ApiServer::start(&sim, 0).await;
    let other = Sim::new();
    let mut fallback = ApiServer::start(&other, 0).await;
    let servers = vec![fallback.address.to_string().parse().unwrap()];
    let gateway = Gateway::start_with(&format!("http://{}", upstream.address), |config| {
        config.fallback = Some(FallbackConfig { servers, percent: 100, ..FallbackConfig::default() });
    })
    .await;
    gateway.warm(PODS).await;
    let mut informer = Informer::new(gateway.client.clone(), sim.clone(), Selection::pods());
    informer.catch_up().await;
    skip(CHECKED * 20).await;
    assert_eq!(other.counts().requests("list", "namespaces"), 0, "nothing is asked without need");
    fallback.sim.send_replace(sim.clone());
    for round in 0..2 {
        upstream.kill().await;
        sim.create(pod("default", &format!("pod-{round}"), "x")).unwrap();
        passing(STEP, informer.catch_up()).await;
        assert_eq!(gateway.client.get(FORWARDED).await.status, 200, "round {round}");
        upstream.start_again().await;
        let is_back = async || {
            let status = gateway.status_json().await;
            (status.contains(r#""state": "inUse""#) && status.contains(r#""state": "standby""#)).then_some(())
        };
        passing(STEP, until("the fallback is left", is_back)).await;
        fallback.kill().await;
        sim.create(pod("default", &format!("later-{round}"), "x")).unwrap();
        passing(STEP, informer.catch_up()).await;
        fallback.start_again().await;
    }
    assert_eq!((informer.told.states, informer.told.expired), (1, 0), "{:?}", informer.told);
}

/// A fallback of another cluster is never used, however long upstream is gone.
#[tokio::test]
async fn a_fallback_of_another_cluster_is_never_used() {
    let (sim, other) = (Sim::new(), Sim::new());
    let mut upstream = ApiServer::start(&sim, 0).await;
    let fallback = ApiServer::start(&other, 0).await;
    let servers = vec![fallback.address.to_string().parse().unwrap()];
    let gateway = Gateway::start_with(&format!("http://{}", upstream.address), |config| {
        config.fallback = Some(FallbackConfig { servers, percent: 100, ..FallbackConfig::default() });
    })
    .await;
    gateway.warm(PODS).await;
    upstream.kill().await;
    let line = format!("upstream/{} not ready: never used, since it is not of the cluster", fallback.address);
    let shown = async || gateway.verbose_readyz().await.1.contains(&line).then_some(());
    passing(STEP, until("that it is of another cluster", shown)).await;
    skip(CHECKED * 20).await;
    assert_eq!(gateway.client.get(FORWARDED).await.status, 503);
    assert_eq!(gateway.client.get(&format!("{PODS}?resourceVersion=0")).await.route, Route::Served);
    assert_eq!(other.counts().requests("list", "events"), 0);
    upstream.start_again().await;
    let is_back = async || (gateway.client.get(FORWARDED).await.status == 200).then_some(());
    passing(STEP, until("upstream is used again", is_back)).await;
}
