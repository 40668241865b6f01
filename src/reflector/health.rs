//! How well one store is, in one value.
//!
//! [`super::Machine`] derives it from what it is told: the main watch, proofs, timers, upstream's version. Everything that has to
//! know how well a cache is (readiness, metrics, what watches are told, which forms are served) reads it from here, so that
//! no two of them can disagree.
//!
//! What proofs find out stands apart, in [`super::Evidence`], and becomes an input of the machine: it belongs to the resource, not
//! to a store. A rollback that the store of JSON has met is one for the store of protobuf as well, whose own machine draws its
//! own conclusion: it may have been filled since.

use std::time::Duration;

use tokio::time::Instant;

use super::list_watch::WATCH_SECONDS_MAX;

/// Longer than a watch may be silent: it asks for bookmarks, which come once a minute, and for an
/// end after at most ten minutes.
const SILENCE_MAX: Duration = Duration::from_secs(WATCH_SECONDS_MAX + 60);
/// The same where upstream is known to send bookmarks: four of them are missing.
const BOOKMARKS_MISSING_MAX: Duration = Duration::from_secs(4 * 60);

/// How well a store is, and what its upstream has been seen to be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Counts the fills that began a store: 1 for the first, 0 before it. One that was bridged is none of them.
    pub epoch: u64,
    pub condition: Condition,
    /// Upstream takes `sendInitialEvents`, and ends initial events with a bookmark.
    pub watch_list: bool,
    /// Upstream has sent bookmarks from time to time.
    pub bookmarks: bool,
}

/// Where a store stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It holds nothing yet, or nothing any more, and is being filled.
    Filling,
    /// It holds nothing, and the next fill begins after a pause.
    Unfilled,
    /// It holds the state, and a watch of upstream keeps it so. One that is quiet counts as open until it breaks or is given
    /// up.
    Followed,
    /// It holds a state that is known to have been right at that time.
    Unfollowed { since: Instant },
    /// The resource is gone, or is another one.
    Gone,
}

impl Health {
    /// Of a store that nothing is known of.
    pub(super) const fn unknown() -> Self {
        Self { epoch: 0, condition: Condition::Filling, watch_list: false, bookmarks: false }
    }

    /// How old the state is at least; zero while it is followed, and where there is none.
    pub fn age(&self, now: Instant) -> Duration {
        match self.condition {
            Condition::Unfollowed { since } => now.saturating_duration_since(since),
            Condition::Filling | Condition::Unfilled | Condition::Followed | Condition::Gone => Duration::ZERO,
        }
    }

    /// Whether bookmarks may say that all is well.
    pub fn is_followed(&self) -> bool {
        self.condition == Condition::Followed
    }

    /// For how long a watch of this upstream may be silent before it is given up.
    pub(super) fn silence_max(&self) -> Duration {
        if self.bookmarks { BOOKMARKS_MISSING_MAX } else { SILENCE_MAX }
    }
}
