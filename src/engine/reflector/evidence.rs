//! What freshness proofs and the verifier find out about a resource, for the reflectors of its stores.

use std::sync::Arc;

use tokio::{sync::watch, time::Instant};

use base::apimachinery::ResourceVersion;

/// Shared by all tasks that ask upstream about one resource, and by the reflectors of its stores. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    found: Arc<watch::Sender<Found>>,
    /// The version of a change that another upstream watch of the same scope reported, and when that was opened.
    lacking: Arc<watch::Sender<Option<(Instant, ResourceVersion)>>>,
    storage: StorageEvidence,
}

/// When upstream's storage was last found to be another one than before: evidence against the stores of all resources.
/// Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub struct StorageEvidence(Arc<watch::Sender<Replaced>>);

/// When that was last found, and how often it was.
#[derive(Clone, Copy, Debug, Default)]
struct Replaced {
    last: Option<Instant>,
    times: u64,
}

/// The findings, each with its time: a store that was filled later is not affected.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    rolled_back: Option<Instant>,
    corrupt: Option<Instant>,
    replaced: Option<Instant>,
}

impl StorageEvidence {
    /// Records that what was read until now may be of another storage than what is read from now on.
    pub fn replaced(&self) {
        self.0.send_modify(|replaced| *replaced = Replaced { last: Some(Instant::now()), times: replaced.times + 1 });
    }

    /// How often it was replaced: what was learned of a storage of another number need not hold for this one.
    pub fn number(&self) -> u64 {
        self.0.borrow().times
    }

    /// Whether what was asked for at that time may be of a storage that is not upstream's any more.
    pub fn was_replaced_since(&self, time: Instant) -> bool {
        self.0.borrow().since(time)
    }

    async fn until_replaced_since(&self, time: Instant) {
        let mut replaced = self.0.subscribe();
        // The sender lives as long as `self` does, so waiting cannot fail.
        drop(replaced.wait_for(|replaced| replaced.since(time)).await);
    }
}

impl Replaced {
    fn since(&self, time: Instant) -> bool {
        self.last.is_some_and(|last| last >= time)
    }
}

impl Evidence {
    /// Of one resource of this storage.
    pub fn of(storage: StorageEvidence) -> Self {
        Self { storage, ..Self::default() }
    }

    /// For the stores of another part of the collection: they lack nothing that those of this one lack.
    #[must_use]
    pub fn of_another_scope(&self) -> Self {
        Self { lacking: Arc::default(), ..self.clone() }
    }

    /// Records that a head version was below a progress that had been read before the head version was requested:
    /// upstream's storage was restored.
    pub fn rolled_back(&self) {
        self.found.send_modify(|found| found.rolled_back = Some(Instant::now()));
    }

    /// Records that a store differs from upstream's state at the same version.
    pub fn corrupt(&self) {
        self.found.send_modify(|found| found.corrupt = Some(Instant::now()));
    }

    /// Records that the resource has another definition than a store was filled under, or another server answers for
    /// it.
    pub fn replaced(&self) {
        self.found.send_modify(|found| found.replaced = Some(Instant::now()));
    }

    /// Records that another upstream watch, opened at that time, reported a change of this version long ago, and a
    /// store still lacks it.
    pub fn lacks(&self, version: ResourceVersion, opened: Instant) {
        self.lacking.send_replace(Some((opened, version)));
    }

    /// Whether upstream's versions are known to have gone back since then, or its storage to have been replaced.
    pub fn has_rolled_back_since(&self, time: Instant) -> bool {
        self.found.borrow().has_rolled_back_since(time) || self.storage.was_replaced_since(time)
    }

    /// Resolves when upstream's versions have gone back since then, or its storage was replaced.
    pub(super) async fn until_rolled_back_since(&self, time: Instant) {
        let mut found = self.found.subscribe();
        tokio::select! {
            // The sender lives as long as `self` does, so waiting cannot fail.
            _ = found.wait_for(|found| found.has_rolled_back_since(time)) => {}
            () = self.storage.until_replaced_since(time) => {}
        }
    }

    /// Resolves when a store that was filled at that time was found to differ from upstream.
    pub(super) async fn until_corrupt_since(&self, time: Instant) {
        let mut found = self.found.subscribe();
        drop(found.wait_for(|found| found.corrupt.is_some_and(|at| at >= time)).await);
    }

    /// Resolves when the resource was found to be another one than a store was filled with at that time.
    pub(super) async fn until_replaced_since(&self, time: Instant) {
        let mut found = self.found.subscribe();
        drop(found.wait_for(|found| found.replaced.is_some_and(|at| at >= time)).await);
    }

    /// Resolves when a watch that was opened after `time` reported a change above `progress`, and long ago.
    pub(super) async fn until_lacking_since(&self, time: Instant, progress: ResourceVersion) {
        let mut lacking = self.lacking.subscribe();
        let lacks = |lacking: &Option<(Instant, ResourceVersion)>| {
            lacking.is_some_and(|(opened, version)| opened > time && version > progress)
        };
        drop(lacking.wait_for(lacks).await);
    }
}

impl Found {
    fn has_rolled_back_since(&self, time: Instant) -> bool {
        self.rolled_back.is_some_and(|at| at >= time)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_counts_against_the_stores_of_its_scope_alone() {
        let version = |number| ResourceVersion::new(number).unwrap();
        let cluster = Evidence::default();
        let (namespace, before) = (cluster.of_another_scope(), Instant::now());
        advance(Duration::from_millis(1)).await;
        namespace.lacks(version(7), Instant::now());
        assert!(namespace.until_lacking_since(before, version(6)).now_or_never().is_some());
        assert!(namespace.until_lacking_since(before, version(7)).now_or_never().is_none());
        assert!(cluster.until_lacking_since(before, version(6)).now_or_never().is_none());
        namespace.corrupt();
        assert!(cluster.until_corrupt_since(before).now_or_never().is_some(), "of the same objects");
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_storage_counts_against_the_stores_of_all_resources_that_were_filled_before() {
        let storage = StorageEvidence::default();
        let resources = [Evidence::of(storage.clone()), Evidence::of(storage.clone())];
        let before = Instant::now();
        assert!(resources.iter().all(|evidence| !evidence.has_rolled_back_since(before)));
        storage.replaced();
        advance(Duration::from_millis(1)).await;
        let after = Instant::now();
        for evidence in resources {
            assert!(evidence.has_rolled_back_since(before) && !evidence.has_rolled_back_since(after));
            assert!(evidence.until_rolled_back_since(before).now_or_never().is_some());
            assert!(evidence.until_rolled_back_since(after).now_or_never().is_none());
        }
    }
}
