//! Keeps one store equal to upstream: a pure list/watch state machine and the loop that drives it.
//!
//! The module does not know the readers of the store; it reports what happens to the store to a [`ReflectorEvents`].

mod backfill;
mod bridge;
mod driver;
mod event;
mod event_stream;
mod evidence;
mod failure;
mod fill;
mod health;
mod item_readers;
mod list_items;
mod list_watch;
mod machine;
mod peer_fill;
mod peers;
mod protobuf_items;
#[cfg(test)]
mod tests;
mod watch_list;

pub use backfill::{NoBackfill, backfill_events, backfill_state};
pub use bridge::{Bridged, Unbridged};
pub use driver::{Collection, Reflector, ReflectorEvents, Settings};
pub use event::{EventError, UpstreamEvent};
pub use event_stream::{EventStream, LineTooLong, Lines};
pub use evidence::{Evidence, StorageEvidence};
pub use failure::Failure;
pub use fill::{Filled, head_version};
pub use health::{Condition, Health};
pub use list_watch::{ByteStream, ListPage, ListRequest, ListWatch, WatchFrom, WatchRequest};
pub use machine::{Action, FillMode, Input, Loss, Machine, Seen};
pub use peers::{FillSource, NoPeers, PeerOutcome, Peers, StateForm};
pub use watch_list::has_watch_list;
