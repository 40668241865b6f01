//! A short-lived cache of what upstream has said: the users of tokens, verdicts on access, and what certificates prove.
//!
//! [`Kept`] is the cache: it is bounded, and each entry has its own expiry. [`Answers`] fills one by asking upstream,
//! once for all concurrent requests for the same key. A cached value costs a lookup, without waiting.

mod answers;
mod kept;

pub use answers::{Answer, Answers, Room};
pub use kept::{Bound, Kept};
