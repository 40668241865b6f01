//! Protobuf: responses with the same bytes as upstream's (read-path 3.1, 4.1), spliced from the objects' own messages,
//! and the parsing that a reflector needs.
//!
//! Everything except list items is in an envelope: `k8s\0` and an `Unknown` message that contains kind and version.

mod bookmark;
mod envelope;
mod event;
mod list;
mod meta;
mod read;
mod status;
#[cfg(test)]
mod tests;

pub use bookmark::{BookmarkTemplate, InvalidBookmark, RecordedBookmark};
pub use envelope::{envelope, object};
pub use event::{added, error_event, event, event_len, frame};
pub use list::{ListEnvelope, item_len, put_item_opening};
pub use read::{FrameReader, FrameTooLong, InvalidMessage, LIST_ITEMS, ListBody, WatchEvent, read_status};
pub use status::{StatusMessage, status};
