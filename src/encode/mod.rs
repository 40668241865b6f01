//! Bytes of one list, one object, one event, one bookmark: spliced, never encoded again.
//! Knows nothing of who reads them.

mod bookmark;
mod frame;
mod list;
mod pretty;

pub use bookmark::{BookmarkTemplate, InvalidBookmark};
pub use frame::{added, error_event, frame};
pub use list::{ListEnvelope, ListPosition, joined, leaf_items, object};
pub use pretty::Pretty;
