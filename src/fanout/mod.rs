//! Who is watching, where each one stands, and whom a change has to wake.
//!
//! There is no queue per watcher. A watcher is a cursor into the store's shared history plus its
//! selector; a slow one costs nothing but its own lag, and when the window moves past it, it ends.

mod end;
mod hub;
mod initial;
mod interest;
mod session;

pub use end::EndCause;
pub use hub::{Behind, Hub, Subscription};
pub use interest::Interest;
pub use session::{Bookmarks, Session, Start, Step};
