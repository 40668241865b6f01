//! What every part of kube-fanout rests on: Kubernetes' terms as types, the configuration, telemetry, and the limits of
//! what one client may hold. Nothing here knows of stores, watches or connections.

pub mod apimachinery;
pub mod certificate;
pub mod command_line;
pub mod config;
pub mod fairness;
pub mod json;
pub mod lifecycle;
pub mod memo;
pub mod telemetry;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, reason = "only tests use it, and fail with its panic")]
pub mod test_certificates;
