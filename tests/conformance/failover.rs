//! A gateway with two API servers of one storage, one of which at a time is killed and started again, or frozen, under
//! informers of every kind: each informer lists once, and receives every change once and in order. Forwarded reads are
//! answered all the time. A third server, of another cluster, is refused.
//!
//! Changes are made through a further API server of the storage, whose own watches are the truth.

use anyhow::{Context, Result, ensure};
use futures_util::future;
use tokio::time::Instant;

use crate::{
    Side,
    certificates::Certificates,
    client::version_of,
    gateway::{Gateway, PATIENCE},
    report::Tally,
    resuming::{self, Between, CONFIG_MAPS, Followed, SELECTORS, Seen, record},
    rollouts,
    servers::Server,
};

/// The size of the scenario.
#[derive(Clone, Copy)]
struct Sizes {
    informers: usize,
    /// Each server is killed once in a round, and one of them is frozen.
    rounds: usize,
}

const GATE: Sizes = Sizes { informers: 40, rounds: 1 };
const FULL: Sizes = Sizes { informers: 100, rounds: 5 };
/// The number of changes between two faults.
const CHANGES: usize = 60;
/// The number of forwarded reads after each fault.
const READS: usize = 20;

/// The servers of the gateway, and the truth.
struct Cluster<'a> {
    servers: [Server; 2],
    direct: &'a Server,
    gateway: &'a Gateway,
    followed: Followed,
    /// Forwarded reads that were not answered.
    unanswered: Vec<String>,
    forwarded: usize,
}

pub(crate) async fn run(side: &Side, certificates: &Certificates) -> Result<Tally> {
    let (mut tally, sizes) = (Tally::default(), if resuming::is_full() { FULL } else { GATE });
    let direct = &side.server;
    let followed = CONFIG_MAPS.at(direct);
    let mut servers = [direct.beside(certificates)?, direct.beside(certificates)?];
    let mut other = direct.apart(certificates)?;
    for server in servers.iter_mut().chain([&mut other]) {
        server.ready().await?;
    }
    let [one, two] = &servers;
    let gateway = Gateway::start_among("failover", &[one, two, &other], certificates).await?;
    gateway.in_use(2).await?;
    tally.equal("servers of another cluster", &[1], &gateway.servers(["foreign"]).await?);
    for encoding in followed.encodings {
        gateway.warm_as(followed.collection, encoding).await?;
    }

    let from = version_of(&direct.endpoint.json(&format!("{}?limit=1", followed.collection)).await?);
    let truth = future::try_join_all(SELECTORS.map(|selector| record(&direct.endpoint, followed, selector, from)));
    let between = Between { gateway: &gateway.endpoint, direct: &direct.endpoint };
    let mut cluster = Cluster { servers, direct, gateway: &gateway, followed, unanswered: Vec::new(), forwarded: 0 };
    let script = async |seen| cluster.one_at_a_time(sizes, seen).await;
    let informers = resuming::informers(sizes.informers, followed, between, &mut tally, script);
    let (truth, (changes, told)) = future::try_join(truth, informers).await?;

    rollouts::compare(&mut tally, truth, &told);
    tally.compared("forwarded reads", cluster.unanswered);
    tally.equal("servers of another cluster at the end", &[1], &gateway.servers(["foreign"]).await?);
    let events: usize = told.iter().map(|told| told.events).sum();
    let Sizes { informers, rounds } = sizes;
    tally.note(format!(
        "{informers} informers, {rounds} kills of each server and {rounds} freezes, {changes} changes, \
         {events} events, {} forwarded reads",
        cluster.forwarded
    ));
    Ok(tally)
}

impl Cluster<'_> {
    /// Gives the changes that were made.
    async fn one_at_a_time(&mut self, sizes: Sizes, mut seen: Seen) -> Result<usize> {
        seen.watching.wait_for(|watching| *watching >= sizes.informers).await?;
        for round in 0..sizes.rounds {
            for down in 0..self.servers.len() {
                seen.changes(CHANGES).await?;
                self.servers[down].kill_api();
                self.goes_on(&mut seen).await?;
                self.servers[down].start_api()?;
                self.servers[down].ready().await?;
                self.gateway.in_use(2).await?;
            }
            seen.changes(CHANGES).await?;
            let frozen = &self.servers[round % 2];
            frozen.freeze_api(true)?;
            self.goes_on(&mut seen).await?;
            self.servers[round % 2].freeze_api(false)?;
            self.gateway.in_use(2).await?;
        }
        seen.changes(CHANGES).await?;
        let made = *seen.made.borrow();
        Ok(made)
    }

    /// Returns when the gateway has followed further changes, and has answered reads that it forwards.
    async fn goes_on(&mut self, seen: &mut Seen) -> Result<()> {
        seen.changes(CHANGES).await?;
        let head = self.direct.endpoint.json(&format!("{}?limit=1", self.followed.collection)).await?;
        for encoding in self.followed.encodings {
            let started = Instant::now();
            while self.gateway.reached_as(self.followed.collection, version_of(&head), encoding).await.is_err() {
                ensure!(started.elapsed() < PATIENCE * 3, "{encoding} does not reach {}", version_of(&head));
            }
        }
        for _ in 0..READS {
            let answer = self.gateway.endpoint.get("/api/v1/namespaces/conf/events").await;
            let status = answer.context("a forwarded read").map(|answer| answer.status);
            self.forwarded += 1;
            if !matches!(status, Ok(200)) {
                self.unanswered.push(format!("{status:?}"));
            }
        }
        Ok(())
    }
}
