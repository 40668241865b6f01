//! No user can read more than they are allowed to: a matrix of users and requests, forgeries, unavailable reviews, and
//! certificates that change.
//!
//! The same certificates and tokens are presented to a server with RBAC and to gateways in `delegated` mode in front of
//! it. One gateway asserts verified users as a front proxy does, and its clients use HTTP/1.1; the other one
//! impersonates them, and its clients use HTTP/2.

mod forgeries;
mod gateways;
mod http2;
mod matrix;
mod misplaced;
mod paths;
mod raw;
mod relay;
mod requests;
mod reviews;
mod roles;
mod rotation;
mod users;
mod watches;

use anyhow::Result;
use futures_util::future;
use tokio::time::{Instant, sleep};

use crate::{Side, certificates::Certificates, client::Protocol, gateway::PATIENCE, report::Tally, servers::POLL};

pub(crate) use forgeries::run as forgeries;
pub(crate) use misplaced::run as misplaced;
pub(crate) use reviews::run as reviews;
pub(crate) use roles::{grant, grant_keeper, grant_pods, revoke_keeper, revoke_pods};
pub(crate) use rotation::rotation;
pub(crate) use users::reader_token;

pub(crate) use gateways::{Asserts, Delegated, TTL, WATCH_INTERVAL};
use matrix::{Matrix, Through};
use users::Caller;

/// The matrix with cold caches, with warm ones, and after roles have changed.
pub(crate) async fn matrix(side: &Side, certificates: &Certificates) -> Result<Tally> {
    let mut tally = Tally::default();
    let (api, server) = (&side.server.endpoint, &side.server);
    let users = users::all(api, api).await?;
    let direct =
        users.iter().map(|user| user.calls(&api.base, certificates, Protocol::Http1)).collect::<Result<_>>()?;
    let matrix = Matrix { users, requests: requests::builtin()?, direct };
    let answers = matrix.ask_directly().await?;
    matrix.check_directly(&answers, false, &mut tally)?;

    let (front, impersonating) = future::try_join(
        Delegated::start("gateway-front", Asserts::FrontProxy, None, server, certificates),
        Delegated::start("gateway-impersonating", Asserts::Impersonation, None, server, certificates),
    )
    .await?;
    let before = [
        ("front proxy, HTTP/1.1", &front, front.callers(&matrix.users, certificates, Protocol::Http1)?),
        ("impersonation, HTTP/2", &impersonating, impersonating.callers(&matrix.users, certificates, Protocol::Http2)?),
    ];
    for is_warm in [false, true] {
        for (how, delegated, callers) in &before {
            if is_warm {
                delegated.warm().await?;
            }
            let table = matrix.compare(&answers, &Through { delegated, callers, is_warm }, &mut tally).await?;
            tally.note(format!("{how}, {} caches\n{table}", if is_warm { "warm" } else { "cold" }));
        }
    }

    let watching = watches::open(&before, &matrix).await?;
    let swapped = Instant::now();
    roles::swap(api).await?;
    let answers = settled(&matrix).await?;
    matrix.check_directly(&answers, true, &mut tally)?;
    for (how, delegated, callers) in &before {
        forgotten(&matrix, delegated, callers).await?;
        tally.note(format!("{how}: what was taken away is refused after {:.1} s", swapped.elapsed().as_secs_f64()));
        let table = matrix.compare(&answers, &Through { delegated, callers, is_warm: true }, &mut tally).await?;
        tally.note(format!("{how}, roles granted and revoked\n{table}"));
    }
    watches::ended(watching, swapped, api, &mut tally).await?;
    roles::restore(api).await?;
    Ok(tally)
}

/// The matrix in front of a server that delegates authentication and authorization to another server, as the gateway
/// does.
pub(crate) async fn custom(full: &Side, side: &Side, certificates: &Certificates) -> Result<Tally> {
    let mut tally = Tally::default();
    let api = &side.server.endpoint;
    let users = users::all(&full.server.endpoint, api).await?;
    let direct =
        users.iter().map(|user| user.calls(&api.base, certificates, Protocol::Http1)).collect::<Result<_>>()?;
    let matrix = Matrix { users, requests: requests::custom()?, direct };
    let answers = matrix.ask_directly().await?;
    matrix.check_directly(&answers, false, &mut tally)?;
    let (name, reviews) = ("gateway-custom", Some(full.server.endpoint.base.as_str()));
    let delegated = Delegated::start(name, Asserts::FrontProxy, reviews, &side.server, certificates).await?;
    let callers = delegated.callers(&matrix.users, certificates, Protocol::Http2)?;
    for is_warm in [false, true] {
        if is_warm {
            delegated.warm_custom().await?;
        }
        let through = Through { delegated: &delegated, callers: &callers, is_warm };
        let table = matrix.compare(&answers, &through, &mut tally).await?;
        let state = if is_warm { "warm" } else { "cold" };
        tally.note(format!("reviews of another server, front proxy, HTTP/2, {state} caches\n{table}"));
    }
    Ok(tally)
}

/// The direct responses after the roles have changed, once the server applies the change.
async fn settled(matrix: &Matrix) -> Result<matrix::Answers> {
    let started = Instant::now();
    loop {
        if matrix.changed(&matrix.direct).await? {
            return matrix.ask_directly().await;
        }
        anyhow::ensure!(started.elapsed() < PATIENCE, "the server does not act on its new roles");
        sleep(POLL).await;
    }
}

/// Returns when no user can read any more what was taken away.
async fn forgotten(matrix: &Matrix, delegated: &Delegated, callers: &[Caller]) -> Result<()> {
    let started = Instant::now();
    while !matrix.changed(callers).await? {
        let gateway = &delegated.secure;
        anyhow::ensure!(started.elapsed() < TTL + PATIENCE, "{gateway} still answers a user whose role was revoked");
        sleep(POLL).await;
    }
    Ok(())
}
