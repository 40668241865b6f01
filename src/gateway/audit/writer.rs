//! The thread that writes events.
//!
//! It is a thread since a disk or a pipe may block for any time, and the process must be able to end meanwhile.

use std::{io, thread, time::Duration};

use tokio::sync::mpsc;

use super::{
    Event,
    file::{AuditFile, Lines},
    health::AuditHealth,
};
use base::telemetry::{self, AuditWrite, Chain};

/// Maximum number of events per write.
pub(super) const BATCH_MAX: usize = 256;

/// The destination of the lines.
pub(super) trait Sink {
    /// Writes the rest of the lines. After an error, it is called again with the same lines.
    fn write(&mut self, lines: &mut Lines) -> io::Result<()>;
}

impl Sink for AuditFile {
    fn write(&mut self, lines: &mut Lines) -> io::Result<()> {
        self.write(lines)
    }
}

/// Writes events in order, and retries those that cannot be written.
#[derive(Debug)]
pub(super) struct Writer<S> {
    pub(super) sink: S,
    pub(super) health: AuditHealth,
    /// The pause between attempts.
    pub(super) retry: Duration,
}

impl<S: Sink> Writer<S> {
    /// Runs until the queue is closed and all its events are written, or lost after a last attempt.
    pub(super) fn run(mut self, mut events: mpsc::Receiver<Event>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while events.blocking_recv_many(&mut batch, BATCH_MAX) > 0 {
            let mut lines = Lines::new(batch.drain(..).flat_map(|event| event.line()).collect());
            while !self.attempt(&mut lines) {
                if events.is_closed() {
                    telemetry::audit_lost(lines.left());
                    tracing::error!(events = lines.left(), "audit events lost at the end of the process");
                    break;
                }
                thread::sleep(self.retry);
            }
        }
    }

    fn attempt(&mut self, lines: &mut Lines) -> bool {
        self.health.begins();
        let written = self.sink.write(lines);
        telemetry::audit_write(if written.is_ok() { AuditWrite::Written } else { AuditWrite::Failed });
        let has_changed = self.health.ends(written.is_ok());
        match &written {
            Err(error) if has_changed => {
                tracing::error!(error = %Chain(error), "cannot write audit events");
            }
            Ok(()) if has_changed => tracing::info!("audit events are written again"),
            Ok(()) | Err(_) => {}
        }
        written.is_ok()
    }
}

impl<S> Drop for Writer<S> {
    /// Runs even if the writer panics.
    fn drop(&mut self) {
        self.health.close();
    }
}
