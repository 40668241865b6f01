//! Why a watch ended. The client sees a clean end of the stream in each case (read-path 2.1), but for one.

/// The cause, for metrics and the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// Its `timeoutSeconds` are over.
    Deadline,
    /// It was too slow: history moved past it.
    Lagged,
    /// The store was filled anew and what happened in between is not known.
    Relisted,
    /// Upstream's versions went back: it does not have any more what the watch was answered from.
    Lost,
    /// What it was answered from was not what upstream had: it ends with an ERROR event, 410, so that the client lists anew.
    Corrupt,
    /// Upstream has not been heard for longer than the configuration allows.
    Stale,
    /// The resource is gone, or its cache was idle.
    Stopped,
    /// The gateway is draining.
    Drained,
    /// An object cannot be written in the form that was asked for.
    Unencodable,
    /// Its user may no longer read this.
    Revoked,
    /// It could not be found out for too long whether its user still may.
    Unconfirmed,
    /// The client went away.
    ClientGone,
}

impl EndCause {
    /// The word for metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Lagged => "lagged",
            Self::Relisted => "relisted",
            Self::Lost => "lost",
            Self::Corrupt => "corrupt",
            Self::Stale => "stale",
            Self::Stopped => "stopped",
            Self::Drained => "drained",
            Self::Unencodable => "unencodable",
            Self::Revoked => "revoked",
            Self::Unconfirmed => "unconfirmed",
            Self::ClientGone => "client_gone",
        }
    }
}
