//! The thread that writes events.
//!
//! A thread, because a disk or a pipe may take any time, and the process has to be able to end meanwhile.

use std::{io, thread, time::Duration};

use tokio::sync::mpsc;

use super::{
    Event,
    file::{AuditFile, Lines},
    health::AuditHealth,
};
use crate::telemetry;

/// Events that are written in one piece.
pub(super) const BATCH_MAX: usize = 256;

/// What lines are written to.
pub(super) trait Sink {
    /// Writes what is left of the lines. After an error, the next call goes on with the same lines.
    fn write(&mut self, lines: &mut Lines) -> io::Result<()>;
}

impl Sink for AuditFile {
    fn write(&mut self, lines: &mut Lines) -> io::Result<()> {
        self.write(lines)
    }
}

/// Writes events in their order; what cannot be written is tried again until it is.
#[derive(Debug)]
pub(super) struct Writer<S> {
    pub(super) sink: S,
    pub(super) health: AuditHealth,
    /// The pause before something is tried again.
    pub(super) retry: Duration,
}

impl<S: Sink> Writer<S> {
    /// Returns when nothing can come any more, and what has come is written or, after a last attempt, lost.
    pub(super) fn run(mut self, mut events: mpsc::Receiver<Event>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while events.blocking_recv_many(&mut batch, BATCH_MAX) > 0 {
            let mut lines = Lines::new(batch.drain(..).flat_map(|event| event.line()).collect());
            while !self.attempt(&mut lines) {
                if events.is_closed() {
                    telemetry::audit_lost(lines.left());
                    tracing::error!(events = lines.left(), "audit events are lost: the process ends");
                    break;
                }
                thread::sleep(self.retry);
            }
        }
    }

    fn attempt(&mut self, lines: &mut Lines) -> bool {
        self.health.begins();
        let written = self.sink.write(lines);
        telemetry::audit_written(written.is_ok());
        let has_changed = self.health.ends(written.is_ok());
        match &written {
            Err(error) if has_changed => {
                tracing::error!(error = error as &dyn std::error::Error, "audit events cannot be written");
            }
            Ok(()) if has_changed => tracing::info!("audit events are written again"),
            Ok(()) | Err(_) => {}
        }
        written.is_ok()
    }
}

impl<S> Drop for Writer<S> {
    /// Also if it panicked.
    fn drop(&mut self) {
        self.health.close();
    }
}
