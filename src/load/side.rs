//! One side of a comparison.

use std::sync::Arc;

use crate::{endpoint::Endpoint, recorder::Recorder};

/// One of the endpoints that take turns.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) endpoint: Arc<Endpoint>,
    /// The endpoint for its writes.
    pub(super) writes: Arc<Endpoint>,
    /// One for each workload.
    pub(super) recorders: Vec<Arc<Recorder>>,
}
