//! Metrics of the API servers, and of the questions to other gateways.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::telemetry::metrics::{
    PEER_QUESTIONS, PEER_SEARCH_DURATION, PERSISTED_STATES, UPSTREAM_FALLBACK_IN_USE, UPSTREAM_FRONT_PROXY_ACCEPTED,
    UPSTREAM_SERVER_CONNECTIONS, UPSTREAM_SERVER_IN_USE, UPSTREAM_SERVER_SET_ASIDE, UPSTREAM_TROUBLES,
};

/// Shows how many troubles of each kind there are now. Kinds without any have to be given, too: a series that is not
/// there cannot be told from one that ended.
pub fn show_troubles(counts: impl IntoIterator<Item = (&'static str, usize)>) {
    for (kind, count) in counts {
        gauge!(UPSTREAM_TROUBLES, "kind" => kind).set(count as f64);
    }
}

/// Shows whether new connections go to one of several API servers. `server` is its configured address.
pub fn server_is_in_use(server: &str, is_in_use: bool) {
    gauge!(UPSTREAM_SERVER_IN_USE, "server" => server.to_owned()).set(if is_in_use { 1.0 } else { 0.0 });
}

/// Shows whether the servers of `upstream.fallback` are used.
pub fn fallback_is_used(is_used: bool) {
    gauge!(UPSTREAM_FALLBACK_IN_USE).set(if is_used { 1.0 } else { 0.0 });
}

/// Shows whether an API server accepts the front-proxy certificate. `server` is its address.
pub fn front_proxy_accepted(server: &str, is_accepted: bool) {
    gauge!(UPSTREAM_FRONT_PROXY_ACCEPTED, "server" => server.to_owned()).set(if is_accepted { 1.0 } else { 0.0 });
}

/// Shows how many connections there are to one of several API servers.
pub fn server_connections(server: &str, connections: usize) {
    gauge!(UPSTREAM_SERVER_CONNECTIONS, "server" => server.to_owned()).set(connections as f64);
}

/// Counts that one of several API servers was set aside, or is not used at all.
pub fn server_set_aside(server: &str, reason: &'static str) {
    counter!(UPSTREAM_SERVER_SET_ASIDE, "server" => server.to_owned(), "reason" => reason).increment(1);
}

/// Counts a question to a peer. `outcome` is a value of an enum.
pub fn peer_asked(outcome: &'static str) {
    counter!(PEER_QUESTIONS, "outcome" => outcome).increment(1);
}

/// Counts a state that was written, or read, or not: `outcome` is a word of an enum, or of the module `persist`.
pub fn state_persisted(outcome: &'static str) {
    counter!(PERSISTED_STATES, "outcome" => outcome).increment(1);
}

/// Counts a search for a peer that has a state, which took that long. `outcome` is a value of an enum.
pub fn peer_searched(outcome: &'static str, took: Duration) {
    histogram!(PEER_SEARCH_DURATION, "outcome" => outcome).record(took);
}
