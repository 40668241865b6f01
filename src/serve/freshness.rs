//! The state from which a get or a list is answered (read-path 1.1, 1.2).

use super::{
    ForwardReason, Read,
    most_recent::{Choice, MostRecent, Situation, choose},
};
use crate::{
    apimachinery::Freshness,
    cacher::Instance,
    serve::Config,
    store::{Extract, View},
};

/// The state for a read or the start of a watch. Waits until a version that the cache has not reached is reached, and
/// has it proven. The most recent state is forwarded here: for gets and lists see [`read_state`], watches prove it
/// themselves.
pub(super) async fn state(
    instance: &Instance,
    view: &View,
    freshness: Freshness,
    config: Config,
) -> Result<Extract, ForwardReason> {
    match freshness {
        Freshness::MostRecent => Err(ForwardReason::MostRecent),
        Freshness::Any => {
            instance.agree(config.freshness_wait).await.map_err(|_| ForwardReason::NotReached)?;
            Ok(view.newest())
        }
        Freshness::NotOlderThan(version) => {
            let reached = instance.reach(version, config.freshness_wait).await;
            reached.map_err(|_| ForwardReason::NotReached)?;
            Ok(view.newest())
        }
        Freshness::Exact(version) => view.exact(version).ok_or(ForwardReason::OutsideHistory),
    }
}

/// The state for a get or a list, including the most recent state. `bytes` returns the size of the response if it were
/// made from that state.
pub(super) async fn read_state(
    read: &Read<'_>,
    view: &View,
    freshness: Freshness,
    bytes: impl FnOnce(&Extract) -> usize,
) -> Result<Extract, ForwardReason> {
    if freshness != Freshness::MostRecent {
        return state(&read.instance, view, freshness, read.config).await;
    }
    let instance = &read.instance;
    let choice = match read.config.most_recent {
        MostRecent::Auto => {
            let bytes = bytes(&view.newest());
            let asking = instance.asked(bytes);
            let (recent, pace) = (instance.recent_proof(), instance.pace());
            choose(MostRecent::Auto, Situation { bytes, asking, recent, pace })
        }
        MostRecent::Prove => {
            choose(MostRecent::Prove, Situation { recent: instance.recent_proof(), ..Situation::default() })
        }
        MostRecent::Forward => choose(MostRecent::Forward, Situation::default()),
    };
    let (worth, within) = match choice {
        Choice::Forward(why) => return Err(why),
        Choice::Prove(worth, within) => (worth, within),
    };
    tracing::trace!(resource = %instance.resource, ?worth, ?within, "most-recent read waits for a proof");
    let proven = instance.prove_within(within, worth.takes_if_failed(within)).await;
    proven.map_err(|_| ForwardReason::Unproven)?;
    Ok(view.newest())
}
