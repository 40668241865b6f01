//! Metrics of token reviews and access reviews, and of how often a token's user is known without one.

use metrics::{Counter, counter};

use crate::telemetry::metrics::{ACCESS_REVIEWS, TOKEN_LOOKUPS, TOKEN_REVIEWS};

/// The result of a token review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenVerdict {
    Accepted,
    Rejected,
    /// Upstream could not be asked, or did not answer the question.
    None,
    /// After `None`, because upstream could not be reached: the last verdict accepted it.
    Believed,
}

impl TokenVerdict {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::None => "none",
            Self::Believed => "believed",
        }
    }
}

/// Counts a review that was requested from upstream.
pub fn token_reviewed(verdict: TokenVerdict) {
    counter!(TOKEN_REVIEWS, "verdict" => verdict.as_str()).increment(1);
}

/// The result of an access review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessVerdict {
    Allowed,
    Denied,
    /// Upstream could not be asked, or did not answer the question.
    None,
    /// After `None`, because upstream could not be reached: the last verdict allowed it.
    Believed,
}

impl AccessVerdict {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::None => "none",
            Self::Believed => "believed",
        }
    }
}

/// Counts a review that was requested from upstream; cached verdicts are not counted.
pub fn access_reviewed(verdict: AccessVerdict) {
    counter!(ACCESS_REVIEWS, "verdict" => verdict.as_str()).increment(1);
}

/// Counts how often the user of a token was looked up, by whether it was known. Mostly for requests that memory could
/// answer. The handles are created once, since each such request needs them.
#[derive(Clone, Debug)]
pub struct TokenLookups {
    known: Counter,
    asked: Counter,
}

impl TokenLookups {
    /// Must be called after the metrics were installed.
    pub fn new() -> Self {
        let outcome = |outcome| counter!(TOKEN_LOOKUPS, "outcome" => outcome);
        Self { known: outcome("known"), asked: outcome("asked") }
    }

    pub fn known(&self) {
        self.known.increment(1);
    }

    pub fn asked(&self) {
        self.asked.increment(1);
    }
}

impl Default for TokenLookups {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition::recorder;

    #[test]
    fn lookups_and_reviews_are_counted_by_their_outcome() {
        let recorder = recorder();
        metrics::with_local_recorder(&recorder, || {
            let lookups = TokenLookups::new();
            lookups.asked();
            token_reviewed(TokenVerdict::Rejected);
            lookups.known();
        });
        let text = recorder.handle().render();
        assert!(text.contains("kube_fanout_token_lookups_total{outcome=\"asked\"} 1"), "{text}");
        assert!(text.contains("kube_fanout_token_lookups_total{outcome=\"known\"} 1"), "{text}");
        assert!(text.contains("kube_fanout_token_reviews_total{verdict=\"rejected\"} 1"), "{text}");
    }
}
