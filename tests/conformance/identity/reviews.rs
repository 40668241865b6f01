//! Reviews become unavailable: known results remain valid for their time, and everything else is forwarded.

use anyhow::{Context, Result};
use tokio::time::{Instant, sleep};

use super::{
    gateways::{Asserts, Delegated, TTL},
    relay::Relay,
    roles,
    users::{self, Caller, User},
};
use crate::{
    Side,
    certificates::Certificates,
    client::{Answer, Ask, Protocol},
    compare::{Rules, differences},
    gateway::{PATIENCE, unique_agent},
    report::Tally,
    servers::POLL,
};

const LIST: &str = "/api/v1/namespaces/conf/pods?resourceVersion=0";
/// The users who read before the reviews stop. All of them lose that role while reviews are unavailable.
const KNOWN: [&str; 4] = ["token", "service account", "certificate", "front proxy"];

/// Users in front of the server, and in front of a gateway whose reviews can be stopped.
struct Scene {
    users: Vec<User>,
    direct: Vec<Caller>,
    through: Vec<Caller>,
    delegated: Delegated,
    relay: Relay,
}

pub(crate) async fn run(side: &Side, certificates: &Certificates) -> Result<Tally> {
    let mut tally = Tally::default();
    let api = &side.server.endpoint;
    let users = users::all(api, api).await?;
    let relay = Relay::start(api.base.trim_start_matches("https://"))?;
    let url = format!("https://{}", relay.address);
    let name = "gateway-reviews";
    let delegated = Delegated::start(name, Asserts::FrontProxy, Some(&url), &side.server, certificates).await?;
    delegated.warm().await?;
    let direct =
        users.iter().map(|user| user.calls(&api.base, certificates, Protocol::Http1)).collect::<Result<_>>()?;
    let through = delegated.callers(&users, certificates, Protocol::Http2)?;
    let scene = Scene { users, direct, through, delegated, relay };

    scene.known(&mut tally).await?;
    scene.relay.close();
    let closed = Instant::now();
    scene.all_users("reviews stopped", false, &mut tally).await?;
    roles::swap(api).await?;
    scene.forgotten(closed, &mut tally).await?;
    scene.all_users("reviews stopped, what was known is forgotten", true, &mut tally).await?;
    scene.relay.open();
    let served = scene.until("token, outsider", "served").await?;
    tally.equal("served as soon as there are reviews again", &200, &served.status);
    scene.all_users("reviews are back", false, &mut tally).await?;
    roles::restore(api).await?;
    Ok(tally)
}

impl Scene {
    fn row(&self, name: &str) -> Result<usize> {
        self.users.iter().position(|user| user.name == name).context("a user")
    }

    async fn ask(&self, name: &str) -> Result<(Answer, String)> {
        let agent = unique_agent("reviews");
        let answer = self.through[self.row(name)?].send(&Ask::get(LIST).header("user-agent", &agent)).await?;
        Ok((answer, self.delegated.gateway.outcome(&agent).await?.by))
    }

    /// Repeats the request until it is answered from memory, or from upstream, as `by` says.
    async fn until(&self, name: &str, by: &str) -> Result<Answer> {
        let started = Instant::now();
        loop {
            let (answer, who) = self.ask(name).await?;
            if who == by {
                return Ok(answer);
            }
            anyhow::ensure!(started.elapsed() < PATIENCE, "{name} is {who}, {}, and not {by}", answer.status);
            sleep(POLL).await;
        }
    }

    /// The users who are allowed are answered from memory.
    async fn known(&self, tally: &mut Tally) -> Result<()> {
        for name in KNOWN {
            let (answer, by) = self.ask(name).await?;
            tally.equal(&format!("{name}, reviews as usual"), &(200, "served".to_owned()), &(answer.status, by));
        }
        Ok(())
    }

    /// All users get the same responses as directly; if `forwarded`, from upstream.
    async fn all_users(&self, when: &str, forwarded: bool, tally: &mut Tally) -> Result<()> {
        for (row, user) in self.users.iter().enumerate() {
            let direct = self.direct[row].send(&Ask::get(LIST)).await?;
            let (actual, by) = self.ask(user.name).await?;
            let what = format!("{}, {when}", user.name);
            tally.compared(&what, differences(Rules { any_order: true, any_version: true }, &direct, &actual));
            let is_right = by == "forwarded" || by == "served" && direct.status == 200 && !forwarded;
            tally.holds(&what, is_right, || format!("{} is {by}", actual.status));
        }
        Ok(())
    }

    /// A permission is used for its time and no longer. Returns when all are refused.
    async fn forgotten(&self, closed: Instant, tally: &mut Tally) -> Result<()> {
        // What the gateway received before reviews stopped, it may have read a moment later.
        let margin = TTL;
        for name in KNOWN {
            self.refused_directly(name).await?;
            let status = loop {
                // Times of requests, not of responses: a busy machine may answer any time later.
                let sent = closed.elapsed();
                let (answer, by) = self.ask(name).await?;
                if by == "forwarded" {
                    break answer.status;
                }
                anyhow::ensure!(sent < TTL + margin, "{name} is {by}, {}, after {sent:?}", answer.status);
                sleep(POLL).await;
            };
            tally.equal(&format!("{name}, after their role"), &403, &status);
        }
        tally.note(format!("reviews stopped: all were refused {:.1} s later", closed.elapsed().as_secs_f64()));
        Ok(())
    }

    /// Waits until the server applies the roles.
    async fn refused_directly(&self, name: &str) -> Result<()> {
        let started = Instant::now();
        loop {
            let status = self.direct[self.row(name)?].send(&Ask::get(LIST)).await?.status;
            if status == 403 {
                return Ok(());
            }
            anyhow::ensure!(started.elapsed() < PATIENCE, "the server answers {name} with {status}, not with 403");
            sleep(POLL).await;
        }
    }
}
