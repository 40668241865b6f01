//! Authorization: from a user and a request to a [`Permit`], or a refusal.
//!
//! In `delegated` mode upstream decides, by a SubjectAccessReview with the attributes that it would derive from the
//! same request ([`Attributes`]). Fails closed: without a verdict there is no permit; the request is forwarded, and
//! upstream decides there.

mod attributes;
mod authorizer;
mod lease;
mod non_resource;
#[cfg(any(test, fuzzing))]
pub(crate) mod oracle;
mod review;
#[cfg(test)]
mod tests;
mod verdicts;

pub use attributes::Attributes;
pub use authorizer::{Authorizer, NotCovered, Permit};
pub use lease::{Lease, LeaseState};
pub use non_resource::may_get;
pub use verdicts::{Config, NotPermitted};
