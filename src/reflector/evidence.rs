//! What freshness proofs and the verifier find out about a resource, for the reflectors of its stores.

use std::sync::Arc;

use tokio::{sync::watch, time::Instant};

use crate::apimachinery::ResourceVersion;

/// Shared by all tasks that ask upstream about one resource, and by the reflectors of its stores. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Evidence(Arc<watch::Sender<Found>>);

/// The findings, each with its time: a store that was filled later is not affected.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    rolled_back: Option<Instant>,
    corrupt: Option<Instant>,
    replaced: Option<Instant>,
    /// The version of a change that another upstream watch reported, and when that watch was opened.
    lacking: Option<(Instant, ResourceVersion)>,
}

impl Evidence {
    /// Records that a head version was below a progress that had been read before the head version was requested:
    /// upstream's storage was restored.
    pub fn rolled_back(&self) {
        self.0.send_modify(|found| found.rolled_back = Some(Instant::now()));
    }

    /// Records that a store differs from upstream's state at the same version.
    pub fn corrupt(&self) {
        self.0.send_modify(|found| found.corrupt = Some(Instant::now()));
    }

    /// Records that the resource has another definition than a store was filled under, or another server answers for
    /// it.
    pub fn replaced(&self) {
        self.0.send_modify(|found| found.replaced = Some(Instant::now()));
    }

    /// Records that another upstream watch, opened at that time, reported a change of this version long ago, and a
    /// store still lacks it.
    pub fn lacks(&self, version: ResourceVersion, opened: Instant) {
        self.0.send_modify(|found| found.lacking = Some((opened, version)));
    }

    /// Whether upstream's versions are known to have gone back since then.
    pub fn has_rolled_back_since(&self, time: Instant) -> bool {
        self.0.borrow().has_rolled_back_since(time)
    }

    /// Resolves when upstream's versions have gone back since then.
    pub(super) async fn until_rolled_back_since(&self, time: Instant) {
        let mut found = self.0.subscribe();
        // The sender lives as long as `self` does, so waiting cannot fail.
        drop(found.wait_for(|found| found.has_rolled_back_since(time)).await);
    }

    /// Resolves when a store that was filled at that time was found to differ from upstream.
    pub(super) async fn until_corrupt_since(&self, time: Instant) {
        let mut found = self.0.subscribe();
        drop(found.wait_for(|found| found.corrupt.is_some_and(|at| at >= time)).await);
    }

    /// Resolves when the resource was found to be another one than a store was filled with at that time.
    pub(super) async fn until_replaced_since(&self, time: Instant) {
        let mut found = self.0.subscribe();
        drop(found.wait_for(|found| found.replaced.is_some_and(|at| at >= time)).await);
    }

    /// Resolves when a watch that was opened after `time` reported a change above `progress`, and long ago.
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
