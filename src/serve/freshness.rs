//! The state that a get or a list is answered from (read-path 1.1, 1.2).

use tokio::time::timeout;

use super::{Config, ForwardReason};
use crate::{
    apimachinery::Freshness,
    store::{Extract, View},
};

/// A state that is as fresh as asked for; waits a little for a version that has not been reached.
pub(super) async fn state(view: &View, freshness: Freshness, config: Config) -> Result<Extract, ForwardReason> {
    match freshness {
        Freshness::MostRecent => Err(ForwardReason::MostRecent),
        Freshness::Any => Ok(view.newest()),
        Freshness::NotOlderThan(version) => {
            if view.progress() < version {
                let reached = timeout(config.freshness_wait, view.reached(version)).await;
                reached.map_err(|_| ForwardReason::NotReached)?;
            }
            Ok(view.newest())
        }
        Freshness::Exact(version) => view.exact(version).ok_or(ForwardReason::OutsideHistory),
    }
}
