//! The request path: parse, authenticate, authorize, decide, serve or forward, respond.

mod accounting;
mod body;
mod cache_lookup;
mod cors;
mod handle;
mod host_check;
mod kept_discovery;
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
mod settings;
mod wait;

pub use accounting::Accounting;
pub use body::Body;
pub use handle::{Clients, Gateway};
pub use host_check::HostCheck;
pub use kept_discovery::KeptDiscovery;
pub use request_record::Journal;
pub use settings::Settings;
