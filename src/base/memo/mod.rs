//! A short-lived cache of what upstream has said: the users of tokens, verdicts on access, and what certificates prove.
//!
//! [`TtlCache`] is bounded, and each entry has its own expiry. [`Lookups`] fills one by asking upstream, once for all
//! concurrent requests for the same key. What is cached is returned without waiting. [`SingleFlight`] shares one
//! question among concurrent callers, and keeps no answer.

mod lookups;
mod single_flight;
mod ttl_cache;

pub use lookups::{Cacheable, Capacity, Lookups};
pub use single_flight::{Join, SingleFlight};
pub use ttl_cache::{Bound, TtlCache};
