//! Bytes of one list, one object, one event, one bookmark: spliced, never encoded again.
//! Knows nothing of who reads them.

mod bookmark;
mod frame;
mod gzip;
mod list;
pub mod partial;
mod pretty;
pub mod protobuf;

use bookmark::INITIAL_EVENTS_END;

pub use bookmark::{BookmarkTemplate, InvalidBookmark};
pub use frame::{added, error_event, frame};
pub use gzip::{GzipMember, GzipStream, deflated_items, stored};
pub use list::{ListEnvelope, ListPosition, item_pieces, joined, leaf_items, object};
pub use pretty::Pretty;
