//! Informers that all start at the same time: at a gateway that has just started, and at one that was restarted.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hyper::body::Incoming;
use memchr::memmem;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    client::{Ask, Connection, Endpoint},
    generator, process,
    servers::{Gateway, Server, Upstream},
    table::Line,
    world::World,
};

/// The number of streams per HTTP/2 connection.
const STREAMS: usize = 100;
/// The time after which the watches of a restarted gateway's clients must have left the API server.
const LEFT_MAX: Duration = Duration::from_secs(90);
/// The interval at which the metrics of the API server are read, which costs it some 20 ms each time.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A pause in which the API server finishes its work for an earlier measurement.
const REST: Duration = Duration::from_secs(3);
/// How long informers stay after all are in sync.
const STORM_OVER: Duration = Duration::from_millis(1);

/// A collection of an API server, and how its informers start.
pub(crate) struct Scene<'a> {
    pub(crate) world: &'a World,
    pub(crate) upstream: &'a Upstream,
    /// For example `/api/v1/pods`.
    pub(crate) collection: &'static str,
    /// The name of the collection in `cache.prewarm`.
    pub(crate) resource: &'static str,
    /// The name of the collection in profiles of `kube-fanout load`.
    pub(crate) named: &'static str,
    /// Whether informers start with one watch-list, as client-go 1.35 does, instead of a list of any version and a
    /// watch from there.
    pub(crate) watch_list: bool,
}

/// The counts of the API server since its start.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    open: f64,
    ended: f64,
    lists: f64,
}

/// The costs of a storm until the last client was in sync.
#[derive(Clone, Copy, Debug)]
struct Storm {
    time: Duration,
    /// CPU of the API server; `None` for `sim`.
    cpu: Option<Duration>,
    /// The number of watches that were opened at the API server.
    watches: f64,
    lists: f64,
}

impl<'a> Scene<'a> {
    /// All pods of the world. Old API servers refuse watch-lists; `sim` and current ones support them.
    pub(crate) fn pods(world: &'a World) -> Self {
        let upstream = &world.upstream;
        Self {
            world,
            upstream,
            collection: "/api/v1/pods",
            resource: "pods",
            named: "pods",
            watch_list: !upstream.is_old(),
        }
    }

    /// A gateway in front of this API server. Its caches are cold if `prewarm` is empty.
    async fn gateway(&self, prewarm: &'static str) -> Result<Server> {
        let gateway = Gateway { prewarm, clients: "trusted", bridge: true, fields: "" };
        Server::gateway(gateway, self.upstream, &self.world.certificates, self.world.folder()).await
    }

