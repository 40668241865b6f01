//! Resident memory. Every row starts new servers, because earlier work would affect the result.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use crate::{
    client::{Ask, Connection, Endpoint, PROTOBUF},
    generator, process,
    servers::Server,
    table::Line,
    watches::{Load, Watchers},
    world::{LIST, World},
};

/// The rate at which a slow client reads, in bytes per second.
const SLOW: u64 = 1_000_000;
/// The interval at which memory is read.
const LOOK: Duration = Duration::from_millis(20);
const MB: f64 = 1e6;

/// With full caches and no clients.
pub(crate) async fn idle(world: &World) -> Result<Vec<Line>> {
    let (gateway, json) = (world.fresh_gateway().await?, world.json_bytes as f64);
    rest(world).await;
    let resident = process::resident(gateway.id()) as f64;
    let api_server = world.upstream.real.map(|id| process::resident(id) as f64 / MB);
    let line = Line::new("memory, pods in JSON, idle", "MB", resident / MB).api_server(api_server);
    let mut lines = vec![line.goal(resident / json, 2.0, "x bytes")];
    if world.api_server().is_some() {
        gateway.endpoint.get(&Ask::protobuf(LIST)).await?;
        rest(world).await;
        let protobuf = gateway.endpoint.get(&Ask { accept: PROTOBUF, ..Ask::json(LIST) }).await?.len() as f64;
        let after_list = process::resident(gateway.id()) as f64;
        rest(world).await;
        let resident = process::resident(gateway.id()) as f64;
        lines.push(Line::new("right after a list in protobuf", "MB", after_list / MB));
        let line = Line::new("pods in JSON and protobuf, idle again", "MB", resident / MB);
        lines.push(line.goal(resident / (json + protobuf), 2.0, "x bytes"));
    }
    Ok(lines)
}

async fn rest(world: &World) {
    sleep(Duration::from_secs(world.sizes.seconds.min(8))).await;
}

/// With many concurrent lists, one in four of which is read slowly.
pub(crate) async fn lists(world: &World) -> Result<Vec<Line>> {
    let gateway = world.fresh_gateway().await?;
    rest(world).await;
    let before = process::resident(gateway.id()) as f64;
    let peak = while_read(world, &gateway).await?;
    let name = format!("memory while {} clients list, one in four at 1 MB/s", world.sizes.readers);
    let line = Line::new(name, "MB", peak / MB).goal(peak / before, 1.25, "x idle");
    rest(world).await;
    let after = process::resident(gateway.id()) as f64;
    Ok(vec![line, Line::new("some seconds after the last list", "MB", after / MB)])
}

/// The peak of resident memory while clients read full lists, one after the other.
async fn while_read(world: &World, gateway: &Server) -> Result<f64> {
    let slow = world.sizes.readers / 4;
    let workloads = format!(
        "{{clients: {slow}, slowReader: {{resource: pods, request: list, version: any, bytesPerSecond: {SLOW}}}}}, \
         {{clients: {}, list: {{resource: pods, version: any}}}}",
        world.sizes.readers - slow
    );
    let seconds = Duration::from_secs(world.sizes.seconds);
    let reading = generator::drive(world, &gateway.endpoint, &workloads, seconds);
    let mut peak = 0;
    let watching = async {
        loop {
            peak = peak.max(process::resident(gateway.id()));
            sleep(LOOK).await;
        }
    };
    tokio::select! {
        report = Box::pin(reading) => drop(report?),
        () = watching => {}
    }
    Ok(peak as f64)
}

/// KiB for each of the `count` things that a call of `open` opens. They are opened in batches, of which the median
/// counts: a single batch also shows memory that the allocator returns from other work or reserves in advance.
async fn each<T>(world: &World, server: &Server, count: usize, open: impl AsyncFn() -> Result<T>) -> Result<f64> {
    let (mut opened, mut grown) = (Vec::new(), Vec::new());
    let mut before = process::resident(server.id()) as f64;
    for _ in 0..world.sizes.batches {
        opened.push(open().await?);
        let after = process::resident(server.id()) as f64;
        grown.push((after - before) / count as f64 / 1024.0);
        before = after;
    }
    grown.sort_by(f64::total_cmp);
    Ok(grown[grown.len() / 2])
}

/// A watch without events, on an HTTP/2 connection with other watches.
pub(crate) async fn watcher(world: &World) -> Result<Vec<Line>> {
    let (gateway, baseline) = (world.fresh_gateway().await?, world.fresh_baseline().await?);
    let (count, version) = (world.sizes.watchers, world.version().await?);
    let [gateway, baseline] = [
        each(world, &gateway, count, async || Streams::open(&gateway.endpoint, count, &version).await).await?,
        each(world, &baseline, count, async || Streams::open(&baseline.endpoint, count, &version).await).await?,
    ];
    let line = Line::new("memory of an idle watcher, HTTP/2", "KiB", gateway).baseline(baseline);
    Ok(vec![line.goal(gateway, 4.0, "KiB")])
}

/// Watches on few connections, whose own cost is negligible.
struct Streams {
    _connections: Vec<Connection>,
    _bodies: Vec<hyper::body::Incoming>,
}

impl Streams {
    async fn open(endpoint: &Endpoint, count: usize, version: &str) -> Result<Self> {
        const STREAMS: usize = 900;
        let mut streams = Self { _connections: Vec::new(), _bodies: Vec::new() };
        let ask = Ask::json(format!("/api/v1/pods?watch=1&resourceVersion={version}")).http2();
        for first in (0..count).step_by(STREAMS) {
            let mut connection = endpoint.connect(true).await?;
            for _ in first..count.min(first + STREAMS) {
                streams._bodies.push(connection.open(&ask).await?.into_body());
            }
            streams._connections.push(connection);
        }
        sleep(Duration::from_secs(2)).await;
        Ok(streams)
    }
}

/// A TLS connection with one watch.
pub(crate) async fn connection(world: &World) -> Result<Vec<Line>> {
    let (gateway, baseline) = (world.fresh_gateway().await?, world.fresh_baseline().await?);
    let (load, version) = (Load::new(world.sizes.watchers / 4, false), world.version().await?);
    let [gateway, baseline] = [
        each(world, &gateway, load.watchers, async || Watchers::open(&gateway.endpoint, &load, &version).await).await?,
        each(world, &baseline, load.watchers, async || Watchers::open(&baseline.endpoint, &load, &version).await)
            .await?,
    ];
    let line = Line::new("memory of a TLS connection with an idle watch", "KiB", gateway).baseline(baseline);
    Ok(vec![line.times_baseline(1.1)])
}
