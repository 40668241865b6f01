//! Metrics of client connections.

use metrics::{Gauge, counter, gauge};

use crate::telemetry::metrics::{CERTIFICATE_RELOADS, CONNECTION_ERRORS, CONNECTIONS, CONNECTIONS_ACCEPTED};

/// Why a connection could not be accepted, or broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionError {
    /// The listener failed to accept the connection.
    Accept,
    /// The TLS handshake failed.
    Handshake,
    /// The TLS handshake took too long.
    HandshakeTimeout,
    /// The headers of a request took too long to arrive.
    HeaderTimeout,
    /// The client violated HTTP.
    Protocol,
}

impl ConnectionError {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Handshake => "handshake",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::HeaderTimeout => "header_timeout",
            Self::Protocol => "protocol",
        }
    }
}

/// One open connection; counted until it is dropped.
#[derive(Debug)]
pub struct ConnectionGuard {
    open: Gauge,
}

/// Counts an accepted connection.
pub fn connection_accepted() -> ConnectionGuard {
    let open = gauge!(CONNECTIONS);
    open.increment(1.0);
    counter!(CONNECTIONS_ACCEPTED).increment(1);
    ConnectionGuard { open }
}

/// Counts a failed connection.
pub fn connection_failed(cause: ConnectionError) {
    counter!(CONNECTION_ERRORS, "cause" => cause.as_str()).increment(1);
}

/// Counts a change of a file with certificates or authorities, and whether the new contents are in use.
pub fn certificate_reloaded(replaced: bool) {
    counter!(CERTIFICATE_RELOADS, "outcome" => if replaced { "replaced" } else { "failed" }).increment(1);
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.open.decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition::recorder;

    #[test]
    fn open_connections_are_counted_until_their_guard_is_dropped() {
        let recorder = recorder();
        metrics::with_local_recorder(&recorder, || {
            let _open = connection_accepted();
            drop(connection_accepted());
            connection_failed(ConnectionError::Handshake);
            let text = recorder.handle().render();
            assert!(text.contains("kube_fanout_connections 1"), "{text}");
            assert!(text.contains("kube_fanout_connections_accepted_total 2"), "{text}");
            assert!(text.contains("kube_fanout_connection_errors_total{cause=\"handshake\"} 1"), "{text}");
        });
    }
}
