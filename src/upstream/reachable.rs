//! Whether upstream can be reached, for the log: told once when it cannot, and once when it can again.

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::SendError;
use crate::telemetry::Chain;

/// What the log was told last. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Reachable {
    told_that_not: Arc<AtomicBool>,
}

impl Reachable {
    /// Notes how a request to `address` went: its error, or none if there was an answer.
    pub(super) fn note(&self, address: &impl Display, error: Option<&SendError>) {
        match error {
            Some(error @ (SendError::Unreachable(_) | SendError::ConnectTimedOut(_)))
                if !self.told_that_not.swap(true, Relaxed) =>
            {
                tracing::warn!(%address, error = %Chain(error), "the API server cannot be reached");
            }
            // Read first: requests that succeed must not contend for a write.
            None if self.told_that_not.load(Relaxed) && self.told_that_not.swap(false, Relaxed) => {
                tracing::info!(%address, "the API server can be reached again");
            }
            // Of others it is not known whether they came as far.
            _ => {}
        }
    }
}
