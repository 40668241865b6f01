//! The state that a get or a list is answered from (read-path 1.1, 1.2).

use tokio::time::timeout;

use super::{ForwardReason, Read};
use crate::{apimachinery::Freshness, store::Snapshot};

impl Read<'_> {
    /// A state that is as fresh as asked for; waits a little for a version that has not been reached.
    pub(super) async fn snapshot(&self, freshness: Freshness) -> Result<Snapshot, ForwardReason> {
        let reader = &self.instance.reader;
        match freshness {
            Freshness::MostRecent => Err(ForwardReason::MostRecent),
            Freshness::Any => Ok(reader.snapshot()),
            Freshness::NotOlderThan(version) => {
                if reader.progress() < version {
                    let reached = timeout(self.config.freshness_wait, reader.reached(version)).await;
                    reached.map_err(|_| ForwardReason::NotReached)?;
                }
                Ok(reader.snapshot())
            }
            Freshness::Exact(version) => reader.exact(version).ok_or(ForwardReason::OutsideHistory),
        }
    }
}
