//! Metrics of what the gateway writes for others: the log, the audit log, and traces.

use metrics::counter;

use crate::telemetry::metrics::{AUDIT_EVENTS_LOST, AUDIT_WRITES, LOG_LINES_DROPPED, SPANS_DROPPED, SPANS_EXPORTED};

/// Why a log line was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinesDropped {
    /// Earlier lines were not read fast enough.
    QueueFull,
    /// Standard error could not be written to.
    Unwritten,
}

impl LinesDropped {
    fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Unwritten => "unwritten",
        }
    }
}

/// Counts dropped log lines.
pub(super) fn log_lines_dropped(cause: LinesDropped, lines: u64) {
    counter!(LOG_LINES_DROPPED, "cause" => cause.as_str()).increment(lines);
}

/// What has come of a write to the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditWrite {
    Written,
    Failed,
    /// Nothing yet, for too long. Counted again and again until it ends, as a write that fails is repeated.
    Stalled,
}

impl AuditWrite {
    fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Failed => "failed",
            Self::Stalled => "stalled",
        }
    }
}

/// Counts a write to the audit log.
pub fn audit_write(outcome: AuditWrite) {
    counter!(AUDIT_WRITES, "outcome" => outcome.as_str()).increment(1);
}

/// Counts events that are missing from the audit log.
pub fn audit_lost(events: usize) {
    counter!(AUDIT_EVENTS_LOST).increment(events as u64);
}

/// Why spans did not reach the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpansDropped {
    /// The queue was full.
    QueueFull,
    /// The collector could not be reached for a minute, or refused them, or the gateway ended.
    Unsent,
    /// The collector rejected them, and accepted others of the same message.
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

/// Counts spans that did not reach the collector.
pub fn spans_dropped(cause: SpansDropped, spans: usize) {
    counter!(SPANS_DROPPED, "cause" => cause.as_str()).increment(spans as u64);
}
