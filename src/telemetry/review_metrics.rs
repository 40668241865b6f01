//! Metrics of access reviews.

use metrics::counter;

use crate::telemetry::metrics::ACCESS_REVIEWS;

/// The result of an access review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessVerdict {
    Allowed,
    Denied,
    /// Upstream could not be asked, or did not answer the question.
    None,
}

impl AccessVerdict {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::None => "none",
        }
    }
}

/// Counts a review that was requested from upstream; cached verdicts are not counted.
pub fn access_reviewed(verdict: AccessVerdict) {
    counter!(ACCESS_REVIEWS, "verdict" => verdict.as_str()).increment(1);
}
