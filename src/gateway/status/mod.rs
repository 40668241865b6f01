//! The state and the savings of a gateway, as one value: for the page, for `/status.json` and for `kube-fanout status`.
//!
//! Invariants: every number that `/metrics` has too is taken from there ([`base::telemetry::Readings`]), so that the
//! two never differ; the status contains no secrets; names of users and objects are left out unless the reader may know
//! them ([`Detail`]).

mod cache_rows;
mod collect;
mod detail;
mod estimate;
mod model;
mod page;
mod peers;
mod reasons;
mod samples;
mod servers;
mod text;
mod troubles;
mod units;

pub use collect::{Configured, Source, savings};
pub use detail::Detail;
pub use model::{
    API_VERSION, Cache, CacheBytes, CheckStatus, ClientStatus, Forwarded, Gateway, GatewayStatus, KIND, LastHour,
    Limit, Peer, Reads, Reload, Resource, Restart, Savings, Server, Setting, SlowWatcher, State, Trouble, Upstream,
};
pub use page::{Asset, html};
pub use samples::Samples;
pub use text::text;