    /// Read from the metrics of a real API server; zeros for `sim`.
    async fn counted(&self) -> Result<Counted> {
        if self.upstream.real.is_none() {
            return Ok(Counted::default());
        }
        let text = self.upstream.endpoint.get(&Ask::json("/metrics")).await?;
        let text = String::from_utf8_lossy(&text);
        let plural = self.resource.split('.').next().unwrap_or_default();
        let resource = format!("resource=\"{plural}\"");
        let sum = |names: &[&str], verb: &str| {
            let is_wanted = |line: &&str| {
                names.iter().any(|name| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')))
                    && line.contains(&resource)
                    && line.contains(&format!("verb=\"{verb}\""))
            };
            let values = text.lines().filter(is_wanted).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            values.sum::<f64>()
        };
        Ok(Counted {
            open: sum(&["apiserver_longrunning_gauge", "apiserver_longrunning_requests"], "WATCH"),
            ended: sum(&["apiserver_request_total"], "WATCH"),
            lists: sum(&["apiserver_request_total"], "LIST"),
        })
    }

    fn cpu(&self) -> Option<Duration> {
        self.upstream.real.map(process::cpu)
    }

    /// Measures from the start of `clients` until it completes.
    async fn measure<T>(&self, clients: impl Future<Output = Result<T>>) -> Result<(Storm, T)> {
        let clients = Box::pin(clients);
        sleep(REST).await;
        let (before, cpu, started) = (self.counted().await?, self.cpu(), Instant::now());
        let value = clients.await?;
        let time = started.elapsed();
        let cpu = self.cpu().zip(cpu).map(|(now, before)| now - before);
        let now = self.counted().await?;
        let watches = now.open + now.ended - before.open - before.ended;
        Ok((Storm { time, cpu, watches, lists: now.lists - before.lists }, value))
    }

    /// Starts informers, each on its own connection, and waits until all are in sync.
    async fn storm(&self, endpoint: &Endpoint) -> Result<Storm> {
        let (informers, start) = (self.world.sizes.informers, if self.watch_list { "watchList" } else { "list" });
        let workload = format!("{{clients: {informers}, informer: {{resource: {}, start: {start}}}}}", self.named);
        let synced = generator::drive(self.world, endpoint, &workload, STORM_OVER);
        let (storm, report) = Box::pin(self.measure(synced)).await?;
        let synced = report.endpoints[0].workloads[0].sync.as_ref().map_or(0, |sync| sync.count);
        ensure!(synced == informers as u64, "{synced} of {informers} informers are in sync");
        Ok(storm)
    }
}

/// The version of a collection, which precedes the items.
fn version(list: &[u8]) -> Option<String> {
    const NAME: &[u8] = br#""resourceVersion":""#;
    let from = memmem::find(list, NAME)? + NAME.len();
    let digits = list[from..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.map(|digit| char::from(*digit)).collect())
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Informers at a gateway that has just started, compared with a warm gateway and with the API server itself.
pub(crate) async fn cold(scene: &Scene<'_>) -> Result<Vec<Line>> {
    let list = Ask::json(format!("{}?resourceVersion=0", scene.collection));
    let (one, _) = Box::pin(scene.measure(scene.upstream.endpoint.get(&list))).await?;
    // A hundred concurrent full lists need more memory than the machine has.
    let direct = if scene.watch_list { Some(scene.storm(&scene.upstream.endpoint).await?) } else { None };
    let gateway = scene.gateway(scene.resource).await?;
    let warm = scene.storm(&gateway.endpoint).await?;
    drop(gateway);
    let gateway = scene.gateway("").await?;
    let cold = scene.storm(&gateway.endpoint).await?;

    let name = format!("cold storm of {} informers on {}", scene.world.sizes.informers, scene.resource);
    let time = |storm: &Storm| milliseconds(storm.time);
    let mut lines = vec![
        Line::new(format!("{name}: until the last is in sync"), "ms", time(&cold))
            .api_server(direct.as_ref().map(time))
            .of_api_server(1.0),
        Line::new("the same at a warm gateway", "ms", time(&warm)),
    ];
    if let (Some(cold_cpu), Some(warm_cpu), Some(one)) = (cold.cpu, warm.cpu, one.cpu) {
        let allowed = milliseconds(warm_cpu) + 1.5 * milliseconds(one);
        let line = Line::new("CPU of the API server: cold", "ms", milliseconds(cold_cpu));
        let direct = direct.and_then(|direct| direct.cpu).map(milliseconds);
        lines.extend([
            line.api_server(direct).goal(milliseconds(cold_cpu) / allowed, 1.0, "x (warm + 1.5 lists)"),
            Line::new("CPU of the API server: warm", "ms", milliseconds(warm_cpu)),
            Line::new("CPU of the API server: one full list", "ms", milliseconds(one)),
            Line::new("watches opened at the API server: cold", "", cold.watches).goal(cold.watches, 2.0, "watches"),
            Line::new("lists at the API server: cold", "", cold.lists),
        ]);
    }
    Ok(lines)
}

/// Watches that resume from a version before the start of the gateway, of a resource that has not changed since.
pub(crate) async fn resumes(scene: &Scene<'_>) -> Result<Vec<Line>> {
    let sizes = &scene.world.sizes;
    let page = scene.upstream.endpoint.get(&Ask::json(format!("{}?limit=1", scene.collection))).await?;
    let version = version(&page).context("a list without a version")?;
    // Another resource is written, so that the fill has a later version.
    scene.world.write_elsewhere(scene.upstream).await?;
    let path =
        format!("{}?watch=1&allowWatchBookmarks=true&timeoutSeconds=600&resourceVersion={version}", scene.collection);

    let (direct, watching) = Box::pin(scene.measure(resumed(&scene.upstream.endpoint, &path, sizes.watchers))).await?;
    drop(watching);
    let gateway = scene.gateway("").await?;
    let before = scene.counted().await?;
    let settled = async {
        let watching = resumed(&gateway.endpoint, &path, sizes.watchers).await?;
        let opened = Instant::now();
        let mut left = scene.counted().await?.open - before.open;
        while left > 1.0 && opened.elapsed() < LEFT_MAX {
            sleep(LOOK_EVERY).await;
            left = scene.counted().await?.open - before.open;
        }
        Ok((watching, left))
    };
    let (through, (_watching, left)) = Box::pin(scene.measure(settled)).await?;
    let name = format!("{} resumes on quiet {} at a restarted gateway", sizes.watchers, scene.resource);
    let line = Line::new(format!("{name}: until they have left the API server"), "ms", milliseconds(through.time));
    let mut lines = vec![line];
    if let (Some(cpu), Some(direct)) = (through.cpu, direct.cpu) {
        let each = through.watches / sizes.watchers as f64;
        let watches = Line::new("watches left at the API server", "", left);
        lines.extend([
            Line::new("CPU of the API server", "ms", milliseconds(cpu)).api_server(Some(milliseconds(direct))),
            // An old API server sends the watches of a quiet resource no version: they stay there until something
            // changes.
            if scene.watch_list { watches.goal(left, 1.0, "watches") } else { watches },
            Line::new("watches opened at the API server", "", through.watches).goal(each, 1.01, "x resumes"),
            Line::new("lists at the API server, heads among them", "", through.lists),
        ]);
    }
    Ok(lines)
}

/// Opens `count` watches on HTTP/2 connections, all at the same time.
async fn resumed(endpoint: &Endpoint, path: &str, count: usize) -> Result<Vec<(Connection, Vec<Incoming>)>> {
    let mut connections = JoinSet::new();
    for first in (0..count).step_by(STREAMS) {
        let (endpoint, ask) = (endpoint.clone(), Ask::json(path).http2());
        connections.spawn(async move {
            let mut connection = endpoint.connect(true).await?;
            let mut bodies = Vec::new();
            for _ in first..count.min(first + STREAMS) {
                bodies.push(connection.open(&ask).await?.into_body());
            }
            Ok::<_, anyhow::Error>((connection, bodies))
        });
    }
    let mut watching = Vec::new();
    while let Some(connection) = connections.join_next().await {
        watching.push(connection??);
    }
    Ok(watching)
}
