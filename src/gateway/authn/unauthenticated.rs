//! Why a request has no user.

/// Why the gateway knows no user for a request. The request is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// It asks to impersonate another user.
    #[error("the API server decides about impersonation")]
    Impersonates,
    /// It has no credentials and anonymous access is not configured, or no valid ones.
    #[error("the request has no valid credentials")]
    NoCredentials,
    #[error("the token is not valid")]
    Rejected,
    /// The token could not be reviewed.
    #[error("the token could not be reviewed")]
    Unavailable,
}
