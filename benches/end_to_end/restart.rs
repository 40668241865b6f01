//! An API server restarts under informers: the time and the CPU that it needs until all informers are in sync again.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use http_body_util::BodyExt;
use memchr::memmem;
use serde_json::json;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    client::{Ask, Connection, Endpoint},
    process,
    servers::{Gateway, Server},
    table::Line,
    world::{PODS, World},
};

/// The delay before a client tries again.
const RETRY: Duration = Duration::from_millis(200);
/// The maximum time until all informers are in sync.
const IN_SYNC_MAX: Duration = Duration::from_secs(600);
/// The number of changes while the API server is down. After its restart it does not have them in its history.
const CHANGES: usize = 20;
const COLLECTION: &str = "/api/v1/pods";

/// The cost of a restart until the last informer was in sync.
#[derive(Clone, Copy, Debug)]
struct Restart {
    /// The number of informers.
    informers: usize,
    /// Measured from the kill of the API server.
    time: Duration,
    /// The new API server, since its start.
    api_server: Cost,
    gateway: Option<Cost>,
    /// The lists that informers made.
    lists: usize,
}

#[derive(Clone, Copy, Debug)]
struct Cost {
    cpu: Duration,
    /// The peak of resident memory, in bytes.
    memory: u64,
}

impl Cost {
    fn of(process: u32) -> Self {
        Self { cpu: process::cpu(process), memory: process::resident_peak(process) }
    }
}

/// The gateway between the informers and the API server, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Nothing,
    Gateway { bridge: bool },
}

/// With a bridge, without a bridge, and without a gateway. Not measured with `sim`, which cannot be restarted here.
pub(crate) async fn under_informers(world: &World) -> Result<Vec<Line>> {
    if world.upstream.real.is_none() {
        return Ok(Vec::new());
    }
    let sizes = &world.sizes;
    let idle = Box::pin(restart(world, Between::Nothing, 0)).await?;
    let variants = [
        ("cache.bridge", Between::Gateway { bridge: true }, sizes.restarted),
        ("without cache.bridge", Between::Gateway { bridge: false }, sizes.restarted),
        ("without a gateway", Between::Nothing, sizes.restarted_directly),
    ];
    let name = format!("API server restarts under informers of {} pods", sizes.pods);
    let mut lines = Vec::new();
    for (how, between, informers) in variants {
        let restart = Box::pin(restart(world, between, informers)).await?;
        lines.extend(restart.lines(&format!("{name}, {informers}, {how}"), idle));
    }
    lines.extend(idle.lines(&format!("{name}, none"), idle));
    Ok(lines)
}

impl Restart {
    /// `idle` is a restart without informers.
    fn lines(&self, name: &str, idle: Self) -> Vec<Line> {
        let seconds = |duration: Duration| duration.as_secs_f64();
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let mut lines = vec![
            Line::new(format!("{name}: until all are in sync"), "s", seconds(self.time)),
            Line::new("the same: CPU of the API server", "s", seconds(self.api_server.cpu)),
            Line::new("the same: most memory of the API server", "MB", megabytes(self.api_server.memory)),
        ];
        if let Some(gateway) = self.gateway {
            lines.extend([
                Line::new("the same: CPU of the gateway", "s", seconds(gateway.cpu)),
                Line::new("the same: most memory of the gateway", "MB", megabytes(gateway.memory)),
            ]);
        }
        if self.informers > 0 {
            let cpu = seconds(self.api_server.cpu.saturating_sub(idle.api_server.cpu));
            let each = cpu * 1e3 / self.informers as f64;
            lines.extend([
                Line::new("the same: beyond the restart alone, for each informer", "ms CPU", each),
                Line::new("the same: lists by informers", "", self.lists as f64),
            ]);
        }
        lines
    }
}

/// Kills and restarts a second API server of the same storage, while changes are made through the first one.
async fn restart(world: &World, between: Between, count: usize) -> Result<Restart> {
    let mut second = world.upstream.second(None, &world.certificates, world.folder()).await?;
    let gateway = match between {
        Between::Nothing => None,
        Between::Gateway { bridge } => {
            Some(Server::gateway(Gateway { bridge, ..PODS }, &second, &world.certificates, world.folder()).await?)
        }
    };
    let through = gateway.as_ref().map_or(&second.endpoint, |gateway| &gateway.endpoint).clone();
    let mut writer = world.upstream.endpoint.connect(false).await?;
    let name = format!("restart-{}", crate::pods::now());
    let (watchers, mut watching) = watch::channel(0);
    // The version that informers have: that of a list from the server that they use.
    let list = through.get(&Ask::json(format!("{COLLECTION}?resourceVersion=0"))).await?;
    let from = version(&list).context("a list without a version")?;
    let mut informers = JoinSet::new();
    for _ in 0..count {
        let informer =
            Informer { endpoint: through.clone(), version: from, last: format!("\"{name}-last\""), lists: 0 };
        informers.spawn(informer.run(watchers.clone()));
    }
    watching.wait_for(|watching| *watching >= count).await?;

    let (killed, used) = (Instant::now(), gateway.as_ref().map(|gateway| process::cpu(gateway.id())));
    second.kill()?;
    for number in 0..CHANGES {
        make(&mut writer, &format!("{name}-{number}")).await?;
    }
    let second = world.upstream.second(Some(second), &world.certificates, world.folder()).await?;
    make(&mut writer, &format!("{name}-last")).await?;
    let mut lists = 0;
    while let Some(informer) = informers.join_next().await {
        lists += informer??;
    }
    let time = killed.elapsed();
    let api_server = Cost::of(second.real.context("not a real API server")?);
    let gateway = gateway.as_ref().map(|gateway| Cost::of(gateway.id()));
    let gateway = gateway.zip(used).map(|(now, before)| Cost { cpu: now.cpu - before, ..now });
    Ok(Restart { informers: count, time, api_server, gateway, lists })
}

