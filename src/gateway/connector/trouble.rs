//! What can be wrong between the gateway and the API server.

use std::time::SystemTime;

/// One thing that is wrong between the gateway and the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub kind: TroubleKind,
    /// The address of the API server, without credentials.
    pub server: String,
    /// When it began.
    pub since: SystemTime,
    /// The path of the request that is refused; `None` if it is not about one request.
    pub path: Option<String>,
    /// The last error, or upstream's own words. Foreign text, of bounded length.
    pub error: String,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// No connection can be opened.
    Unreachable,
    /// The address leads back to this gateway.
    Loop,
    /// The answers are not those of an API server.
    Foreign,
    /// A connection can be opened, but the API server's version is not said on it.
    Unanswered,
    /// 401: upstream does not accept the gateway's credentials.
    Unauthorized,
    /// 403: the gateway's identity may not do what it tries.
    Forbidden,
}

impl TroubleKind {
    /// All of them, the worst first.
    pub const ALL: [Self; 6] =
        [Self::Unreachable, Self::Loop, Self::Foreign, Self::Unanswered, Self::Unauthorized, Self::Forbidden];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Loop => "loop",
            Self::Foreign => "foreign",
            Self::Unanswered => "unanswered",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
        }
    }
}
