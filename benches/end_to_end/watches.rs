//! Watches: what a delivered event costs the server, and what the initial events cost.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use kube_fanout::load::Splitter;
use memchr::memmem;
use tokio::{task::JoinSet, time::sleep};

use crate::{
    client::{Ask, Connection, Endpoint, JSON, PROTOBUF, TABLE},
    lists::{self, shard_selector},
    pods, process,
    table::Line,
    world::World,
};

/// The number of streams per HTTP/2 connection, like the informers of one process.
const STREAMS: usize = 100;
/// The time that events may take to arrive.
const SETTLE: Duration = Duration::from_secs(10);
/// The pause between the opening of the watches and the measurement.
const REST: Duration = Duration::from_secs(2);

/// The watches to open.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) watchers: usize,
    pub(crate) http2: bool,
    pub(crate) accept: &'static str,
    pub(crate) selects: Selects,
}

/// What each watch selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selects {
    Everything,
    /// A node of its own.
    Node,
    /// One shard of [`SHARDS`], in turns.
    Shard,
}

/// The number of parts that replicas of a client divide the pods into.
const SHARDS: usize = 16;

impl Selects {
    fn parameter(self, number: usize) -> String {
        match self {
            Self::Everything => String::new(),
            Self::Node => format!("&fieldSelector=spec.nodeName%3Dnode-{number}"),
            Self::Shard => format!("&{}", shard_selector(number % SHARDS, SHARDS)),
        }
    }
}

impl Load {
    pub(crate) fn new(watchers: usize, http2: bool) -> Self {
        Self { watchers, http2, accept: JSON, selects: Selects::Everything }
    }
}

/// Open watches, read without delay. Closed when dropped.
#[derive(Debug)]
pub(crate) struct Watchers {
    _connections: Vec<Connection>,
    readers: JoinSet<()>,
    seen: Arc<Seen>,
    opened: usize,
}

/// What the watches have read.
#[derive(Debug, Default)]
struct Seen {
    events: AtomicU64,
    /// The milliseconds between the write and the event; `None` if they are not measured.
    latencies: Option<Mutex<Vec<f64>>>,
}

impl Watchers {
    /// Opens all watches at `version`.
    pub(crate) async fn open(endpoint: &Endpoint, load: &Load, version: &str) -> Result<Self> {
        Self::open_into(endpoint, load, version, Seen::default()).await
    }

    /// Like [`Self::open`], and measures the latency of each event.
    pub(crate) async fn open_timed(endpoint: &Endpoint, load: &Load, version: &str) -> Result<Self> {
        let latencies = Some(Mutex::default());
        Self::open_into(endpoint, load, version, Seen { latencies, ..Seen::default() }).await
    }

    async fn open_into(endpoint: &Endpoint, load: &Load, version: &str, seen: Seen) -> Result<Self> {
        let mut watchers =
            Self { _connections: Vec::new(), readers: JoinSet::new(), seen: Arc::new(seen), opened: load.watchers };
        let streams = if load.http2 { STREAMS } else { 1 };
        for first in (0..load.watchers).step_by(streams) {
            let mut connection = endpoint.connect(load.http2).await?;
            for number in first..load.watchers.min(first + streams) {
                let selector = load.selects.parameter(number);
                let path = format!("/api/v1/pods?watch=1&resourceVersion={version}{selector}");
                let ask = Ask { accept: load.accept, http2: load.http2, ..Ask::json(path) };
                let body = connection.open(&ask).await?.into_body();
                watchers.readers.spawn(read(body, load.accept == PROTOBUF, watchers.seen.clone()));
            }
            watchers._connections.push(connection);
        }
        sleep(REST).await;
        Ok(watchers)
    }

    /// Waits until all watchers together have read `events` events. Returns the number that they have read.
    pub(crate) async fn seen(&self, events: u64) -> Result<u64> {
        pods::until(SETTLE, || self.seen.events.load(Relaxed) >= events).await;
        let seen = self.seen.events.load(Relaxed);
        ensure!(self.readers.len() == self.opened, "a watch has ended");
        ensure!(seen >= events, "{seen} events have come, not {events}");
        Ok(seen)
    }

