//! What the gateway answered itself, and to whom: upstream's own audit log does not see it.
//!
//! Owns the audit log: events of `audit.k8s.io/v1` at level Metadata, one JSON object a line. There is an event of every answer
//! from memory and of every refusal of the gateway's own; what is forwarded is in upstream's log, as the client that asked.
//!
//! Invariants of [`Mode::Blocking`]: an answer from memory begins only once there is room for its event, and not while events
//! cannot be written; so the log lacks no answer but those of the process's last moments. Events are written in order, each
//! on a line of its own, whatever the disk does. The end of a watch, whose beginning is logged before it is answered, and
//! refusals, which tell nothing, do not wait for room.

mod event;
mod file;
mod health;
mod log;
mod request;
mod writer;

pub use event::{Event, ObjectReference, ResponseStatus, Stage, User};
pub use health::AuditHealth;
pub use log::{AuditError, AuditLog, Mode, Place, Unwritable};
pub use request::Request;
