//! The bytes of one list, object, event or bookmark: spliced from upstream's bytes, never decoded and encoded again.
//! Knows nothing of clients.

mod bookmark;
mod compress;
mod event_form;
mod form;
mod frame;
mod gzip;
mod list;
pub mod partial;
mod pretty;
pub mod protobuf;
pub mod table;

pub use bookmark::{BookmarkTemplate, InvalidBookmark, JsonBookmark};
pub use compress::{BLOCK_MAX, Settled, compress, packed, packed_run, unpack_verified};
pub use event_form::EventForm;
pub use form::{Form, LeafChunk};
pub use frame::{added_len, error_event, frame, put_added};
pub use gzip::{GzipMember, GzipStream, deflated_items, stored};
pub use list::{JsonList, ListEnvelope, ListPosition, object, status};
pub use pretty::Pretty;

/// The annotation of the bookmark that ends the initial events (read-path 3.4).
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
