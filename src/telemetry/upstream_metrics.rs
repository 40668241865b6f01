//! Metrics of troubles between the gateway and API servers.

use metrics::gauge;

use crate::telemetry::metrics::UPSTREAM_TROUBLES;

/// Shows how many troubles of each kind there are now. Kinds without any have to be given, too: a series that is not
/// there cannot be told from one that ended.
pub fn show_troubles(counts: impl IntoIterator<Item = (&'static str, usize)>) {
    for (kind, count) in counts {
        gauge!(UPSTREAM_TROUBLES, "kind" => kind).set(count as f64);
    }
}
