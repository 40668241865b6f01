//! What a request takes up until its answer has ended.

use tokio::sync::OwnedSemaphorePermit;

use crate::fairness::Share;

/// A request's place on a connection, given back when it is dropped.
#[derive(Debug)]
pub struct Slot {
    _permit: OwnedSemaphorePermit,
    /// The client's share of all places, if they are shared out.
    share: Option<Share>,
}

impl Slot {
    pub(super) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self { _permit: permit, share: None }
    }

    pub(super) fn hold(&mut self, share: Option<Share>) {
        self.share = share;
    }
}
