//! Lists of the most recent state: from memory after a proof, compared with the same lists forwarded.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use crate::{
    client::{Ask, Connection, Endpoint},
    latency::percentile,
    pods, process,
    table::Line,
    world::{LIST, World},
};

/// All pods, in the most recent state.
const MOST_RECENT: &str = "/api/v1/pods";
/// A small collection.
const SMALL: &str = "/api/v1/namespaces";
/// More changes than are made while the lists are read.
const CHANGES_MAX: usize = 20_000;
/// For how long the CPU of the changes alone is measured.
const CHANGES_ALONE: Duration = Duration::from_secs(5);

/// The results of lists that were read one after another.
struct Lists {
    /// The median time to the last byte, in milliseconds.
    median: f64,
    /// CPU of the API server per list, in milliseconds, without what the changes alone use. `None` for `sim`.
    upstream: Option<f64>,
}

/// Reads lists from several servers in turns. `anyway` is the CPU that upstream uses without them, in seconds per
/// second.
async fn in_turns(world: &World, servers: &[(&Endpoint, &str)], count: usize, anyway: f64) -> Result<Vec<Lists>> {
    let mut connections: Vec<(Connection, Ask)> = Vec::new();
    for (endpoint, path) in servers {
        let (mut connection, ask) = (endpoint.connect(false).await?, Ask::json(*path));
        // The first request is not counted: caches are filled and flow-control windows grow.
        connection.read(&ask).await?;
        connections.push((connection, ask));
    }
    let (mut times, mut cpu) = (vec![Vec::new(); servers.len()], vec![0.0; servers.len()]);
    for turn in 0..count {
        for step in 0..servers.len() {
            // Each server is the first equally often, since a list pays for the garbage of the previous one.
            let at = (turn + step) % servers.len();
            let (connection, ask) = &mut connections[at];
            let (before, started) = (upstream_cpu(world), Instant::now());
            connection.read(ask).await?;
            let took = started.elapsed().as_secs_f64();
            times[at].push(took * 1e3);
            cpu[at] += (upstream_cpu(world).saturating_sub(before).as_secs_f64() - anyway * took) * 1e3;
        }
    }
    let is_real = world.api_server().is_some();
    let lists = times
        .iter_mut()
        .zip(cpu)
        .map(|(times, cpu)| Lists { median: percentile(times, 50), upstream: is_real.then_some(cpu / count as f64) });
    Ok(lists.collect())
}

fn upstream_cpu(world: &World) -> Duration {
    world.api_server().map_or(Duration::ZERO, |(_, id)| process::cpu(id))
}

/// A resource that changes often, one that does not, and a small one.
pub(crate) async fn lists(world: &World) -> Result<Vec<Line>> {
    let auto = world.most_recent_gateway().await?;
    let (auto, forwarding, sizes) = (&auto.endpoint, &world.gateway.endpoint, &world.sizes);
    let count = sizes.lists.div_ceil(2);
    let changed = (0..CHANGES_MAX).map(|change| change % sizes.pods);
    let busy = async {
        let (before, started) = (upstream_cpu(world), Instant::now());
        tokio::time::sleep(CHANGES_ALONE.min(Duration::from_secs(sizes.seconds))).await;
        let anyway = (upstream_cpu(world) - before).as_secs_f64() / started.elapsed().as_secs_f64();
        let servers = [(auto, MOST_RECENT), (forwarding, MOST_RECENT), (auto, LIST)];
        in_turns(world, &servers, count, anyway).await
    };
    let busy = tokio::select! {
        lists = busy => lists?,
        changes = pods::change(&world.upstream.endpoint, sizes, changed, sizes.rate) => {
            changes?;
            anyhow::bail!("the changes were over before the lists");
        }
    };
    let quiet = in_turns(world, &[(auto, MOST_RECENT), (forwarding, MOST_RECENT)], count, 0.0).await?;
    let small = in_turns(world, &[(auto, SMALL), (forwarding, SMALL)], sizes.requests.div_ceil(4), 0.0).await?;
    // The column `API server` shows the list that the gateway forwards.
    let p50 = |name: &str, lists: &[Lists]| Line::new(name, "ms", lists[0].median).api_server(Some(lists[1].median));
    let cpu = |name: &str, lists: &[Lists], most| {
        let [proven, forwarded] = [0, 1].map(|at| lists[at].upstream);
        Line::new(name, "ms CPU", proven.unwrap_or(f64::NAN)).api_server(forwarded).of_api_server(most)
    };
    let waited = busy[0].median - busy[2].median;
    let mut lines = vec![
        p50("most-recent list of a busy resource, auto (API server: forwarded), p50", &busy),
        Line::new("the same, beside a list of any version: waited for the proof, p50", "ms", waited)
            .goal(waited, 50.0, "ms"),
        cpu("the same: the API server's CPU", &busy, 0.05),
        p50("most-recent list of a quiet resource, auto (API server: forwarded), p50", &quiet).of_api_server(1.05),
        Line::new("the same: its time", "ms", quiet[0].median).goal(quiet[0].median, 1200.0, "ms"),
        cpu("the same: the API server's CPU", &quiet, 1.05),
        p50("most-recent list of a small resource, auto (API server: forwarded), p50", &small).of_api_server(1.05),
    ];
    // The CPU of `sim` is not measured.
    lines.retain(|line| !line.gateway.is_nan());
    Ok(lines)
}
