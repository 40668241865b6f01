//! All metrics, the log, and the access log.
//!
//! Invariant: no code outside of this module names a metric or a label. Label values come from enums, or are resources
//! that discovery or a cache knows: never objects, users or other names that a client could invent.

mod access_log;
mod cache_metrics;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, reason = "only tests use it, and fail with its panic")]
mod captured_log;
mod chain;
mod config_metrics;
mod connection_metrics;
mod exposition;
mod limits;
mod log_queue;
mod logging;
mod memory_metrics;
mod metrics;
mod output_metrics;
mod process_metrics;
mod readings;
mod request_metrics;
mod review_metrics;
mod top_clients;
mod upstream_metrics;

pub use access_log::{AccessLines, AccessRecord, CLIENT_CLOSED, Finished, Outcome, SLOW, access_log};
pub use cache_metrics::CacheMetrics;
#[cfg(any(test, feature = "testing"))]
pub use captured_log::CapturedLog;
pub use chain::{Chain, caused_by, causes};
pub use config_metrics::{config_needs_restart, config_reloaded};
pub use connection_metrics::{
    ConnectionError, ConnectionGuard, certificate_reloaded, connection_accepted, connection_failed,
};
pub use exposition::{Exposition, InstallError, install, recorder};
pub use limits::{show_limit, used_limits};
pub use logging::{Log, LogFormat, LogLevel, LoggingError, init_logging, log_subscriber};
pub use memory_metrics::{MemoryStep, count_memory_step};
pub use metrics::{ALL as METRICS, Kind, Metric, limit_reached};
pub use output_metrics::{AuditWrite, SpansDropped, audit_lost, audit_write, spans_dropped, spans_exported};
pub use readings::{BytesReading, CacheLabels, CacheReadings, LimitReading, Readings, RequestsReading};
pub use request_metrics::RequestMetrics;
pub use review_metrics::{AccessVerdict, TokenLookups, TokenVerdict, access_reviewed, token_reviewed};
pub use top_clients::{Client, ClientReading, OpenWatch, TopClients};
pub use upstream_metrics::{
    fallback_is_used, front_proxy_accepted, peer_asked, peer_searched, server_connections, server_is_in_use,
    server_set_aside, show_troubles, state_persisted,
};
