//! What a request takes up until its answer has ended.

use tokio::sync::OwnedSemaphorePermit;

use crate::fairness::Share;

/// A request's place on a connection, given back when it is dropped.
#[derive(Debug)]
pub struct Slot {
    _permit: OwnedSemaphorePermit,
    /// The client's share of such places, if clients are told apart.
    _of_places: Option<Share>,
    /// Its share of everything that is on its way, if that is counted.
    of_all: Option<Share>,
}

impl Slot {
    pub(super) fn new(permit: OwnedSemaphorePermit, share: Option<Share>) -> Self {
        Self { _permit: permit, _of_places: share, of_all: None }
    }

    pub(super) fn hold(&mut self, share: Option<Share>) {
        self.of_all = share;
    }
}
