//! Why memory cannot answer for a resource.

/// Why a resource cannot be answered from memory now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCached {
    /// The configuration excludes it.
    Excluded,
    /// It is being filled, or filled again.
    Filling,
    /// The last attempt to fill it failed, or its contents were discarded; the next attempt begins after a delay.
    Unfilled,
    /// It was being filled when the drain began.
    Draining,
    UnknownResource,
    /// It cannot be listed and watched.
    NotWatchable,
    /// Another server behind upstream answers for it, by its own rules.
    Aggregated,
    /// Upstream could not be asked what it is.
    Undiscovered,
    /// The gateway may not list API services, which say whether another server answers for it.
    Unattributed,
    /// The gateway itself may not list and watch it.
    Forbidden,
    /// The maximum number of parts of one resource is cached.
    TooManyScopes,
    /// No store covers the read, and none is started for a read of one name (`cache.scope: requested`).
    SingleObject,
    /// Custom resources have no protobuf.
    NotInProtobuf,
    /// The maximum number of stores is reached.
    TooManyResources,
    /// It does not fit into the memory for caches.
    MemoryFull,
}
