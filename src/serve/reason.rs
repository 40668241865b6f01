//! Why a request was not answered from memory.

use crate::{
    authz::{NotCovered, NotPermitted},
    cacher::NotCached,
};

/// Each is a field of the log, a label of a metric and what tests assert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardReason {
    /// Not a get, list or watch.
    NotARead,
    NonResourcePath,
    /// The path could mean different things to different parsers.
    AmbiguousPath,
    Subresource,
    /// A change of protocol: exec, attach, port-forward, WebSocket watches.
    Upgrade,
    /// The client wants to act as somebody else: upstream decides whether it may.
    Impersonated,
    /// Nothing good shows who asks: upstream words it, or knows somebody anonymous.
    Unauthenticated,
    /// Upstream has said that the user may not, and words it.
    Denied,
    /// Upstream has not said who asks, or whether they may.
    NoVerdict,
    /// The audit log cannot be written.
    Unaudited,
    /// Parameters that upstream would refuse, and it words the refusal.
    InvalidOptions,
    /// A form of answer that memory does not hold.
    Representation,
    /// A Table that the gateway cannot print with certainty: its columns are not understood or may have changed, or it has a value
    /// that may be printed in two ways.
    Unprintable,
    Excluded,
    /// The cache is being filled, and the read does not wait for that, or has waited too long.
    CacheFilling,
    /// The last attempt to fill the cache failed, or what it held was given up.
    FillFailed,
    /// The gateway is told to stop while the cache is being filled.
    Draining,
    UnknownResource,
    NotWatchable,
    Aggregated,
    Undiscovered,
    TooManyResources,
    /// The most recent state is wanted, and upstream's to tell.
    MostRecent,
    /// The same, of what upstream tells as fast as memory could be proven to hold it.
    MostRecentSmall,
    /// The same, of what memory could not be proven to hold in less time than upstream takes for it.
    MostRecentQuiet,
    /// The version asked for has not been reached.
    NotReached,
    /// History does not cover the version asked for.
    OutsideHistory,
    /// The version that a watch goes on from is older than the fill of the cache, or lies in a gap that was bridged, and upstream
    /// may know what came between.
    BeforeFill,
    /// A field that the gateway does not know to be selectable.
    UnsupportedField,
    /// The API server has a rule of its own for exact lists of one name (read-path 1.2).
    ExactSingleName,
    /// Upstream does not know `sendInitialEvents`, and says so in its own words.
    NoWatchList,
    /// Upstream has not sent a bookmark yet, and one has to be sent.
    NoBookmark,
    /// The cache has been without upstream for longer than `cache.maxStaleness`.
    Stale,
    /// The cache could not be shown to be recent.
    Unproven,
}

impl ForwardReason {
    /// The word for logs and metric labels.
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
            Self::Unaudited => "unaudited",
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
            Self::MostRecent => "most_recent",
            Self::MostRecentSmall => "most_recent_small",
            Self::MostRecentQuiet => "most_recent_quiet",
            Self::NotReached => "not_reached",
            Self::OutsideHistory => "outside_history",
            Self::BeforeFill => "before_fill",
            Self::UnsupportedField => "unsupported_field",
            Self::ExactSingleName => "exact_single_name",
            Self::NoWatchList => "no_watch_list",
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
        }
    }
}

impl From<NotCovered> for ForwardReason {
    fn from(_: NotCovered) -> Self {
        Self::UnknownResource
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
            NotCached::Undiscovered => Self::Undiscovered,
            NotCached::TooManyResources => Self::TooManyResources,
        }
    }
}
