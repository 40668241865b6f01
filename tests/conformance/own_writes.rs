//! A client that writes and then reads without a version finds its write, whichever side answers, and whatever happens
//! to upstream.

use std::cell::Cell;

use anyhow::{Context, Result};
use futures_util::future;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    Side,
    certificates::Certificates,
    client::{Ask, Endpoint},
    gateway::{Gateway, unique_agent},
    report::Tally,
    resuming::{self, CONFIG_MAPS, Followed, WIDGETS},
    servers::POLL,
};

/// The writers, each with its own object: their changes are each other's load.
const WRITERS: usize = 4;
/// One of this many reads is looked up in the log.
const LOOKED_UP: usize = 10;

/// The size of the scenario.
#[derive(Clone, Copy)]
struct Sizes {
    /// Acknowledged writes, of all writers together. Each is followed by three reads.
    rounds: usize,
    /// How often upstream is killed meanwhile.
    kills: usize,
}

const GATE: Sizes = Sizes { rounds: 900, kills: 3 };
const FULL: Sizes = Sizes { rounds: 10_000, kills: 20 };

/// The results of one writer.
#[derive(Default)]
struct Found {
    reads: usize,
    stale: Vec<String>,
    looked_up: usize,
    served: usize,
}

/// The server to which the writers write, and the one from which they read.
struct Between<'a> {
    direct: &'a Endpoint,
    gateway: &'a Gateway,
    followed: Followed,
    /// Acknowledged writes, of all writers together.
    made: &'a Cell<usize>,
}

pub(crate) async fn builtin(side: &mut Side, certificates: &Certificates) -> Result<Tally> {
    run(side, CONFIG_MAPS, certificates).await
}

pub(crate) async fn custom(side: &mut Side, certificates: &Certificates) -> Result<Tally> {
    run(side, WIDGETS, certificates).await
}

async fn run(side: &mut Side, followed: Followed, certificates: &Certificates) -> Result<Tally> {
    let (sizes, started) = (if resuming::is_full() { FULL } else { GATE }, Instant::now());
    let gateway = Gateway::proving(&format!("gateway-proving-{}", followed.kind), &side.server, certificates).await?;
    gateway.warm(followed.collection).await?;
    let (direct, made) = (side.server.endpoint.clone(), Cell::new(0));
    let between = Between { direct: &direct, gateway: &gateway, followed, made: &made };
    let writers = future::try_join_all((0..WRITERS).map(|writer| write_and_read(&between, writer, sizes.rounds)));
    let breaks = async {
        for kill in 1..=sizes.kills {
            while made.get() < sizes.rounds * kill / (sizes.kills + 1) {
                sleep(POLL).await;
            }
            side.server.kill_api();
            side.server.start_api()?;
            side.server.ready().await?;
        }
        anyhow::Ok(())
    };
    let (all, ()) = future::try_join(writers, breaks).await?;
    let mut tally = Tally::default();
    let sum = |of: fn(&Found) -> usize| all.iter().map(of).sum::<usize>();
    let (reads, looked_up, served) =
        (sum(|found| found.reads), sum(|found| found.looked_up), sum(|found| found.served));
    for (writer, Found { stale, .. }) in all.into_iter().enumerate() {
        tally.compared(&format!("reads of writer {writer}"), stale);
    }
    tally.holds("memory has answered", served > looked_up / 4, || format!("{served} of {looked_up}"));
    tally.note(format!(
        "{} writes, {reads} reads of them, {} kills of the API server, {:.0?}; \
         of {looked_up} reads looked up, {served} were from memory",
        made.get(),
        sizes.kills,
        started.elapsed(),
    ));
    Ok(tally)
}

/// Writes until all writers together have made `rounds` writes, and reads after each write that was acknowledged.
async fn write_and_read(between: &Between<'_>, writer: usize, rounds: usize) -> Result<Found> {
    let Between { direct, gateway, followed: Followed { collection, part, api_version, kind, .. }, made } = between;
    let name = format!("own-{writer}");
    let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    direct.create(part, &object).await?;
    let (mut found, mut round, one) = (Found::default(), 0, format!("{part}/{name}"));
    while made.get() < rounds {
        // A failed write may have been executed or not: the next one determines the state again.
        round += 1;
        let written = json!({"metadata": {"annotations": {"round": round.to_string()}}});
        if direct.patch(&one, &written).await.is_err() {
            sleep(POLL).await;
            continue;
        }
        made.set(made.get() + 1);
        for path in [collection.to_string(), one.clone(), format!("{collection}?limit=500")] {
            found.read(gateway, &path, &name, round).await?;
        }
    }
    direct.delete(&one).await?;
    Ok(found)
}

impl Found {
    async fn read(&mut self, gateway: &Gateway, path: &str, name: &str, round: u64) -> Result<()> {
        let agent = unique_agent("own");
        let answer = gateway.endpoint.send(&Ask::get(path).header("user-agent", &agent)).await;
        // While upstream is down there is no response.
        let Ok(answer) = answer.and_then(|answer| answer.expect_success(path)) else { return Ok(()) };
        self.reads += 1;
        let is_own = |item: &&Value| item["metadata"]["name"] == name;
        let items = answer["items"].as_array().map_or(std::slice::from_ref(&answer), Vec::as_slice);
        let own = items.iter().find(is_own).with_context(|| format!("{path} has no {name}"))?;
        let shown = &own["metadata"]["annotations"]["round"];
        if shown.as_str().and_then(|text| text.parse().ok()) != Some(round) {
            self.stale.push(format!("{path} after round {round}: {shown}"));
        }
        if self.reads.is_multiple_of(LOOKED_UP) {
            self.looked_up += 1;
            self.served += usize::from(gateway.outcome(&agent).await?.by == "served");
        }
        Ok(())
    }
}
