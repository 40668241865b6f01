//! Two gateways behind one address are rolled and killed again and again under informers of every kind: each informer
//! lists once, and receives every change once and in order.
//!
//! The events of each informer are compared with those of watches of the API server itself during the same time.

use std::collections::{BTreeMap, VecDeque};

use anyhow::{Context, Result};
use futures_util::future;

use crate::{
    Side,
    balancer::Balancer,
    certificates::Certificates,
    client::version_of,
    gateway::Gateway,
    report::Tally,
    resuming::{self, Between, CONFIG_MAPS, Followed, Record, SELECTORS, Seen, Told, WIDGETS, record},
};

/// Watches end within the first half of this time.
const DRAIN: &str = "drain: {timeout: 2s}";
/// Gateways behind the address.
const REPLICAS: usize = 2;
/// The number of changes between two rolls or kills.
const CHANGES: usize = 60;

/// The size of the scenario.
#[derive(Clone, Copy)]
struct Sizes {
    informers: usize,
    /// The number of rounds; each rolls all replicas, then kills one.
    rounds: usize,
}

const GATE: Sizes = Sizes { informers: 40, rounds: 2 };
const FULL: Sizes = Sizes { informers: 100, rounds: 5 };

/// Built-in types, in both encodings; with watch-lists where the server has them.
pub(crate) async fn builtin(side: &Side, certificates: &Certificates) -> Result<Tally> {
    run(side, CONFIG_MAPS.at(&side.server), certificates).await
}

/// Custom resources, with watch-lists.
pub(crate) async fn custom(side: &Side, certificates: &Certificates) -> Result<Tally> {
    run(side, WIDGETS, certificates).await
}

async fn run(side: &Side, followed: Followed, certificates: &Certificates) -> Result<Tally> {
    let (mut tally, sizes) = (Tally::default(), if resuming::is_full() { FULL } else { GATE });
    let direct = &side.server.endpoint;
    let balancer = Balancer::listen().await?;
    let mut deployment = Deployment { side, certificates, balancer: &balancer, gateways: VecDeque::new(), started: 0 };
    for _ in 0..REPLICAS {
        deployment.add().await?;
    }
    let from = version_of(&direct.json(&format!("{}?limit=1", followed.collection)).await?);
    let truth = future::try_join_all(SELECTORS.map(|selector| record(direct, followed, selector, from)));
    let between = Between { gateway: &balancer.endpoint, direct };
    let script = async |seen| deployment.rolled_and_killed(sizes, seen).await;
    let informers = resuming::informers(sizes.informers, followed, between, &mut tally, script);
    let (truth, (changes, told)) = tokio::select! {
        never = balancer.run() => match never? {},
        done = future::try_join(truth, informers) => done?,
    };

    compare(&mut tally, truth, &told);
    let Sizes { informers, rounds } = sizes;
    let (watches, events) =
        told.iter().fold((0, 0), |(watches, events), told| (watches + told.watches, events + told.events));
    tally.note(format!(
        "{informers} informers, {REPLICAS} gateways rolled {rounds} times and killed {rounds} times, \
         {changes} changes: {watches} watches, {events} events"
    ));
    Ok(tally)
}

/// Compares what each informer was told with what the API server itself told, for each of the selectors; and its lists
/// with one.
pub(crate) fn compare(tally: &mut Tally, truth: Vec<Record>, told: &[Told]) {
    let truth: BTreeMap<_, _> = SELECTORS.into_iter().zip(truth).collect();
    for (number, told) in told.iter().enumerate() {
        let happened = truth[told.selector].iter().filter(|(_, version)| *version > told.from);
        let difference = first_difference(&happened.copied().collect(), &told.record);
        tally.compared(&format!("what informer {number} was told"), difference);
        tally.equal(&format!("lists of informer {number}"), &(1, &Vec::new()), &(told.lists, &told.expired));
    }
}

fn first_difference(happened: &Record, told: &Record) -> Option<String> {
    let at = (0..happened.len().max(told.len())).find(|at| happened.get(*at) != told.get(*at))?;
    let around = |record: &Record| record.iter().skip(at.saturating_sub(1)).take(3).copied().collect::<Vec<_>>();
    Some(format!("from event {at} on: {:?} instead of {:?}", around(told), around(happened)))
}

/// Gateways behind one address, the oldest first.
struct Deployment<'a> {
    side: &'a Side,
    certificates: &'a Certificates,
    balancer: &'a Balancer,
    gateways: VecDeque<Gateway>,
    started: usize,
}

impl Deployment<'_> {
    /// Adds a replica with empty memory. Returns when it accepts requests.
    async fn add(&mut self) -> Result<()> {
        let Side { server, gateway } = self.side;
        let name = format!("replica-{}-{}", gateway.endpoint.base.rsplit(':').next().unwrap_or_default(), self.started);
        self.started += 1;
        let gateway = Gateway::start_with(&name, DRAIN, server, self.certificates, &self.certificates.folder).await?;
        self.balancer.add(&gateway.endpoint)?;
        self.gateways.push_back(gateway);
        Ok(())
    }

    /// Replaces the oldest replica as a rolling update does: the new one accepts requests before the old one ends.
    async fn roll(&mut self) -> Result<()> {
        for _ in 0..REPLICAS {
            self.add().await?;
            let oldest = self.gateways.pop_front().context("no gateway")?;
            self.balancer.remove(&oldest.endpoint)?;
            oldest.end().await?;
        }
        Ok(())
    }

    /// Returns the number of changes.
    async fn rolled_and_killed(&mut self, sizes: Sizes, mut seen: Seen) -> Result<usize> {
        seen.watching.wait_for(|watching| *watching >= sizes.informers).await?;
        for round in 0..sizes.rounds {
            seen.changes(CHANGES).await?;
            self.roll().await?;
            seen.changes(CHANGES).await?;
            self.gateways[round % REPLICAS].crash()?;
        }
        seen.changes(CHANGES).await?;
        let made = *seen.made.borrow();
        Ok(made)
    }
}
