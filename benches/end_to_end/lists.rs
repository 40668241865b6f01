//! Gets and lists: the CPU that a request costs the server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use crate::{
    client::{Ask, Endpoint},
    process,
    servers::Server,
    table::Line,
    world::{LIST, World},
};

/// The number of connections that read concurrently.
const READERS: usize = 2;
/// Servers are measured in this many turns, so that other load of the machine affects all of them.
const TURNS: usize = 4;

const NAMESPACE: &str = "/api/v1/namespaces/load-0/pods?resourceVersion=0";
const POD: &str = "/api/v1/namespaces/load-0/pods/pod-0?resourceVersion=0";

/// The total cost of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    cpu: Duration,
    requests: usize,
    pub(crate) bytes: u64,
}

impl Cost {
    /// Milliseconds of CPU per request.
    pub(crate) fn each(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e3 / self.requests.max(1) as f64
    }

    pub(crate) fn bytes_each(&self) -> f64 {
        self.bytes as f64 / self.requests.max(1) as f64
    }
}

/// A server and the requests with which it is measured.
struct Measured {
    endpoint: Endpoint,
    id: u32,
    ask: Ask,
    requests: usize,
}

/// Measures several servers in turns.
async fn in_turns(servers: &[Measured]) -> Result<Vec<Cost>> {
    let mut costs = vec![Cost::default(); servers.len()];
    for _ in 0..TURNS {
        for (server, cost) in servers.iter().zip(&mut costs) {
            let requests = server.requests.div_ceil(TURNS);
            repeat(server, requests, cost).await?;
        }
    }
    Ok(costs)
}

async fn repeat(server: &Measured, requests: usize, cost: &mut Cost) -> Result<()> {
    let mut connections = Vec::new();
    for _ in 0..READERS {
        let mut connection = server.endpoint.connect(server.ask.http2).await?;
        // The first request is not counted: caches are filled and flow-control windows grow.
        connection.read(&server.ask).await?;
        connections.push(connection);
    }
    let before = process::cpu(server.id);
    let next = Arc::new(AtomicUsize::new(0));
    let mut readers = JoinSet::new();
    for mut connection in connections {
        let (next, ask) = (next.clone(), server.ask.clone());
        readers.spawn(async move {
            let mut bytes = 0;
            while next.fetch_add(1, Relaxed) < requests {
                bytes += connection.read(&ask).await?;
            }
            Ok::<_, anyhow::Error>(bytes)
        });
    }
    while let Some(bytes) = readers.join_next().await {
        cost.bytes += bytes??;
    }
    cost.cpu += process::cpu(server.id) - before;
    cost.requests += requests;
    Ok(())
}

/// The costs of a request at the API server (if it is a real one), the baseline and the gateway.
struct Costs {
    api_server: Option<Cost>,
    baseline: Cost,
    gateway: Cost,
}

async fn costs(world: &World, ask: &Ask, requests: usize) -> Result<Costs> {
    let server = |(endpoint, id): (Endpoint, u32), requests| Measured { endpoint, id, ask: ask.clone(), requests };
    let gateway = server((world.gateway.endpoint.clone(), world.gateway.id()), requests);
    let baseline = server((world.baseline.endpoint.clone(), world.baseline.id()), requests);
    let mut servers = vec![gateway, baseline];
    servers.extend(world.api_server().map(|api_server| server(api_server, requests.div_ceil(4))));
    let costs = in_turns(&servers).await?;
    Ok(Costs { gateway: costs[0], baseline: costs[1], api_server: costs.get(2).copied() })
}

/// Full lists in JSON.
pub(crate) async fn json(world: &World) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (name, ask, most) in
        [("full list, JSON, HTTP/1.1", Ask::json(LIST), 1.4), ("full list, JSON, HTTP/2", Ask::json(LIST).http2(), 1.6)]
    {
        let Costs { api_server, baseline, gateway } = costs(world, &ask, world.sizes.lists).await?;
        let line = Line::new(name, "ms CPU", gateway.each()).baseline(baseline.each());
        lines.push(line.api_server(api_server.map(|cost| cost.each())).times_baseline(most));
    }
    Ok(lines)
}

/// Full lists in protobuf.
pub(crate) async fn protobuf(world: &World) -> Result<Vec<Line>> {
    if world.api_server().is_none() {
        return Ok(Vec::new());
    }
    let mut lines = Vec::new();
    for (name, ask, most) in [
        ("full list, protobuf, HTTP/1.1", Ask::protobuf(LIST), 1.4),
        ("full list, protobuf, HTTP/2", Ask::protobuf(LIST).http2(), 1.6),
    ] {
        let Costs { api_server, baseline, gateway } = costs(world, &ask, world.sizes.lists).await?;
        let line = Line::new(name, "ms CPU", gateway.each()).baseline(baseline.each());
        lines.push(line.api_server(api_server.map(|cost| cost.each())).times_baseline(most));
    }
    Ok(lines)
}

