//! Metrics of the questions that are asked upstream about users.

use metrics::counter;

use crate::telemetry::metrics::ACCESS_REVIEWS;

/// What a review of access came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessVerdict {
    Allowed,
    Denied,
    /// Upstream could not be asked, or did not say.
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

/// Counts a review that was asked for; verdicts that were kept are not counted.
pub fn access_reviewed(verdict: AccessVerdict) {
    counter!(ACCESS_REVIEWS, "verdict" => verdict.as_str()).increment(1);
}
