//! How long a store has been without upstream, and what follows from it.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How long a store may be without upstream.
#[derive(Clone, Copy, Debug, Default)]
pub struct StalenessLimit {
    /// Beyond it the gateway is not ready. None: there is no limit.
    pub max: Option<Duration>,
    /// Beyond it watches end, too, and new ones are forwarded.
    pub ends_watches: bool,
}

/// Since when a store is not followed, if so. A watch that is open counts as followed until it breaks or is given up: one
/// that is quiet is not stale.
#[derive(Debug, Default)]
pub(super) struct Staleness(Mutex<Option<Instant>>);

impl Staleness {
    /// A watch of upstream is open.
    pub(super) fn following(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The watch has ended; what it told is known to have been right at `heard`.
    pub(super) fn unfollowed(&self, heard: Instant) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(heard);
    }

    /// How old the state is at least; zero while it is followed.
    pub(super) fn age(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub(super) fn is_beyond(&self, limit: StalenessLimit) -> bool {
        limit.max.is_some_and(|max| self.age() > max)
    }
}
