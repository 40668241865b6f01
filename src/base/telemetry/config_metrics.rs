//! Metrics of the configuration.

use metrics::{counter, gauge};

use crate::telemetry::metrics::{CONFIG_NEEDS_RESTART, CONFIG_RELOAD_SUCCESSFUL, CONFIG_RELOADS};

/// Counts a reload of a changed configuration, and whether it took effect.
pub fn config_reloaded(is_success: bool) {
    let outcome = if is_success { "success" } else { "failure" };
    counter!(CONFIG_RELOADS, "outcome" => outcome).increment(1);
    gauge!(CONFIG_RELOAD_SUCCESSFUL).set(f64::from(u8::from(is_success)));
}

/// Shows how many fields of the configuration file have changed and need a restart.
pub fn config_needs_restart(fields: usize) {
    gauge!(CONFIG_NEEDS_RESTART).set(fields as f64);
}
