//! The request path: parse, authenticate, authorize, decide, serve or forward, respond.

mod accounting;
mod admission;
mod audited;
mod body;
mod cache_lookup;
mod context;
mod handle;
mod kept_discovery;
mod pages;
mod peer;
mod permission;
mod refusal;
mod relayed;
mod request_record;
mod respond;
mod resumption;
mod route;
#[cfg(any(test, fuzzing))]
pub mod same_request;
mod served;
mod settings;
mod stages;
mod wait;

pub use accounting::Accounting;
pub use admission::Admission;
pub use body::Body;
pub use handle::{Clients, Gateway};
pub use request_record::Journal;
pub use settings::Settings;
