//! Metrics of the audit log.

use metrics::counter;

use crate::telemetry::metrics::AUDIT_WRITES;

/// Counts a piece of the audit log: whether it could be written.
pub fn audit_written(written: bool) {
    counter!(AUDIT_WRITES, "outcome" => if written { "written" } else { "failed" }).increment(1);
}
