//! The audit event of an answer from memory, from its beginning to its end.

use crate::audit::{AuditLog, Event, Place, Stage};

/// Logs the end of its answer when dropped.
#[derive(Debug)]
pub(super) struct Audited {
    log: AuditLog,
    /// Room for the end; what lasts does not keep it so long.
    place: Option<Place>,
    event: Option<Box<Event>>,
}

impl Audited {
    /// Of an answer that ends soon: its only event is its end, for which there is room.
    pub(super) fn ends_soon(log: AuditLog, place: Place, event: Event) -> Self {
        Self { log, place: Some(place), event: Some(Box::new(event)) }
    }

    /// Of an answer that lasts: its beginning is logged now.
    pub(super) fn lasts(log: AuditLog, place: Place, event: Event) -> Self {
        place.fill(event.clone().at(Stage::ResponseStarted));
        Self { log, place: None, event: Some(Box::new(event)) }
    }
}

impl Drop for Audited {
    fn drop(&mut self) {
        let Some(event) = self.event.take() else { return };
        let event = event.at(Stage::ResponseComplete);
        match self.place.take() {
            Some(place) => place.fill(event),
            None => self.log.offer(event),
        }
    }
}