/// Full lists in gzip, from the second one on.
pub(crate) async fn gzip(world: &World) -> Result<Vec<Line>> {
    let Costs { api_server, gateway, .. } = costs(world, &Ask::json(LIST).gzip(), world.sizes.lists).await?;
    let cpu = Line::new("full list, JSON, gzip", "ms CPU", gateway.each());
    let cpu = cpu.api_server(api_server.map(|cost| cost.each())).of_api_server(1.0 / 60.0);
    let size = Line::new("its size", "MB", gateway.bytes_each() / 1e6);
    let size = size.api_server(api_server.map(|cost| cost.bytes_each() / 1e6)).of_api_server(1.25);
    Ok(vec![cpu, size])
}

/// A list of a tenth of the collection.
pub(crate) async fn namespace(world: &World) -> Result<Vec<Line>> {
    let ask = Ask::json(NAMESPACE);
    Ok(vec![small(world, "list of one namespace, a tenth of all", &ask, world.sizes.lists * 4, 0.1).await?])
}

/// A list of a fifth of a namespace.
pub(crate) async fn label(world: &World) -> Result<Vec<Line>> {
    let ask = Ask::json("/api/v1/namespaces/load-0/pods?resourceVersion=0&labelSelector=app%3Dapp-0");
    Ok(vec![small(world, "list by label, a fifth of a namespace", &ask, world.sizes.lists * 8, 0.1).await?])
}

/// Lists of a part of all pods, by the hash of their uids. An API server without shards sends everything.
pub(crate) async fn shard(world: &World) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for parts in [2, 16] {
        let ask = Ask::json(format!("{LIST}&{}", shard_selector(0, parts)));
        let requests = world.sizes.lists * parts;
        lines.push(small(world, &format!("list of a shard, one of {parts}"), &ask, requests, 0.1).await?);
    }
    Ok(lines)
}

/// The parameter for that part of a split into `parts`.
pub(crate) fn shard_selector(part: usize, parts: usize) -> String {
    let [start, end] = [part, part + 1].map(|part| ((part as u128) << 64) / parts as u128);
    format!("shardSelector=shardRange(object.metadata.uid,%270x{start:016x}%27,%270x{end:016x}%27)")
}

/// What `kubectl get pods` asks for, of all namespaces and of one.
pub(crate) async fn table(world: &World) -> Result<Vec<Line>> {
    let (all, part, lists) = (Ask::table(LIST), Ask::table(NAMESPACE), world.sizes.lists);
    Ok(vec![
        small(world, "Table of all", &all, lists, 0.5).await?,
        small(world, "Table of one namespace, a tenth of all", &part, lists * 4, 0.5).await?,
    ])
}

/// A get of one pod.
pub(crate) async fn get(world: &World) -> Result<Vec<Line>> {
    Ok(vec![small(world, "get", &Ask::json(POD), world.sizes.requests, 0.25).await?])
}

/// The same reads by authenticated clients, whose reviews are remembered.
pub(crate) async fn delegated(world: &World) -> Result<Vec<Line>> {
    if world.api_server().is_none() {
        // Only a real API server answers reviews.
        return Ok(Vec::new());
    }
    let delegated = world.delegated_gateway().await?;
    let mut lines = Vec::new();
    for (name, ask, requests) in [
        ("get by a delegated client", Ask::json(POD), world.sizes.requests * 4),
        ("the same, HTTP/2", Ask::json(POD).http2(), world.sizes.requests * 4),
        ("list of one namespace by a delegated client", Ask::json(NAMESPACE), world.sizes.lists * 8),
    ] {
        let server = |server: &Server| {
            let (endpoint, id) = (server.endpoint.clone(), server.id());
            Measured { endpoint, id, ask: ask.clone(), requests }
        };
        let costs = in_turns(&[server(&world.gateway), server(&delegated)]).await?;
        let trusted = Line::new(format!("{name}: trusted"), "ms CPU", costs[0].each());
        let reached = costs[1].each() / costs[0].each();
        lines.extend([trusted, Line::new(name, "ms CPU", costs[1].each()).goal(reached, 1.15, "x trusted")]);
    }
    Ok(lines)
}

/// A read that the baseline cannot answer.
async fn small(world: &World, name: &str, ask: &Ask, requests: usize, most: f64) -> Result<Line> {
    let gateway =
        Measured { endpoint: world.gateway.endpoint.clone(), id: world.gateway.id(), ask: ask.clone(), requests };
    let mut servers = vec![gateway];
    servers.extend(world.api_server().map(|(endpoint, id)| Measured { endpoint, id, ask: ask.clone(), requests }));
    let costs = in_turns(&servers).await?;
    ensure!(costs.iter().all(|cost| cost.bytes > 0), "nothing was answered");
    let line = Line::new(name, "ms CPU", costs[0].each());
    Ok(line.api_server(costs.get(1).map(Cost::each)).of_api_server(most))
}

/// The cost of a full list in JSON at the baseline.
pub(crate) async fn baseline_list(world: &World) -> Result<f64> {
    let (endpoint, id) = (world.baseline.endpoint.clone(), world.baseline.id());
    let baseline = Measured { endpoint, id, ask: Ask::json(LIST), requests: world.sizes.lists };
    Ok(in_turns(&[baseline]).await?[0].each())
}
