//! Why a request was not answered from memory.

use crate::{
    authz::{NotCovered, NotPermitted},
    cacher::NotCached,
};
use engine::store::NotEvaluated;

/// Appears in a field of the log and a label of a metric, and is what tests assert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardReason {
    /// The request is not a get, list or watch.
    NotARead,
    NonResourcePath,
    /// Different parsers could read the path in different ways.
    AmbiguousPath,
    Subresource,
    /// A change of protocol: exec, attach, port-forward, WebSocket watches.
    Upgrade,
    /// The client wants to impersonate another user: upstream decides whether that is allowed.
    Impersonated,
    /// The request has no valid credentials: upstream words the error, or treats the client as anonymous.
    Unauthenticated,
    /// Upstream has denied the user's request, and words the error.
    Denied,
    /// Upstream has not reported the user's identity, or whether the request is allowed.
    NoVerdict,
    /// Upstream was not asked whether the request is allowed, because its client, or all together, asked too much.
    TooManyReviews,
    /// The audit log cannot be written.
    Unaudited,
    /// The name or the namespace is longer than those of nearly all objects, and would be held as long as a watch
    /// lasts.
    LongName,
    /// Upstream would refuse these parameters, and words the error.
    InvalidOptions,
    /// Memory cannot give the response in the requested representation.
    Representation,
    /// A Table that the gateway cannot print with certainty: its columns are not supported or may have changed, or one
    /// of its values may be printed in two ways.
    Unprintable,
    Excluded,
    /// The cache is being filled, and the read does not wait for that, or has waited too long.
    CacheFilling,
    /// The last attempt to fill the cache failed, or its contents were discarded.
    FillFailed,
    /// The gateway was asked to stop while the cache was being filled.
    Draining,
    UnknownResource,
    NotWatchable,
    Aggregated,
    Undiscovered,
    TooManyResources,
    /// The collection does not fit into the memory for caches (`cache.bytes`).
    MemoryFull,
    /// The gateway itself may not list and watch the collection.
    GatewayForbidden,
    /// The maximum number of parts of one resource is cached (`cache.scopesPerResource`).
    TooManyScopes,
    /// A read of one name, for which no cache is started (`cache.scope: requested`).
    SingleObject,
    /// The client asks for the most recent state, which is left to upstream.
    MostRecent,
    /// A most-recent read whose response upstream sends as fast as memory could be proven to be recent.
    MostRecentSmall,
    /// A most-recent read for which a proof would take longer than upstream takes for the response.
    MostRecentQuiet,
    /// The requested version has not been reached.
    NotReached,
    /// History does not cover the requested version. Upstream may know the changes after it.
    OutsideHistory,
    /// The version that a watch continues from is older than the fill of the cache, or lies in a gap that was bridged.
    /// Upstream may know the changes after it.
    BeforeFill,
    /// A field that the gateway does not know to be selectable.
    UnsupportedField,
    /// Selectors with so many requirements or values that evaluating them takes more time than a client may ask for.
    CostlySelector,
    /// The API server has a special rule for exact lists of one name (read-path 1.2).
    ExactSingleName,
    /// Upstream does not support `sendInitialEvents`, and words the error.
    NoWatchList,
    /// Whether upstream selects by `shardSelector` is not known: it was asked, and has not answered.
    UnknownShards,
    /// A bookmark is required, but upstream has not sent one yet that could serve as its template.
    NoBookmark,
    /// The cache has been without upstream for longer than `cache.maxStaleness`.
    Stale,
    /// The cache could not be proven to be recent.
    Unproven,
}

impl ForwardReason {
    /// The value in logs and metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotARead => "not_a_read",
            Self::NonResourcePath => "non_resource_path",
            Self::AmbiguousPath => "ambiguous_path",
            Self::Subresource => "subresource",
            Self::Upgrade => "upgrade",
            Self::Impersonated => "impersonated",
            Self::Unauthenticated => "unauthenticated",
            Self::Denied => "denied",
            Self::NoVerdict => "no_verdict",
            Self::TooManyReviews => "too_many_reviews",
            Self::Unaudited => "unaudited",
            Self::LongName => "long_name",
            Self::InvalidOptions => "invalid_options",
            Self::Representation => "representation",
            Self::Unprintable => "unprintable",
            Self::Excluded => "excluded",
            Self::CacheFilling => "cache_filling",
            Self::FillFailed => "fill_failed",
            Self::Draining => "draining",
            Self::UnknownResource => "unknown_resource",
            Self::NotWatchable => "not_watchable",
            Self::Aggregated => "aggregated",
            Self::Undiscovered => "undiscovered",
            Self::TooManyResources => "too_many_resources",
            Self::MemoryFull => "memory_full",
            Self::GatewayForbidden => "gateway_forbidden",
            Self::TooManyScopes => "too_many_scopes",
            Self::SingleObject => "single_object",
            Self::MostRecent => "most_recent",
            Self::MostRecentSmall => "most_recent_small",
            Self::MostRecentQuiet => "most_recent_quiet",
            Self::NotReached => "not_reached",
            Self::OutsideHistory => "outside_history",
            Self::BeforeFill => "before_fill",
            Self::UnsupportedField => "unsupported_field",
            Self::CostlySelector => "costly_selector",
            Self::ExactSingleName => "exact_single_name",
            Self::NoWatchList => "no_watch_list",
            Self::UnknownShards => "unknown_shards",
            Self::NoBookmark => "no_bookmark",
            Self::Stale => "stale",
            Self::Unproven => "unproven",
        }
    }
}

impl From<NotPermitted> for ForwardReason {
    fn from(why: NotPermitted) -> Self {
        match why {
            NotPermitted::Denied => Self::Denied,
            NotPermitted::NoVerdict => Self::NoVerdict,
            NotPermitted::Unasked => Self::TooManyReviews,
        }
    }
}

impl From<NotCovered> for ForwardReason {
    fn from(_: NotCovered) -> Self {
        Self::UnknownResource
    }
}

impl From<NotEvaluated> for ForwardReason {
    fn from(why: NotEvaluated) -> Self {
        match why {
            NotEvaluated::UnsupportedField(_) => Self::UnsupportedField,
            NotEvaluated::Costly => Self::CostlySelector,
        }
    }
}

impl From<NotCached> for ForwardReason {
    fn from(why: NotCached) -> Self {
        match why {
            NotCached::Excluded => Self::Excluded,
            NotCached::Filling => Self::CacheFilling,
            NotCached::Unfilled => Self::FillFailed,
            NotCached::Draining => Self::Draining,
            NotCached::UnknownResource => Self::UnknownResource,
            NotCached::NotWatchable => Self::NotWatchable,
            NotCached::NotInProtobuf => Self::Representation,
            NotCached::Aggregated => Self::Aggregated,
            NotCached::Undiscovered | NotCached::Unattributed => Self::Undiscovered,
            NotCached::TooManyResources => Self::TooManyResources,
            NotCached::MemoryFull => Self::MemoryFull,
            NotCached::Forbidden => Self::GatewayForbidden,
            NotCached::TooManyScopes => Self::TooManyScopes,
            NotCached::SingleObject => Self::SingleObject,
        }
    }
}
