//! What upstream has said, remembered for a short while: whose a token is, what a user may, what a certificate proves.
//!
//! [`Kept`] is the memory: bounded, and each entry ends by a time of its own. [`Answers`] fills one by asking: once for all who want
//! to know the same at the same time. What is known is had without waiting, and costs a lookup.

mod answers;
mod kept;

pub use answers::{Answer, Answers, Room};
pub use kept::{Bound, Kept};
