//! Answers from memory, for whoever holds a [`crate::authz::Permit`].
//!
//! What an answer from memory could not certainly give is an error here: a [`ForwardReason`].

mod body;
mod freshness;
mod get;
mod gzip;
mod head;
mod list;
mod most_recent;
mod reason;
mod table;
mod told;
mod watch;

pub use body::Body;
pub use get::get;
pub use head::{AUDIT_ID, audit_id, new_audit_id};
pub use list::list;
pub use most_recent::{MostRecent, SMALL_ANSWER};
pub use reason::ForwardReason;
pub use told::Told;
pub use watch::{go_on, watch};

use std::{sync::Arc, time::Duration};

use http::HeaderMap;

use crate::{
    apimachinery::{Representation, ResourceRequest},
    cacher::Instance,
    telemetry::Client,
};

/// A read as it came, and the cache that may answer it.
#[derive(Clone, Debug)]
pub struct Read<'a> {
    pub request: &'a ResourceRequest,
    pub query: Option<&'a str>,
    pub headers: &'a HeaderMap,
    pub instance: Arc<Instance>,
    /// In which form; the instance holds it, or what it is made from.
    pub form: Representation,
    /// Who asks, as the operator is shown it.
    pub client: Arc<Client>,
    /// Another gateway asks, which takes a watch for all that happens: it is not led over a bridge.
    pub for_gateway: bool,
    pub config: Config,
}

/// How reads are answered.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How long a read waits for a version that the cache has not reached, before it is proven.
    pub freshness_wait: Duration,
    /// How long a read that memory will be able to answer waits for its cache to be filled, before it is forwarded.
    pub fill_wait: Duration,
    /// Whether most-recent watches are answered from memory after a proof, or forwarded.
    pub prove_most_recent: bool,
    /// The same of gets and lists.
    pub most_recent: MostRecent,
}
