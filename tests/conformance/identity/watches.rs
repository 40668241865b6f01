//! Watches continue for as long as their user is allowed to read, and no longer.

use anyhow::{Context, Result};
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::{
    gateways::{Delegated, TTL, WATCH_INTERVAL},
    matrix::Matrix,
    users::Caller,
};
use crate::{
    client::{Ask, Endpoint},
    gateway::{Gateway, PATIENCE, unique_agent},
    report::Tally,
};

/// The users whose watches are open while roles change, and whether their watches may continue.
const WATCHERS: [(&str, bool); 4] =
    [("token", false), ("certificate", false), ("front proxy", false), ("token, keeper", true)];
/// With a timeout that is longer than needed.
const PATH: &str =
    "/api/v1/namespaces/conf/pods?watch=1&resourceVersion=0&timeoutSeconds=120&fieldSelector=metadata.name%3Dpod-03";

/// An open watch through a gateway.
pub(super) struct Watch<'a> {
    what: String,
    goes_on: bool,
    answer: Response<Incoming>,
    gateway: &'a Gateway,
    agent: String,
}

/// Opens the watches of all users in the table through every gateway.
pub(super) async fn open<'a>(
    gateways: &[(&str, &'a Delegated, Vec<Caller>)],
    matrix: &Matrix,
) -> Result<Vec<Watch<'a>>> {
    let mut watches = Vec::new();
    for (how, delegated, callers) in gateways {
        for (name, goes_on) in WATCHERS {
            let row = matrix.users.iter().position(|user| user.name == name).context("a watcher")?;
            let agent = unique_agent("revoked");
            let ask = Ask::get(PATH).header("user-agent", &agent);
            let mut answer = callers[row].open(&ask).await?;
            let what = format!("{name}'s watch, {how}");
            let event = timeout(PATIENCE, answer.body_mut().frame()).await.with_context(|| what.clone())?;
            anyhow::ensure!(event.is_some(), "{what} has no event: {}", answer.status());
            watches.push(Watch { what, goes_on, answer, gateway: &delegated.gateway, agent });
        }
    }
    Ok(watches)
}

/// The watches of users who may no longer read end cleanly soon after `swapped`; the others continue.
pub(super) async fn ended(watches: Vec<Watch<'_>>, swapped: Instant, api: &Endpoint, tally: &mut Tally) -> Result<()> {
    for mut watch in watches {
        if watch.goes_on {
            let label = json!({"metadata": {"labels": {"changed": swapped.elapsed().as_micros().to_string()}}});
            api.patch("/api/v1/namespaces/conf/pods/pod-03", &label).await?;
            let event = timeout(PATIENCE, watch.answer.body_mut().frame()).await;
            tally.holds(&watch.what, matches!(event, Ok(Some(Ok(_)))), || format!("no event but {event:?}"));
            continue;
        }
        let left = (WATCH_INTERVAL + TTL + PATIENCE).saturating_sub(swapped.elapsed());
        let rest = timeout(left, watch.answer.body_mut().collect()).await;
        let details = || format!("after {:.1} s: {rest:?}", swapped.elapsed().as_secs_f64());
        tally.holds(&watch.what, matches!(rest, Ok(Ok(_))), details);
        if rest.is_ok() {
            let outcome = watch.gateway.outcome(&watch.agent).await?;
            tally.equal(&watch.what, &"served".to_owned(), &outcome.by);
            tally.answered(&outcome);
        }
    }
    tally.note(format!("watches of those who lost their role: ended {:.1} s after", swapped.elapsed().as_secs_f64()));
    Ok(())
}
