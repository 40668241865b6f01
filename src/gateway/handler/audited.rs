//! The audit events of a long-running answer, from its beginning to its end.

use crate::audit::{AuditLog, Event, Place, Stage};

/// Logs the end of its answer when dropped.
#[derive(Debug)]
pub(super) struct Audited {
    log: AuditLog,
    event: Option<Box<Event>>,
}

/// Logs an answer that ends by itself as soon as it has a head: a client that does not read must not hold room in the
/// log.
pub(super) fn ends_soon(place: Place, event: Event) {
    place.fill(event.at(Stage::ResponseComplete));
}

impl Audited {
    /// For a long-running answer: logs its beginning now.
    pub(super) fn started(log: AuditLog, place: Place, event: Event) -> Self {
        place.fill(event.clone().at(Stage::ResponseStarted));
        Self { log, event: Some(Box::new(event)) }
    }
}

impl Drop for Audited {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            self.log.offer(event.at(Stage::ResponseComplete));
        }
    }
}
