//! Watches of a quiet resource that continue from a version before the gateway's start: they end soon, and their
//! clients, which resume them from memory, get the changes that follow. Behind a current API server this takes the next
//! bookmark; behind 1.20, whose bookmarks tell no later version than that of the resource's last change, a change.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use futures_util::future;
use serde_json::json;
use tokio::time::{Duration, Instant, sleep};

use crate::{
    Side,
    certificates::Certificates,
    client::{Ask, Endpoint, version_of},
    events::Events,
    gateway::Gateway,
    report::Tally,
    resuming::{self, CONFIG_MAPS, Followed, WIDGETS},
    servers::POLL,
};

/// Watches of all versions, in all encodings.
const GATE: usize = 80;
const FULL: usize = 1_000;
/// The number of versions that clients have, each separated from the next by a write to another resource.
const VERSIONS: usize = 3;
/// Longer than a current API server takes to send a bookmark.
const SETTLED_WITHIN: Duration = Duration::from_secs(120);
const ELSEWHERE: &str = "/apis/conf.example.com/v1/zones/z-0";

pub(crate) async fn builtin(side: &Side, certificates: &Certificates) -> Result<Tally> {
    run(side, CONFIG_MAPS, Told::ByChanges, certificates).await
}

pub(crate) async fn custom(side: &Side, certificates: &Certificates) -> Result<Tally> {
    run(side, WIDGETS, Told::ByBookmarks, certificates).await
}

/// How the clients of a quiet resource learn a later version.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    ByBookmarks,
    ByChanges,
}

async fn run(side: &Side, followed: Followed, told: Told, certificates: &Certificates) -> Result<Tally> {
    let (direct, mut tally) = (&side.server.endpoint, Tally::default());
    let Followed { collection, part, api_version, kind, encodings, .. } = followed;
    let name = "resumed";
    direct.create(part, &json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})).await?;
    // Only its deletion shows that the state at the first version differs from the later one.
    let doomed = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "resumed-doomed"}});
    let before = version_of(&direct.create(part, &doomed).await?);
    direct.delete(&format!("{part}/resumed-doomed")).await?;
    let mut versions = BTreeSet::from([before]);
    for number in 0..VERSIONS {
        let written = direct.patch(ELSEWHERE, &json!({"metadata": {"annotations": {"n": number.to_string()}}})).await?;
        versions.insert(version_of(&written));
    }
    // The gateway's fill has a later version than any client.
    direct.patch(ELSEWHERE, &json!({"metadata": {"annotations": {"n": "last"}}})).await?;

    let folder = &certificates.folder;
    let used = Used::by(direct, collection).await?;
    let gateway = Gateway::start(&format!("gateway-resumes-{kind}"), &side.server, certificates, folder).await?;
    let ask = |version: u64, accept: &str| {
        let query = format!("watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=300");
        let path = format!("{collection}?{query}");
        Ask::get(path).header("accept", accept)
    };
    let different: Vec<_> =
        versions.iter().flat_map(|version| encodings.iter().map(move |accept| (*version, *accept))).collect();
    let count = if resuming::is_full() { FULL } else { GATE };
    let clients: Vec<_> = different.into_iter().cycle().take(count).collect();
    let asks: Vec<_> = clients.iter().map(|(version, accept)| ask(*version, accept)).collect();
    let opened = asks.iter().map(|ask| Events::open(&gateway.endpoint, ask));
    let (watches, started) = (future::try_join_all(opened).await?, Instant::now());
    if told == Told::ByChanges {
        direct.patch(&format!("{part}/{name}"), &json!({"metadata": {"labels": {"told": "yes"}}})).await?;
    }

    // The gateway has one watch of its own in each encoding.
    let (own, mut now) = (encodings.len() as f64, Used::by(direct, collection).await?);
    while now.watches > used.watches + own && started.elapsed() < SETTLED_WITHIN {
        sleep(POLL * 20).await;
        now = Used::by(direct, collection).await?;
    }
    let is_none_left = now.watches <= used.watches + own;
    tally.holds("no client's watch is left at the API server", is_none_left, || format!("{}", now.watches));
    let admin = Endpoint::plain(&format!("http://{}", gateway.admin().context("no admin port")?))?;
    let over = sum(&admin.get("/metrics").await?.text(), "kube_fanout_relayed_watches_ended_total", &[]);
    let (took, cpu) = (started.elapsed(), now.cpu - used.cpu);
    tally.note(format!(
        "{count} resumes have left the API server after {took:.1?}, {over} of them were relayed until then; \
         {cpu:.1} s of CPU of the API server"
    ));

    let changed = direct.patch(&format!("{part}/{name}"), &json!({"metadata": {"labels": {"resumed": "yes"}}})).await?;
    let changed = version_of(&changed);
    let mut expected = BTreeMap::new();
    for version in versions {
        let theirs = Events::open(direct, &ask(version, encodings[0])).await?;
        expected.insert(version, until(changed, direct, |after| ask(after, encodings[0]), (version, theirs)).await?);
    }
    for ((version, accept), watch) in clients.into_iter().zip(watches) {
        let told = until(changed, &gateway.endpoint, |after| ask(after, accept), (version, watch)).await?;
        tally.equal(&format!("versions of the events after {version}"), &expected[&version], &told);
    }
    direct.delete(&format!("{part}/{name}")).await?;
    Ok(tally)
}

/// The versions of the changes up to `last` that a client is told. It resumes its watch, which began after the version
/// with it, when that ends.
async fn until(
    last: u64,
    endpoint: &Endpoint,
    ask: impl Fn(u64) -> Ask,
    (mut after, mut watch): (u64, Events),
) -> Result<Vec<u64>> {
    let mut told = Vec::new();
    while told.last() != Some(&last) {
        match watch.next().await? {
            Some(event) => {
                after = event.version;
                if !event.is_timed() {
                    told.push(event.version);
                }
            }
            None => watch = Events::open(endpoint, &ask(after)).await?,
        }
    }
    Ok(told)
}

/// The sum of a metric's values with these labels.
pub(crate) fn sum(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let is_wanted = |line: &&str| line.starts_with(name) && labels.iter().all(|label| line.contains(label));
    metrics.lines().filter(is_wanted).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// The load of an API server.
pub(crate) struct Used {
    /// Seconds since its start.
    pub(crate) cpu: f64,
    /// Open watches of the resource.
    pub(crate) watches: f64,
}

impl Used {
    pub(crate) async fn by(server: &Endpoint, collection: &str) -> Result<Self> {
        let metrics = server.get("/metrics").await?.text();
        let plural = collection.rsplit('/').next().unwrap_or_default();
        // Named a gauge by old servers, and requests by current ones.
        let labels = [&*format!("resource=\"{plural}\""), "verb=\"WATCH\""];
        let watches = sum(&metrics, "apiserver_longrunning_", &labels);
        Ok(Self { cpu: sum(&metrics, "process_cpu_seconds_total", &[]), watches })
    }
}
