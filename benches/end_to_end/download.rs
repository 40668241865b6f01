//! The first sync, beside merely downloading the same list.

use std::{path::Path, time::Duration};

use anyhow::{Result, bail};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep};

use crate::{
    client::Ask,
    floor,
    latency::percentile,
    process,
    servers::{self, this_program},
    table::Line,
    world::{LIST, World},
};

/// The API server has thrown away by then what it needed for the list before: that costs it both cores for some 100 ms.
const REST: Duration = Duration::from_secs(2);
/// Says that the list is there.
const DONE: &str = "downloaded";

/// Downloads the list and keeps it until it is killed. Arguments: URL of upstream, folder of the certificates.
pub(crate) async fn download(arguments: &[&str]) -> Result<()> {
    let [upstream, certificates] = arguments else { bail!("upstream and certificates, not {arguments:?}") };
    let certificates = Path::new(certificates);
    let mut connection = floor::endpoint(upstream, certificates)?.connect(false).await?;
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

/// Time from the start of the process until everything is there, and the most memory until then.
type Cost = (Duration, u64);

async fn one_download(world: &World) -> Result<Cost> {
    let done = world.certificates.folder.join(DONE);
    let certificates = world.certificates.folder.display().to_string();
    sleep(REST).await;
    let started = Instant::now();
    let mut process = this_program("download", &["download", &world.upstream.url, &certificates], world.folder())?;
    servers::wait(&mut process, async || done.exists()).await?;
    let cost = (started.elapsed(), process::resident_peak(process.id()));
    std::fs::remove_file(&done)?;
    Ok(cost)
}

async fn one_sync(world: &World) -> Result<Cost> {
    sleep(REST).await;
    let gateway = world.fresh_gateway().await?;
    Ok((gateway.ready_after, process::resident_peak(gateway.id())))
}

/// The middle of as many syncs as downloads.
pub(crate) async fn first_sync(world: &World) -> Result<Vec<Line>> {
    let (mut downloads, mut syncs) = (Vec::new(), Vec::new());
    // The order turns each time: the API server collects its garbage every few lists, which must not always meet the same.
    for _ in 0..world.sizes.sync_turns {
        downloads.push(one_download(world).await?);
        syncs.push(one_sync(world).await?);
        syncs.push(one_sync(world).await?);
        downloads.push(one_download(world).await?);
    }
    let middle = |of: &dyn Fn(&Cost) -> f64| {
        let median = |values: &[Cost]| percentile(&mut values.iter().map(of).collect::<Vec<_>>(), 50);
        (median(&downloads), median(&syncs))
    };
    let (download, sync) = middle(&|(time, _)| time.as_secs_f64() * 1e3);
    let time = Line::new("first sync beside a mere download (floor): time", "ms", sync).floor(download);
    let (download, sync) = middle(&|(_, peak)| *peak as f64 / 1e6);
    let memory = Line::new("the same: most memory", "MB", sync).floor(download);
    Ok(vec![time.times_floor(1.2), memory.times_floor(1.5)])
}
