//! Tells tasks that wait before they try again that upstream can be used again.

use std::sync::Arc;

use tokio::{sync::watch, time::Instant};

/// When that last happened. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Recovery(Arc<watch::Sender<Option<Instant>>>);

impl Recovery {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    /// Upstream could not be used, and now it can.
    pub(super) fn tell(&self) {
        self.0.send_replace(Some(Instant::now()));
    }

    /// Resolves when that has happened after `time`. Not at `time`: who tries again at once and fails would do so for
    /// as long as the clock stands still.
    pub(super) async fn since(&self, time: Instant) {
        let mut told = self.0.subscribe();
        // The sender lives as long as `self` does, so waiting cannot fail.
        drop(told.wait_for(|told| told.is_some_and(|at| at > time)).await);
    }
}
