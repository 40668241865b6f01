//! Answers requests from memory, given a [`crate::authz::Permit`].
//!
//! If memory certainly cannot give the API server's answer, or may not be able to, the result is an error: a
//! [`ForwardReason`].

mod body;
mod chunk;
mod concurrency;
mod freshness;
mod get;
mod gzip;
mod indented;
mod list;
mod list_body;
mod most_recent;
mod reason;
mod relayed_position;
mod response_head;
mod state;
mod table;
mod table_body;
mod watch;
mod watch_body;

pub use body::Body;
pub use concurrency::{ClientReadConcurrency, ReadConcurrency, Unanswered};
pub use get::get;
pub use list::list;
pub use most_recent::SMALL_ANSWER;
pub use reason::ForwardReason;
pub use relayed_position::RelayedPosition;
pub use response_head::{AUDIT_ID, audit_id, is_audit_id, new_audit_id};
pub use table::may_print;
pub use watch::watch;

use std::sync::Arc;

use http::HeaderMap;

use crate::{cacher::Instance, connector};
use base::{
    apimachinery::{Freshness, IncludeObject, ListOptions, Representation, ResourceRequest, ShardSelector},
    config::{ReadsConfig, Shards},
    fairness::{ClientByteBudget, ClientShares},
    telemetry::Client,
};

/// A read request, and the cache that may answer it.
#[derive(Clone, Debug)]
pub struct Read<'a> {
    pub request: &'a ResourceRequest,
    pub headers: &'a HeaderMap,
    pub instance: Arc<Instance>,
    /// The representation of the response. The instance has it, or can derive it.
    pub representation: Representation,
    /// What the rows of a Table contain besides their cells, if the response is one.
    pub include_object: IncludeObject,
    /// The client, as the status page shows it.
    pub client: Arc<Client>,
    pub downstream: Downstream,
    /// Room for what answers to this client hold for themselves. Watches take it as they need it.
    pub room: ClientByteBudget,
    /// The client's turns for the work on large responses.
    pub turns: ClientReadConcurrency,
    /// The client's places among the gets and lists that wait for a proof.
    pub proofs: ClientShares,
    pub config: ReadsConfig,
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downstream {
    Client,
    /// Another gateway. It relies on getting every change, so its watches end instead of crossing a gap, unless one
    /// begins with it, and the gateway takes a bridge for one.
    Gateway {
        accepts_bridge: bool,
    },
}

impl Downstream {
    pub fn of(headers: &HeaderMap) -> Self {
        match connector::comes_from_gateway(headers) {
            true => Self::Gateway { accepts_bridge: connector::accepts_bridge(headers) },
            false => Self::Client,
        }
    }

    /// Whether the list is the question of a gateway how far upstream is: for one object of the most recent state.
    pub fn asks_for_head(self, options: &ListOptions) -> bool {
        let ListOptions { freshness, limit, continue_token, labels, fields, shards, pretty } = options;
        self != Self::Client
            && *freshness == Freshness::MostRecent
            && limit.is_some_and(|limit| limit.get() == 1)
            && continue_token.is_none()
            && (labels.is_empty() && fields.is_empty() && shards.is_none())
            && pretty.is_none()
    }
}

impl Read<'_> {
    /// The shards that are selected, if `wanted` are the request's. Upstream may ignore them, and then so does the
    /// gateway.
    async fn shards(&self, wanted: Option<&ShardSelector>) -> Result<Option<ShardSelector>, ForwardReason> {
        let Some(wanted) = wanted else { return Ok(None) };
        let has_shards = match self.config.shards {
            Shards::Always => Some(true),
            // Boxed: it is rare.
            Shards::Upstream => Box::pin(self.instance.has_shards()).await,
        };
        match has_shards {
            Some(true) => Ok(Some(wanted.clone())),
            Some(false) => Ok(None),
            None => Err(ForwardReason::UnknownShards),
        }
    }
}
