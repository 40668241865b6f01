//! One resource's store, reflector and watchers as a unit, and the collection of all of them, started on first use.
//!
//! ```text
//! Cachers ── resource ──► Entry ─┬─ reflector task (fills, applies)
//!                                └─ Arc<Instance>: reader, hub, envelope, siblings
//! ```
//!
//! An instance lives from one fill to the next, and beyond those that are bridged. An old instance can still be read by
//! its holders; its watches have been ended.

mod backfill;
mod budget;
mod cachers;
mod candidates;
mod columns;
mod comparison;
mod compress;
mod entry;
mod events;
mod instance;
mod life;
mod not_cached;
mod persist;
mod prewarm;
mod progress_probe;
mod proof_cost;
mod proofs;
mod shards;
mod staleness;
mod status;
mod store_key;
mod verifier;

pub use backfill::Resumed;
pub use cachers::{Cachers, Config, FILL_WAITERS_MAX, Readiness, Scopes};
pub use entry::Restart;
pub use instance::Instance;
pub use not_cached::NotCached;
pub use prewarm::{AGGREGATED, NO_SUCH_GROUP, NO_SUCH_RESOURCE, NOT_WATCHABLE};
pub use proofs::{PROOF_WAITERS_MAX, Unproven};
pub use staleness::StalenessLimit;
pub use status::CacheStatus;
pub use store_key::Prewarmed;