    pub(crate) fn latencies(&self) -> Vec<f64> {
        let latencies = self.seen.latencies.as_ref();
        latencies.map(|latencies| latencies.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
    }
}

/// Counts events. Only what is needed of them is read, since the clients share the cores with the servers.
async fn read(mut body: Incoming, is_protobuf: bool, seen: Arc<Seen>) {
    let (mut splitter, sent) = (Splitter::new(is_protobuf), memmem::Finder::new(pods::SENT));
    while let Some(Ok(frame)) = body.frame().await {
        let Some(data) = frame.data_ref() else { continue };
        let mut events = 0;
        match &seen.latencies {
            None => splitter.push(data, |_| events += 1),
            Some(latencies) => {
                let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
                splitter.push(data, |event| {
                    latencies.extend(latency(event, &sent));
                    events += 1;
                });
            }
        }
        seen.events.fetch_add(events, Relaxed);
    }
}

/// Milliseconds since the time in the annotation.
fn latency(line: &[u8], sent: &memmem::Finder<'_>) -> Option<f64> {
    let value = line.get(sent.find(line)? + pods::SENT.len()..)?;
    let digits = value.iter().skip_while(|byte| !byte.is_ascii_digit()).take_while(|byte| byte.is_ascii_digit());
    let then = digits.fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
    Some(pods::now().saturating_sub(then) as f64 / 1e6)
}

/// The costs of delivering all changes to all watchers.
struct Delivered {
    cpu: Duration,
    /// CPU of the API server at the same time.
    upstream: Option<Duration>,
    events: u64,
}

impl Delivered {
    fn microseconds_each(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.events.max(1) as f64
    }
}

async fn deliver(world: &World, endpoint: &Endpoint, id: u32, load: &Load) -> Result<Delivered> {
    let sizes = &world.sizes;
    let watchers = Watchers::open(endpoint, load, &world.version().await?).await?;
    let (cpu, upstream) = (process::cpu(id), world.upstream.real.map(process::cpu));
    pods::change(&world.upstream.endpoint, sizes, (0..sizes.changes).map(|change| change % sizes.pods), sizes.rate)
        .await?;
    let events = watchers.seen((sizes.changes * load.watchers) as u64).await?;
    Ok(Delivered {
        cpu: process::cpu(id) - cpu,
        upstream: world.upstream.real.zip(upstream).map(|(id, before)| process::cpu(id) - before),
        events,
    })
}

/// Measures the baseline, the gateway and, with `with_api_server`, the API server, each with the same watchers.
async fn deliveries(world: &World, name: &str, load: &Load, with_api_server: bool) -> Result<Line> {
    let baseline = deliver(world, &world.baseline.endpoint, world.baseline.id(), load).await?;
    let gateway = deliver(world, &world.gateway.endpoint, world.gateway.id(), load).await?;
    let api_server = if with_api_server { at_api_server(world, load, &gateway).await? } else { None };
    let line = Line::new(name, "us CPU", gateway.microseconds_each()).baseline(baseline.microseconds_each());
    Ok(line.api_server(api_server).times_baseline(1.3))
}

/// A delivery by the API server, if it is a real one, after that by the gateway.
async fn at_api_server(world: &World, load: &Load, gateway: &Delivered) -> Result<Option<f64>> {
    let Some((endpoint, id)) = world.api_server() else { return Ok(None) };
    let delivered = deliver(world, &endpoint, id, load).await?;
    // The writes cost it as much as they did while the gateway delivered.
    let cpu = delivered.cpu.saturating_sub(gateway.upstream.unwrap_or_default());
    Ok(Some(Delivered { cpu, ..delivered }.microseconds_each()))
}

/// Every watcher gets every change.
pub(crate) async fn json(world: &World) -> Result<Vec<Line>> {
    let count = world.sizes.watchers;
    Ok(vec![
        deliveries(world, &format!("{count} watchers, JSON, HTTP/1.1: a delivery"), &Load::new(count, false), true)
            .await?,
        deliveries(world, &format!("{count} watchers, JSON, HTTP/2: a delivery"), &Load::new(count, true), false)
            .await?,
    ])
}

/// Like [`json`], in protobuf.
pub(crate) async fn protobuf(world: &World) -> Result<Vec<Line>> {
    let count = world.sizes.watchers;
    if world.api_server().is_none() {
        return Ok(Vec::new());
    }
    let load = |http2| Load { accept: PROTOBUF, ..Load::new(count, http2) };
    Ok(vec![
        deliveries(world, &format!("{count} watchers, protobuf, HTTP/1.1: a delivery"), &load(false), true).await?,
        deliveries(world, &format!("{count} watchers, protobuf, HTTP/2: a delivery"), &load(true), false).await?,
    ])
}

/// Watchers of one node each: a change must not cost anything for the watchers of other nodes.
pub(crate) async fn by_node(world: &World) -> Result<Vec<Line>> {
    /// A single change costs too little to be measured.
    const CHANGES: usize = 4;
    let sizes = &world.sizes;
    let few = (sizes.node_watchers / 100).max(10);
    let mut costs = Vec::new();
    for watchers in [few, sizes.node_watchers] {
        let load = Load { selects: Selects::Node, ..Load::new(watchers, true) };
        let watchers = Watchers::open(&world.gateway.endpoint, &load, &world.version().await?).await?;
        let before = process::cpu(world.gateway.id());
        // Only nodes that are watched even with few watchers.
        let changes = sizes.changes * CHANGES;
        let pods = (0..changes).map(|change| change % few.min(sizes.nodes()));
        pods::change(&world.upstream.endpoint, sizes, pods, sizes.rate * CHANGES as f64).await?;
        watchers.seen(changes as u64).await?;
        let cpu = process::cpu(world.gateway.id()) - before;
        costs.push(cpu.as_secs_f64() * 1e6 / changes as f64);
    }
    let name = format!("{} watchers of a node each: a change", sizes.node_watchers);
    let line = Line::new(name, "us CPU", costs[1]);
    Ok(vec![
        Line::new(format!("{few} watchers of a node each: a change"), "us CPU", costs[0]),
        line.goal(costs[1] / costs[0], 1.3, "x few"),
    ])
}

/// Watchers of one shard each: a change must cost what its shard's watchers cost.
pub(crate) async fn by_shard(world: &World) -> Result<Vec<Line>> {
    let (sizes, gateway) = (&world.sizes, &world.gateway);
    let of_a_shard = (sizes.watchers / SHARDS).max(1);
    let mut costs = Vec::new();
    for (selects, watchers) in [(Selects::Everything, of_a_shard), (Selects::Shard, of_a_shard * SHARDS)] {
        let load = Load { selects, ..Load::new(watchers, true) };
        let watchers = Watchers::open(&gateway.endpoint, &load, &world.version().await?).await?;
        let before = process::cpu(gateway.id());
        let pods = (0..sizes.changes).map(|change| change % sizes.pods);
        pods::change(&world.upstream.endpoint, sizes, pods, sizes.rate).await?;
        watchers.seen((sizes.changes * of_a_shard) as u64).await?;
        costs.push((process::cpu(gateway.id()) - before).as_secs_f64() * 1e6 / sizes.changes as f64);
    }
    let name = format!("{} watchers of {SHARDS} shards: a change", of_a_shard * SHARDS);
    let line = Line::new(name, "us CPU", costs[1]);
    Ok(vec![
        Line::new(format!("{of_a_shard} watchers of everything: a change"), "us CPU", costs[0]),
        line.goal(costs[1] / costs[0], 1.5, "x those of everything"),
    ])
}

/// Watches of Tables (`kubectl get -w`), whose rows are made for each of them.
pub(crate) async fn tables(world: &World) -> Result<Vec<Line>> {
    let load = Load { accept: TABLE, ..Load::new(world.sizes.watchers / 20, false) };
    let gateway = deliver(world, &world.gateway.endpoint, world.gateway.id(), &load).await?;
    let name = format!("{} watchers of Tables: a delivery", load.watchers);
    let line = Line::new(name, "us CPU", gateway.microseconds_each());
    let api_server = at_api_server(world, &load, &gateway).await?;
    Ok(vec![line.api_server(api_server).of_api_server(0.8)])
}

/// All objects as initial events, as informers start, until the last one has been read.
pub(crate) async fn watch_list(world: &World) -> Result<Vec<Line>> {
    let (sizes, ask) = (&world.sizes, Ask::json("/api/v1/pods?watch=1&resourceVersion=0&allowWatchBookmarks=true"));
    let measure = async |(endpoint, id): (Endpoint, u32), times: usize| {
        let before = process::cpu(id);
        for _ in 0..times {
            let mut connection = endpoint.connect(false).await?;
            let mut body = connection.open(&ask).await?.into_body();
            let mut events = 0;
            while events < sizes.pods {
                let Some(frame) = body.frame().await else { break };
                events += memchr::memchr_iter(b'\n', frame?.data_ref().map_or(&[][..], |data| data)).count();
            }
            ensure!(events >= sizes.pods, "{events} events");
        }
        Ok::<_, anyhow::Error>((process::cpu(id) - before).as_secs_f64() * 1e3 / times as f64)
    };
    let gateway = measure((world.gateway.endpoint.clone(), world.gateway.id()), sizes.lists / 2).await?;
    let api_server = match world.api_server() {
        Some(api_server) => Some(measure(api_server, sizes.lists.div_ceil(8)).await?),
        None => None,
    };
    let baseline = lists::baseline_list(world).await?;
    let line = Line::new("watch of all from RV=0, until all objects have come", "ms CPU", gateway).baseline(baseline);
    Ok(vec![line.api_server(api_server).times_baseline(2.0)])
}
