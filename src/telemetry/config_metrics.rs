//! Metrics of the configuration.

use metrics::{counter, gauge};

use crate::telemetry::metrics::{CONFIG_RELOAD_SUCCESSFUL, CONFIG_RELOADS};

/// Counts a reload of a changed configuration, and whether it took effect.
pub fn config_reloaded(is_success: bool) {
    let outcome = if is_success { "success" } else { "failure" };
    counter!(CONFIG_RELOADS, "outcome" => outcome).increment(1);
    gauge!(CONFIG_RELOAD_SUCCESSFUL).set(f64::from(u8::from(is_success)));
}
