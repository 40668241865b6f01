//! Changes of every kind.

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Duration, Instant, interval, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{Followed, LAST};
use crate::{client::Endpoint, gateway::PATIENCE, servers::POLL};

/// The time between two changes: sixty per second.
const PACE: Duration = Duration::from_millis(16);
/// The number of names that are created and deleted.
const NAMES: usize = 60;

/// Makes changes of every kind until it is stopped. Ignores refusals, since the server may have just been killed.
///
/// Awaits the answer to its last change: the server may still make one whose request is dropped, after all that follow.
pub(super) async fn churn(
    api: &Endpoint,
    followed: Followed,
    made: &watch::Sender<usize>,
    stopped: &CancellationToken,
) {
    let mut ticks = interval(PACE);
    for number in 0.. {
        if stopped.run_until_cancelled(ticks.tick()).await.is_none() {
            return;
        }
        let (name, round) = (number * 7 % NAMES, number / NAMES);
        let path = format!("{}/bridge-{name}", followed.part);
        let shade = ["red", "green", "blue"][(name + round) % 3];
        let done = match (name + round) % 5 {
            0 => api.delete(&path).await.map(drop),
            1 | 3 => create(api, followed, &format!("bridge-{name}"), shade).await,
            _ => api.patch(&path, &json!({"metadata": {"labels": {"shade": shade}}})).await.map(drop),
        };
        if done.is_ok() {
            made.send_modify(|made| *made += 1);
        }
    }
}

async fn create(api: &Endpoint, followed: Followed, name: &str, shade: &str) -> Result<()> {
    let Followed { api_version, kind, part, .. } = followed;
    let metadata = json!({"name": name, "labels": {"shade": shade}});
    api.create(part, &json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})).await.map(drop)
}

/// Creates the last object; retries until that succeeds.
pub(super) async fn last(api: &Endpoint, followed: Followed) -> Result<()> {
    let started = Instant::now();
    while let Err(error) = create(api, followed, LAST, "red").await {
        ensure!(started.elapsed() < PATIENCE, "{error:#}");
        sleep(POLL).await;
    }
    Ok(())
}
