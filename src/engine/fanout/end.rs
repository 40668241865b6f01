//! Why a watch ended. In each case but one, the client sees a clean end of the stream (read-path 2.1).

/// The cause, for metrics and the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// Its `timeoutSeconds` elapsed.
    Deadline,
    /// The client was too slow: history moved past it.
    Lagged,
    /// The store was filled again, and the changes in between are unknown.
    Relisted,
    /// Upstream's versions went back: it no longer has the state that the watch was answered from.
    Lost,
    /// The cache was found to differ from upstream. The watch ends with an ERROR event, status 410, so that the client
    /// lists anew.
    Corrupt,
    /// The resource has another definition, or another server answers for it. The watch ends with an ERROR event,
    /// status 410, so that the client lists anew.
    Replaced,
    /// Nothing was received from upstream for longer than the configuration allows.
    Stale,
    /// The resource is gone, or its cache was idle.
    Stopped,
    /// The gateway is draining.
    Drained,
    /// An object cannot be written in the requested form.
    Unencodable,
    /// Other answers of its client, which are not read, left no room for its initial events.
    NoRoom,
    /// Its user is no longer allowed to read this.
    Revoked,
    /// For too long it could not be determined whether its user is still allowed to read this.
    Unconfirmed,
    /// The client went away.
    ClientGone,
}

impl EndCause {
    /// The value of the metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Lagged => "lagged",
            Self::Relisted => "relisted",
            Self::Lost => "lost",
            Self::Corrupt => "corrupt",
            Self::Replaced => "replaced",
            Self::Stale => "stale",
            Self::Stopped => "stopped",
            Self::Drained => "drained",
            Self::Unencodable => "unencodable",
            Self::NoRoom => "no_room",
            Self::Revoked => "revoked",
            Self::Unconfirmed => "unconfirmed",
            Self::ClientGone => "client_gone",
        }
    }
}
