//! Metrics of the log.

use metrics::counter;

use crate::telemetry::metrics::LOG_LINES_DROPPED;

/// Why a log line was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dropped {
    /// Earlier lines were not read fast enough.
    QueueFull,
    /// Standard error could not be written to.
    Unwritten,
}

impl Dropped {
    fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Unwritten => "unwritten",
        }
    }
}

/// Counts dropped log lines.
pub(super) fn log_lines_dropped(cause: Dropped, lines: u64) {
    counter!(LOG_LINES_DROPPED, "cause" => cause.as_str()).increment(lines);
}
