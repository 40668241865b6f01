//! The audit log of requests that the gateway answers itself, which upstream's own audit log does not see.
//!
//! Events are those of `audit.k8s.io/v1` at level Metadata, one JSON object per line. There is an event for each answer
//! from memory and for each refusal by the gateway itself; forwarded requests are in upstream's log, under the client
//! that sent them.
//!
//! Invariants of [`AuditMode::Blocking`](base::config::AuditMode::Blocking): an answer from memory begins only once
//! there is room for its event, and not while events cannot be written, so that the log misses no answers except those
//! of the process's last moments. Events are written in order, each on its own line, whatever the disk does. Two kinds
//! of events do not wait for room: the end of a watch, since its beginning is logged before it is answered, and
//! refusals, since they reveal nothing.

mod event;
mod file;
mod health;
mod log;
mod request;
mod writer;

pub use event::{Event, ObjectReference, ResponseStatus, Stage, User};
pub use health::AuditHealth;
pub use log::{AuditError, AuditLog, Place, Unwritable};
pub use request::Request;
