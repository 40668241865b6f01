//! The health of one store as a single value.
//!
//! [`super::Machine`] derives it from its inputs: the main watch, proofs, timers and upstream's version. Readiness,
//! metrics, the bookmarks of watches and the choice of representations all read it from here, so that they cannot
//! disagree.
//!
//! What proofs find out is kept separately, in [`super::Evidence`], and becomes an input of the machine, because it
//! belongs to the resource and not to one store. A rollback that the JSON store detected concerns the protobuf store as
//! well, but its own machine decides what follows from it: that store may have been filled since.

use std::time::Duration;

use tokio::time::Instant;

use super::list_watch::WATCH_SECONDS_MAX;

/// Longer than a watch may be silent: it requests bookmarks, which are sent once a minute, and a timeout of at most ten
/// minutes.
const SILENCE_MAX: Duration = Duration::from_secs(WATCH_SECONDS_MAX + 60);
/// The maximum silence if upstream is known to send bookmarks: four of them are missing by then.
const BOOKMARKS_MISSING_MAX: Duration = Duration::from_secs(4 * 60);

/// The health of a store, and what its upstream was seen to support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// The number of fills that began a new store: 0 before the first. A fill that was bridged does not count.
    pub epoch: u64,
    pub condition: Condition,
    /// Upstream accepts `sendInitialEvents`, and ends initial events with a bookmark.
    pub watch_list: bool,
    /// Upstream has sent periodic bookmarks.
    pub bookmarks: bool,
}

/// The state of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The store is empty, or lost its objects, and is being filled.
    Filling,
    /// The store is empty, and the next fill begins after a delay.
    Unfilled,
    /// The store holds the state, and an upstream watch keeps it up to date. A silent watch counts as open until it
    /// breaks or is given up.
    Followed,
    /// The store holds a state that is known to have been current at that time.
    Unfollowed { since: Instant },
    /// The resource is gone, or was replaced by another one.
    Gone,
}

impl Health {
    /// The health of a store before its first fill.
    pub(super) const fn unknown() -> Self {
        Self { epoch: 0, condition: Condition::Filling, watch_list: false, bookmarks: false }
    }

    /// The minimum age of the state; zero while a watch follows it, and for an empty store.
    pub fn age(&self, now: Instant) -> Duration {
        match self.condition {
            Condition::Unfollowed { since } => now.saturating_duration_since(since),
            Condition::Filling | Condition::Unfilled | Condition::Followed | Condition::Gone => Duration::ZERO,
        }
    }

    /// Whether bookmarks may be sent, which claim that no change was missed.
    pub fn is_followed(&self) -> bool {
        self.condition == Condition::Followed
    }

    /// How long an upstream watch may be silent before it is given up.
    pub(super) fn silence_max(&self) -> Duration {
        if self.bookmarks { BOOKMARKS_MISSING_MAX } else { SILENCE_MAX }
    }
}
