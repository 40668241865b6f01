//! The first sync compared with a mere download of the same list.

use std::{path::Path, time::Duration};

use anyhow::{Result, bail};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep};

use crate::{
    baseline,
    client::Ask,
    latency::percentile,
    process,
    processes::Process,
    servers::{self, this_program},
    table::Line,
    world::{LIST, World},
};

/// A pause before each measurement, in which the API server collects the garbage of the previous list. That uses both
/// cores for some 100 ms.
const REST: Duration = Duration::from_secs(2);
/// The name of the file that shows the end of the download.
const DONE: &str = "downloaded";

/// Downloads the list and keeps it in memory until the process is killed. Arguments: the URL of upstream and the folder
/// of the certificates.
pub(crate) async fn download(arguments: &[&str]) -> Result<()> {
    let [upstream, certificates] = arguments else { bail!("upstream and certificates, not {arguments:?}") };
    let certificates = Path::new(certificates);
    let mut connection = baseline::endpoint(upstream, certificates)?.connect(false).await?;
    let mut body = connection.open(&Ask::json(LIST)).await?.into_body();
    let mut list = Vec::new();
    while let Some(frame) = body.frame().await {
        list.push(frame?.into_data());
    }
    std::fs::write(certificates.join(DONE), "")?;
    sleep(Duration::from_secs(3600)).await;
    drop(list);
    Ok(())
}

/// What a process has used from its start until it has read everything.
#[derive(Clone, Copy, Debug)]
struct Cost {
    time: Duration,
    cpu: Duration,
    /// The peak of resident memory, in bytes.
    memory: u64,
}

impl Cost {
    fn of(process: &Process, time: Duration) -> Self {
        Self { time, cpu: process::cpu(process.id()), memory: process::resident_peak(process.id()) }
    }
}

async fn one_download(world: &World) -> Result<Cost> {
    let done = world.certificates.folder.join(DONE);
    let certificates = world.certificates.folder.display().to_string();
    sleep(REST).await;
    let started = Instant::now();
    let mut process = this_program("download", &["download", &world.upstream.url, &certificates], world.folder())?;
    servers::wait(&mut process, async || done.exists()).await?;
    let cost = Cost::of(&process, started.elapsed());
    std::fs::remove_file(&done)?;
    Ok(cost)
}

async fn one_sync(world: &World) -> Result<Cost> {
    sleep(REST).await;
    let gateway = world.fresh_gateway().await?;
    Ok(Cost::of(&gateway.process, gateway.ready_after))
}

/// The medians of as many syncs as downloads.
pub(crate) async fn first_sync(world: &World) -> Result<Vec<Line>> {
    let (mut downloads, mut syncs) = (Vec::new(), Vec::new());
    // The order alternates: the API server collects its garbage every few lists, which must not always affect the same
    // side.
    for _ in 0..world.sizes.sync_turns {
        downloads.push(one_download(world).await?);
        syncs.push(one_sync(world).await?);
        syncs.push(one_sync(world).await?);
        downloads.push(one_download(world).await?);
    }
    let line = |name: &str, unit, percent, of: &dyn Fn(&Cost) -> f64| {
        let value = |costs: &[Cost]| percentile(&mut costs.iter().map(of).collect::<Vec<_>>(), percent);
        Line::new(name, unit, value(&syncs)).baseline(value(&downloads))
    };
    let milliseconds = |duration: Duration| duration.as_secs_f64() * 1e3;
    Ok(vec![
        line("first sync beside a mere download (baseline): time", "ms", 50, &|cost| milliseconds(cost.time))
            .times_baseline(1.2),
        line("the same: the fastest of them", "ms", 0, &|cost| milliseconds(cost.time)),
        line("the same: CPU of the gateway and of the downloader", "ms", 50, &|cost| milliseconds(cost.cpu)),
        line("the same: most memory", "MB", 50, &|cost| cost.memory as f64 / 1e6).times_baseline(1.5),
    ])
}
