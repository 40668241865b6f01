//! A lone gateway that keeps its states (`cache.persist`) is killed again and again under informers of every kind: none
//! of them lists, and neither does the gateway.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::Path,
    time::SystemTime,
};

use anyhow::{Context, Result, ensure};
use tokio::time::{Duration, Instant, sleep};

use crate::{
    Side,
    certificates::Certificates,
    client::{Endpoint, version_of},
    gateway::Gateway,
    report::Tally,
    resumes::sum,
    resuming::{self, Between, CONFIG_MAPS, Followed, Seen, Told},
    servers::POLL,
};

/// The size of the scenario.
#[derive(Clone, Copy)]
struct Sizes {
    informers: usize,
    kills: usize,
}

const GATE: Sizes = Sizes { informers: 40, kills: 2 };
const FULL: Sizes = Sizes { informers: 60, kills: 10 };
/// The number of changes after a state was written, which are in no file when the gateway is killed.
const CHANGES: usize = 60;
/// Longer than the time between two states.
const WRITTEN_WITHIN: Duration = Duration::from_secs(120);

pub(crate) async fn run(side: &Side, certificates: &Certificates) -> Result<Tally> {
    let (mut tally, sizes) = (Tally::default(), if resuming::is_full() { FULL } else { GATE });
    let (server, followed) = (&side.server, CONFIG_MAPS.at(&side.server));
    let folder = certificates.folder.join("persisted");
    DirBuilder::new().mode(0o700).create(&folder)?;
    let fields = format!("cache: {{persist: {{path: \"{}\"}}}}", folder.display());
    let gateway = Gateway::start_with("gateway-persist", &fields, server, certificates, &certificates.folder).await?;
    let endpoint = gateway.endpoint.clone();
    let between = Between { gateway: &endpoint, direct: &server.endpoint };
    let mut killed = Killed { gateway, folder: &folder, direct: &server.endpoint, followed, fills: Vec::new() };
    let script = async |seen| killed.again_and_again(sizes, seen).await;
    let (changes, told) = resuming::informers(sizes.informers, followed, between, &mut tally, script).await?;

    let sum = |count: fn(&Told) -> usize| told.iter().map(count).sum::<usize>();
    tally.equal("lists of the informers", &sizes.informers, &sum(|told| told.lists));
    tally.equal("watches that expired", &0, &sum(|told| told.expired.len()));
    let expected = vec![[0.0, followed.encodings.len() as f64]; sizes.kills];
    tally.equal("fills by the API server, and from what was kept", &expected, &killed.fills);
    let (watches, events) = (sum(|told| told.watches), sum(|told| told.events));
    let Sizes { informers, kills } = sizes;
    tally.note(format!(
        "{informers} informers, {kills} kills of the gateway, {changes} changes: {watches} watches, {events} events"
    ));
    Ok(tally)
}

struct Killed<'a> {
    gateway: Gateway,
    folder: &'a Path,
    direct: &'a Endpoint,
    followed: Followed,
    /// Of each gateway but the first.
    fills: Vec<[f64; 2]>,
}

impl Killed<'_> {
    /// Gives the changes.
    async fn again_and_again(&mut self, sizes: Sizes, mut seen: Seen) -> Result<usize> {
        let Followed { collection, encodings, .. } = self.followed;
        seen.watching.wait_for(|watching| *watching >= sizes.informers).await?;
        for _ in 0..sizes.kills {
            self.written().await?;
            seen.changes(CHANGES).await?;
            self.gateway.crash()?;
            let head = self.direct.json(&format!("{collection}?limit=1")).await?;
            for encoding in encodings {
                self.gateway.warm_as(collection, encoding).await?;
                self.gateway.reached_as(collection, version_of(&head), encoding).await?;
            }
            let fills = self.fills().await?;
            self.fills.push(fills);
        }
        let made = *seen.made.borrow();
        Ok(made)
    }

    /// Returns when the states of the collection have been written after this moment.
    async fn written(&self) -> Result<()> {
        let (now, started) = (SystemTime::now(), Instant::now());
        let is_new = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).is_ok_and(|at| at > now);
        let is_state = |path: &Path| path.extension().is_some_and(|name| name == "state");
        loop {
            let files = fs::read_dir(self.folder.join("states")).context("no folder of states")?;
            let states = files.filter_map(|file| Some(file.ok()?.path())).filter(|path| is_state(path) && is_new(path));
            if states.count() >= self.followed.encodings.len() {
                return Ok(());
            }
            ensure!(started.elapsed() < WRITTEN_WITHIN, "no states are written");
            sleep(POLL).await;
        }
    }

    /// How often the running gateway has filled a cache of the collection from the API server, and from what was kept.
    async fn fills(&self) -> Result<[f64; 2]> {
        let admin = Endpoint::plain(&format!("http://{}", self.gateway.admin().context("no admin port")?))?;
        let metrics = admin.get("/metrics").await?.text();
        let of = |source: &str| {
            sum(
                &metrics,
                "kube_fanout_cache_fills_total",
                &["resource=\"configmaps\"", &format!("source=\"{source}\"")],
            )
        };
        Ok([of("upstream"), of("kept")])
    }
}
