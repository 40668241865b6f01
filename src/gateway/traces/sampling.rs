//! Which requests are sampled, and the queue for the spans of those that are.

use std::sync::atomic::AtomicU32;

use tokio::sync::mpsc;

use super::message::Span;
use base::telemetry::{SpansDropped, limit_reached, spans_dropped};

/// The part of a tracer that its traces share.
#[derive(Debug)]
pub(super) struct Sampling {
    pub(super) rate_per_million: AtomicU32,
    pub(super) trusts_clients: bool,
    pub(super) upstream: http::Uri,
    pub(super) queue: mpsc::Sender<Vec<Span>>,
}

impl Sampling {
    /// Hands the spans of a request to the exporter, or drops them.
    pub(super) fn export(&self, spans: Vec<Span>) {
        if let Err(unsent) = self.queue.try_send(spans) {
            limit_reached("trace_queue");
            spans_dropped(SpansDropped::QueueFull, unsent.into_inner().len());
        }
    }
}
