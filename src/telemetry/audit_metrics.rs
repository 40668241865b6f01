//! Metrics of the audit log.

use metrics::counter;

use crate::telemetry::metrics::{AUDIT_EVENTS_LOST, AUDIT_WRITES};

/// Counts a write to the audit log, and whether it succeeded.
pub fn audit_written(written: bool) {
    counter!(AUDIT_WRITES, "outcome" => if written { "written" } else { "failed" }).increment(1);
}

/// Counts events that are missing from the audit log.
pub fn audit_lost(events: usize) {
    counter!(AUDIT_EVENTS_LOST).increment(events as u64);
}
