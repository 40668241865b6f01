//! The state that a get or a list is answered from (read-path 1.1, 1.2).

use super::{Config, ForwardReason};
use crate::{
    apimachinery::Freshness,
    cacher::Instance,
    store::{Extract, View},
};

/// A state that is as fresh as asked for; waits for a version that has not been reached, and has it proven.
pub(super) async fn state(
    instance: &Instance,
    view: &View,
    freshness: Freshness,
    config: Config,
) -> Result<Extract, ForwardReason> {
    match freshness {
        Freshness::MostRecent => Err(ForwardReason::MostRecent),
        Freshness::Any => Ok(view.newest()),
        Freshness::NotOlderThan(version) => {
            let reached = instance.reach(version, config.freshness_wait).await;
            reached.map_err(|_| ForwardReason::NotReached)?;
            Ok(view.newest())
        }
        Freshness::Exact(version) => view.exact(version).ok_or(ForwardReason::OutsideHistory),
    }
}
