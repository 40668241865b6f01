//! The state of one resource in one encoding: immutable snapshots and a bounded history, with one writer and many
//! readers. What happened before the first state may be put before the history later ([`Reader::prepend`]).
//!
//! The store knows nothing of HTTP, tasks or watchers. It keeps objects as the bytes that upstream sent; keys and the
//! values that selectors need are read from these bytes once, when the object arrives.

mod backfill;
mod block;
mod bridge;
mod budget;
mod change;
mod derived;
mod history;
mod interner;
mod json;
mod leaf;
mod object;
mod object_bytes;
mod objects;
mod packed;
mod predicate;
mod protobuf;
mod read_error;
mod schema;
mod scope;
mod search;
mod size;
mod snapshot;
mod state;
mod tag_tree;
#[cfg(test)]
mod tests;
mod view;
pub mod wire;

pub use backfill::{Backfill, NotBefore};
pub use block::{Block, Deflated, FINAL_BLOCK, PartEnd, SEPARATOR_BLOCK, Thaw};
pub use bridge::NotBridged;
pub use budget::{Claim, OverBudget, StoreBudget};
pub use change::{Change, ChangeKind, FrameKind};
pub use history::{Expired, FIRST_CHANGE, Gap, HistoryLimits};
pub use leaf::Leaf;
pub use object::{Metadata, Object};
pub use objects::{DuplicateKey, Objects};
pub use packed::{NotPacked, PACKED_FORMAT, PackedHead, RecordHead, Records, unpack};
pub(crate) use packed::{pack, unpack_block};
pub use predicate::{NotEvaluated, Predicate};
pub use read_error::ReadError;
pub use schema::{FieldPlace, PROTOBUF_MAGIC, Schema, Shape};
pub use scope::Scope;
pub use search::{NextPage, Page, Search};
pub use size::{OBJECT_BYTES, StoreSize};
pub use snapshot::Snapshot;
pub use state::{Advance, Backlog, OutOfOrder, Past, Reader, Writer, store};
pub use view::{Extract, View};
