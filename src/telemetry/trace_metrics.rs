//! Metrics of traces.

use metrics::counter;

use crate::telemetry::metrics::{SPANS_DROPPED, SPANS_EXPORTED};

/// Why spans did not reach the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpansDropped {
    /// Those of other requests waited already, as many as may.
    QueueFull,
    /// The collector could not be reached for so long, or refused them, or the gateway ended.
    Unsent,
    /// The collector accepted others of the same message.
    Rejected,
}

impl SpansDropped {
    fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Unsent => "unsent",
            Self::Rejected => "rejected",
        }
    }
}

/// Counts spans that the collector has accepted.
pub fn spans_exported(spans: usize) {
    counter!(SPANS_EXPORTED).increment(spans as u64);
}

/// Counts spans that the collector will not have.
pub fn spans_dropped(cause: SpansDropped, spans: usize) {
    counter!(SPANS_DROPPED, "cause" => cause.as_str()).increment(spans as u64);
}
