//! Why somebody has no user.

/// Why a request has no user as far as the gateway can say. It is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// It is to act as somebody else.
    #[error("upstream decides who may impersonate whom")]
    Impersonates,
    /// It has shown nothing, and nobody is anonymous here; or nothing that is good.
    #[error("nothing names a user")]
    Nobody,
    #[error("the token is not good")]
    Rejected,
    /// Nobody could be asked about its token.
    #[error("the token could not be reviewed")]
    Unavailable,
}
