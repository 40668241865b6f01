//! What proofs find out about a resource on the side, told to the reflectors of its stores.

use std::sync::Arc;

use tokio::{sync::watch, time::Instant};

use crate::apimachinery::ResourceVersion;

/// Shared by all who ask upstream about one resource and by the reflectors of its stores. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Evidence(Arc<watch::Sender<Found>>);

/// Each with the time at which it was found: what a store was filled with later does not suffer from it.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    rolled_back: Option<Instant>,
    corrupt: Option<Instant>,
    /// The version of a change that another watch of upstream has shown, and when that was opened.
    lacking: Option<(Instant, ResourceVersion)>,
}

impl Evidence {
    /// A head version was below a progress that had been read before it was asked for: upstream's storage was restored.
    pub fn rolled_back(&self) {
        self.0.send_modify(|found| found.rolled_back = Some(Instant::now()));
    }

    /// A store does not hold what upstream has at the same version.
    pub fn corrupt(&self) {
        self.0.send_modify(|found| found.corrupt = Some(Instant::now()));
    }

    /// Another watch of upstream, opened then, has shown a change of this version long ago, and a store still lacks it.
    pub fn lacks(&self, version: ResourceVersion, opened: Instant) {
        self.0.send_modify(|found| found.lacking = Some((opened, version)));
    }

    /// Whether upstream's versions have gone back since then, as far as is known.
    pub fn has_rolled_back_since(&self, time: Instant) -> bool {
        self.0.borrow().has_rolled_back_since(time)
    }

    /// Resolves when upstream's versions have gone back since then.
    pub(super) async fn until_rolled_back_since(&self, time: Instant) {
        let mut found = self.0.subscribe();
        // The sender lives as long as `self` does, so waiting cannot fail.
        drop(found.wait_for(|found| found.has_rolled_back_since(time)).await);
    }

    /// Resolves when a store that was filled at that time has been found to hold what upstream does not.
    pub(super) async fn until_corrupt_since(&self, time: Instant) {
        let mut found = self.0.subscribe();
        drop(found.wait_for(|found| found.corrupt.is_some_and(|at| at >= time)).await);
    }

    /// Resolves when a watch that was opened after `time` has shown what lies behind `progress`, and long ago.
    pub(super) async fn until_lacking_since(&self, time: Instant, progress: ResourceVersion) {
        let mut found = self.0.subscribe();
        let lacks = |found: &Found| found.lacking.is_some_and(|(opened, version)| opened > time && version > progress);
        drop(found.wait_for(lacks).await);
    }
}

impl Found {
    fn has_rolled_back_since(&self, time: Instant) -> bool {
        self.rolled_back.is_some_and(|at| at >= time)
    }
}
