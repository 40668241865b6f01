//! A client that writes and then reads without a version finds its write, whichever side answers, and whatever happens
//! to upstream.

use anyhow::{Context, Result};
use futures_util::future;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    Side,
    certificates::Certificates,
    client::{Ask, Endpoint},
    gateway::{Gateway, unique_agent},
    report::Tally,
    servers::POLL,
};

const COLLECTION: &str = "/api/v1/configmaps";
const PART: &str = "/api/v1/namespaces/conf/configmaps";
const WRITERS: usize = 4;
/// Rounds of each writer in each phase. Upstream is killed once per phase, while the writers continue.
const ROUNDS: u64 = 60;
const PHASES: u64 = 4;
/// One of this many reads is looked up in the log.
const LOOKED_UP: usize = 10;

/// The results of one writer.
#[derive(Default)]
struct Found {
    reads: usize,
    stale: Vec<String>,
    looked_up: usize,
    served: usize,
}

pub(crate) async fn run(side: &mut Side, certificates: &Certificates) -> Result<Tally> {
    let gateway = Gateway::proving("gateway-proving", &side.server, certificates).await?;
    gateway.warm(COLLECTION).await?;
    let direct = side.server.endpoint.clone();
    let rounds = future::try_join_all((0..WRITERS).map(|writer| write_and_read(&gateway, &direct, writer)));
    let breaks = async {
        for _ in 1..PHASES {
            sleep(POLL * 80).await;
            side.server.kill_api();
            side.server.start_api()?;
            side.server.ready().await?;
        }
        anyhow::Ok(())
    };
    let (all, ()) = future::try_join(rounds, breaks).await?;
    let mut tally = Tally::default();
    let sum = |of: fn(&Found) -> usize| all.iter().map(of).sum::<usize>();
    let (reads, looked_up, served) =
        (sum(|found| found.reads), sum(|found| found.looked_up), sum(|found| found.served));
    for (writer, Found { stale, .. }) in all.into_iter().enumerate() {
        tally.compared(&format!("reads of writer {writer}"), stale);
    }
    tally.holds("memory has answered", served > looked_up / 4, || format!("{served} of {looked_up}"));
    tally.note(format!("{reads} reads of own writes; of {looked_up} looked up, {served} were from memory"));
    Ok(tally)
}

async fn write_and_read(gateway: &Gateway, direct: &Endpoint, writer: usize) -> Result<Found> {
    let name = format!("own-{writer}");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"round": "0"}});
    direct.create(PART, &object).await?;
    let (mut found, mut round, one) = (Found::default(), 0, format!("{PART}/{name}"));
    while round < ROUNDS * PHASES {
        // A failed write may have been executed or not: the next one determines the state again.
        round += 1;
        if direct.patch(&one, &json!({"data": {"round": round.to_string()}})).await.is_err() {
            sleep(POLL).await;
            continue;
        }
        for path in [COLLECTION.to_owned(), one.clone(), format!("{COLLECTION}?limit=500")] {
            found.read(gateway, &path, &name, round).await?;
        }
    }
    Ok(found)
}

impl Found {
    async fn read(&mut self, gateway: &Gateway, path: &str, name: &str, round: u64) -> Result<()> {
        let agent = unique_agent("own");
        let answer = gateway.endpoint.send(&Ask::get(path).header("user-agent", &agent)).await;
        // While upstream is down there is no response.
        let Ok(answer) = answer.and_then(|answer| answer.expect_success(path)) else { return Ok(()) };
        self.reads += 1;
        let is_own = |item: &&serde_json::Value| item["metadata"]["name"] == name;
        let items = answer["items"].as_array().map_or(std::slice::from_ref(&answer), Vec::as_slice);
        let own = items.iter().find(is_own).with_context(|| format!("{path} has no {name}"))?;
        if own["data"]["round"].as_str().and_then(|text| text.parse().ok()) != Some(round) {
            self.stale.push(format!("{path} after round {round}: {}", own["data"]));
        }
        if self.reads.is_multiple_of(LOOKED_UP) {
            self.looked_up += 1;
            self.served += usize::from(gateway.outcome(&agent).await?.by == "served");
        }
        Ok(())
    }
}
