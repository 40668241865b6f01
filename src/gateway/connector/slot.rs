//! The place that a request occupies until its answer has ended.

use tokio::sync::OwnedSemaphorePermit;

use base::fairness::Share;

/// A request's place on a connection, released on drop.
#[derive(Debug)]
pub struct Slot {
    _permit: OwnedSemaphorePermit,
    /// The client's share of such places; `None` if clients are not distinguished.
    _share: Option<Share>,
}

impl Slot {
    pub(super) fn new(permit: OwnedSemaphorePermit, share: Option<Share>) -> Self {
        Self { _permit: permit, _share: share }
    }
}
