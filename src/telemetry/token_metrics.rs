//! Metrics of bearer tokens: how often their users are known, and what reviews come to.

use metrics::counter;

use crate::telemetry::metrics::{TOKEN_LOOKUPS, TOKEN_REVIEWS};

/// What a review of a token came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenVerdict {
    Accepted,
    Rejected,
    /// Upstream could not be asked, or did not say.
    None,
}

impl TokenVerdict {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::None => "none",
        }
    }
}

/// Counts a review that was asked for.
pub fn token_reviewed(verdict: TokenVerdict) {
    counter!(TOKEN_REVIEWS, "verdict" => verdict.as_str()).increment(1);
}

/// Counts a request with a token, whose user was known or had to be asked for.
pub fn token_looked_up(known: bool) {
    counter!(TOKEN_LOOKUPS, "outcome" => if known { "known" } else { "asked" }).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition::recorder;

    #[test]
    fn lookups_and_reviews_are_counted_by_their_outcome() {
        let recorder = recorder();
        metrics::with_local_recorder(&recorder, || {
            token_looked_up(false);
            token_reviewed(TokenVerdict::Rejected);
            token_looked_up(true);
        });
        let text = recorder.handle().render();
        assert!(text.contains("kube_fanout_token_lookups_total{outcome=\"asked\"} 1"), "{text}");
        assert!(text.contains("kube_fanout_token_lookups_total{outcome=\"known\"} 1"), "{text}");
        assert!(text.contains("kube_fanout_token_reviews_total{verdict=\"rejected\"} 1"), "{text}");
    }
}
