//! What was read from memory, and by whom: upstream's own audit log does not see these reads.
//!
//! Owns the audit log: events of `audit.k8s.io/v1` at level Metadata, one JSON object a line. Invariants: an answer from
//! memory begins only once there is room for its event, so that a slow disk slows readers down instead of losing events;
//! the one exception is the end of a watch, whose beginning is logged before it is answered.

mod event;
mod log;

pub use event::{Event, ObjectReference, Request, ResponseStatus, Stage, User};
pub use log::{AuditError, AuditLog, Place};
