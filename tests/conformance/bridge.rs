//! An API server and a gateway are killed again and again under informers of every kind: the informers seldom list
//! again, and all end with the server's state.
//!
//! Changes are made through another API server of the same storage, also while the gateway's own is down, so that after
//! its restart it has no history of them.

use anyhow::{Result, ensure};
use tokio::time::Instant;

use crate::{
    Side,
    certificates::Certificates,
    client::{Endpoint, version_of},
    gateway::PATIENCE,
    report::Tally,
    resuming::{self, Between, CONFIG_MAPS, Followed, Seen, Told, WIDGETS},
};

/// The size of the scenario.
#[derive(Clone, Copy)]
struct Sizes {
    informers: usize,
    /// The number of kills: of the API server, then of the gateway, then of both.
    kills: usize,
}

const GATE: Sizes = Sizes { informers: 40, kills: 2 };
const FULL: Sizes = Sizes { informers: 100, kills: 5 };
/// The number of changes between two kills, which the gateway has to follow.
const CHANGES: usize = 120;
/// The maximum number of lists beyond one for each informer while only the server is killed, for informers whose first
/// watch starts late. No run has needed any so far.
const LISTS_SPARE: usize = 3;

/// Built-in types, in both encodings; with watch-lists where the server has them.
pub(crate) async fn builtin(side: &mut Side, certificates: &Certificates) -> Result<Tally> {
    let followed = CONFIG_MAPS.at(&side.server);
    run(side, followed, certificates).await
}

/// Custom resources, with watch-lists.
pub(crate) async fn custom(side: &mut Side, certificates: &Certificates) -> Result<Tally> {
    run(side, WIDGETS, certificates).await
}

async fn run(side: &mut Side, followed: Followed, certificates: &Certificates) -> Result<Tally> {
    let mut tally = Tally::default();
    let sizes = if resuming::is_full() { FULL } else { GATE };
    let Sizes { informers, kills } = sizes;
    // Writes while the gateway's own server is down: after its restart that server does not have them in its history.
    let mut beside = side.server.beside(certificates)?;
    beside.ready().await?;
    for encoding in followed.encodings {
        side.gateway.warm_as(followed.collection, encoding).await?;
    }
    let (gateway, direct) = (side.gateway.endpoint.clone(), &beside.endpoint);
    let between = Between { gateway: &gateway, direct };
    let script = async |seen| kill(side, direct, followed, (sizes, seen)).await;
    let ((phases, changes), told) = resuming::informers(informers, followed, between, &mut tally, script).await?;

    let sum = |count: fn(&Told) -> usize| told.iter().map(count).sum::<usize>();
    let (lists, watches) = (sum(|told| told.lists), sum(|told| told.watches));
    let (events, lost) = (sum(|told| told.events), sum(|told| told.lost));
    let holds = |most: usize, lists: usize| (informers..=most).contains(&lists);
    let said = |lists: usize| format!("{lists} lists of {informers} informers");
    let alone = phases[0];
    let are_few = holds(informers + LISTS_SPARE, alone);
    tally.holds("each lists once when the server is killed", are_few, || said(alone));
    tally.equal("lists while the gateway alone is killed", &0, &(phases[1] - alone));
    // A watch that is still forwarded when the server is killed, shortly after the gateway was, may be one change ahead
    // of the gateway's own watch: its client continues from within the gap. Without bridges, each kill of the server
    // would cost every informer a list.
    let expired: Vec<_> = told.iter().flat_map(|told| told.expired.iter().map(|(version, _)| *version)).collect();
    tally.holds("lists are few when both are killed", holds(informers * 2, lists), || {
        format!("{}, after {expired:?}", said(lists))
    });
    if !expired.is_empty() {
        tally.note(format!("listed again after {expired:?}"));
    }
    tally.note(format!(
        "{informers} informers, {kills} kills of the API server, of the gateway and of both, {changes} changes: \
         {phases:?} lists by then, {watches} watches, {events} events, {lost} of them of what was lost"
    ));
    Ok(tally)
}

/// Kills the server under all informers several times, and waits each time until the gateway has followed the changes
/// after it. Returns the lists at the end of each phase, and the changes.
async fn kill(
    side: &mut Side,
    direct: &Endpoint,
    followed: Followed,
    (Sizes { informers, kills }, mut seen): (Sizes, Seen),
) -> Result<(Vec<usize>, usize)> {
    let mut phases = Vec::new();
    seen.watching.wait_for(|watching| *watching >= informers).await?;
    let rounds =
        [(true, false), (false, true), (true, true)].into_iter().flat_map(|killed| std::iter::repeat_n(killed, kills));
    for (round, (kills_server, kills_gateway)) in rounds.enumerate() {
        seen.changes(CHANGES).await?;
        if kills_server {
            side.server.kill_api();
            side.server.start_api()?;
            side.server.ready().await?;
        }
        let version = version_of(&direct.json(&format!("{}?limit=1", followed.collection)).await?);
        for encoding in followed.encodings {
            // The gateway waits longer after each kill, since the kills follow each other faster than its delays are
            // reset.
            let started = Instant::now();
            while side.gateway.reached_as(followed.collection, version, encoding).await.is_err() {
                ensure!(started.elapsed() < PATIENCE * 3, "{encoding} does not reach {version}");
            }
        }
        if kills_gateway {
            // A client that is cut off within a bridge lists again, since upstream no longer knows the versions in it.
            seen.changes(CHANGES / 4).await?;
            side.gateway.crash()?;
            for encoding in followed.encodings {
                side.gateway.warm_as(followed.collection, encoding).await?;
            }
        }
        if round % kills == kills - 1 {
            phases.push(seen.lists());
        }
    }
    let made = *seen.made.borrow();
    Ok((phases, made))
}
