//! The watchers of a store: the position of each one, and which of them a change wakes.
//!
//! There is no queue per watcher. A watcher is a cursor into the store's shared history plus its selector. A slow
//! watcher costs nothing but its own lag, and ends when the history window moves past it.

mod end;
mod hub;
mod initial;
mod session;

pub use end::EndCause;
pub use hub::{Behind, Hub, Interest, Subscription};
pub use session::{Bookmarks, Session, SessionOptions, Start, Step, Template};
