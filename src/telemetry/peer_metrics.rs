//! Metrics of the questions to other gateways.

use metrics::counter;

use crate::telemetry::metrics::PEER_QUESTIONS;

/// Counts a question to a peer. `outcome` is a value of an enum.
pub fn peer_asked(outcome: &'static str) {
    counter!(PEER_QUESTIONS, "outcome" => outcome).increment(1);
}