async fn make(writer: &mut Connection, name: &str) -> Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "load-0"},
        "spec": {"containers": [{"name": "main", "image": "example.com/main"}]},
    });
    writer.write(Method::POST, "/api/v1/namespaces/load-0/pods", &pod).await
}

/// An informer by client-go's rules that already has the objects: continues from the last version after a watch has
/// ended, lists after a 410.
struct Informer {
    endpoint: Endpoint,
    version: u64,
    /// The name of the last object, in quotes.
    last: String,
    lists: usize,
}

/// How a watch ended.
enum End {
    InSync,
    Expired,
    Broken,
}

impl Informer {
    /// Returns the number of lists until it has the last object.
    async fn run(mut self, watching: watch::Sender<usize>) -> Result<usize> {
        let (started, mut is_first) = (Instant::now(), true);
        loop {
            ensure!(started.elapsed() < IN_SYNC_MAX, "an informer is not in sync after {IN_SYNC_MAX:?}");
            match self.watch(&watching, &mut is_first).await {
                Ok(End::InSync) => return Ok(self.lists),
                Ok(End::Expired) => match self.list().await {
                    Ok(true) => return Ok(self.lists),
                    Ok(false) => {}
                    Err(_) => sleep(RETRY).await,
                },
                Ok(End::Broken) | Err(_) => sleep(RETRY).await,
            }
        }
    }

    async fn watch(&mut self, watching: &watch::Sender<usize>, is_first: &mut bool) -> Result<End> {
        let mut connection = self.endpoint.connect(false).await?;
        let path = format!(
            "{COLLECTION}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion={}",
            self.version
        );
        let mut body = connection.open(&Ask::json(path)).await?.into_body();
        if std::mem::take(is_first) {
            watching.send_modify(|count| *count += 1);
        }
        let mut begun = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            let Some(data) = frame.data_ref() else { continue };
            begun.extend_from_slice(data);
            while let Some(end) = memchr::memchr(b'\n', &begun) {
                let event: Vec<_> = begun.drain(..=end).collect();
                if event.starts_with(br#"{"type":"ERROR""#) {
                    return Ok(End::Expired);
                }
                self.version = version(&event).context("an event without a version")?;
                if memmem::find(&event, self.last.as_bytes()).is_some() {
                    return Ok(End::InSync);
                }
            }
        }
        Ok(End::Broken)
    }

    /// Lists at no older version than the known one, as client-go does after a 410. Returns whether the list has the
    /// last object.
    async fn list(&mut self) -> Result<bool> {
        let mut connection = self.endpoint.connect(false).await?;
        let path = format!("{COLLECTION}?resourceVersion={}", self.version);
        let mut body = connection.open(&Ask::json(path)).await?.into_body();
        let (mut head, mut tail, mut has_last) = (Vec::new(), Vec::new(), false);
        while let Some(frame) = body.frame().await {
            let frame = frame?;
            let Some(data) = frame.data_ref() else { continue };
            if head.len() < 512 {
                head.extend_from_slice(data);
            }
            // The name may be split between two frames.
            tail.extend_from_slice(&data[..data.len().min(self.last.len())]);
            has_last |= [&data[..], &tail].iter().any(|text| memmem::find(text, self.last.as_bytes()).is_some());
            tail = data[data.len().saturating_sub(self.last.len())..].to_vec();
        }
        self.version = version(&head).context("a list without a version")?;
        self.lists += 1;
        Ok(has_last)
    }
}

fn version(text: &[u8]) -> Option<u64> {
    const NAME: &[u8] = br#""resourceVersion":""#;
    let from = memmem::find(text, NAME)? + NAME.len();
    let digits = text[from..].iter().take_while(|byte| byte.is_ascii_digit());
    digits.map(|digit| char::from(*digit)).collect::<String>().parse().ok()
}
