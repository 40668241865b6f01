//! Why a request could not be forwarded. An answer from upstream is never an error, regardless of its status.

use http::HeaderName;

use crate::connector::{Fault, IdentityError, Retry, SendError};

#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    #[error("CONNECT is not supported")]
    Connect,
    /// Dropping the header would give the request another identity.
    #[error("{0} carries the client's identity and must not be listed in Connection")]
    IdentityHeader(HeaderName),
    #[error("cannot forward the request under this client's identity")]
    Identity(#[source] IdentityError),
    /// The credentials belong to the other mode, or the gateway has no means to assert a verified user. Such
    /// configurations are refused.
    #[error("the gateway is not configured to forward requests under this client's identity")]
    NoIdentity,
    /// The client's requests in flight exceed its share; other clients' requests go on.
    #[error(
        "this client has too many requests to the API server in flight: limits.forwardedPerClient, or its part of the \
         connections of one kind, is used up"
    )]
    ClientShare,
    /// The client's earlier requests of the same kind took too long; other clients' requests go on.
    #[error(
        "the request waited too long for earlier ones of this client: those with long selectors, and those whose \
         access could not be reviewed, are sent a few at a time"
    )]
    NoTurn,
    /// The places for delayed requests of the connection are taken.
    #[error(
        "many credentials of this address were refused, and too many requests of this connection are delayed for that \
         already"
    )]
    TooManyDelayed,
    #[error("the API server switched protocols although the request did not ask for it")]
    UnaskedUpgrade,
    #[error("no response from the API server")]
    NoAnswer(#[source] SendError),
}

impl From<SendError> for ForwardError {
    fn from(error: SendError) -> Self {
        if matches!(error, SendError::ClientShare) {
            Self::ClientShare
        } else if matches!(error, SendError::NotAccepted) {
            Self::Identity(IdentityError::Undecided)
        } else {
            Self::NoAnswer(error)
        }
    }
}

impl ForwardError {
    /// Whether the front-proxy certificate is not used, which the log says once.
    pub fn is_of_front_proxy(&self) -> bool {
        matches!(self, Self::Identity(IdentityError::NotBelieved | IdentityError::Undecided))
    }

    /// Whether there was no connection to the API server.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::NoAnswer(error) if error.is_unreachable())
    }

    /// The same, or the connection was lost before the API server answered. Not if another server is there, which
    /// cannot show that it is the API server.
    pub fn is_away(&self) -> bool {
        let is_another = matches!(self, Self::NoAnswer(error) if error.is_unverified());
        let is_lost = matches!(self, Self::NoAnswer(SendError::ConnectionLost { .. }));
        (self.is_unreachable() || is_lost) && !is_another
    }

    /// Whether upstream is not there to be asked: see [`SendError::is_gone`].
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::NoAnswer(error) if error.is_gone())
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::NoIdentity | Self::Identity(IdentityError::NotBelieved | IdentityError::Undecided) => Fault::Gateway,
            Self::Connect
            | Self::IdentityHeader(_)
            | Self::Identity(_)
            | Self::ClientShare
            | Self::NoTurn
            | Self::TooManyDelayed => Fault::Client,
            Self::UnaskedUpgrade => Fault::Upstream,
            Self::NoAnswer(error) => error.fault(),
        }
    }

    /// Whether a retry may help.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Identity(IdentityError::NotBelieved | IdentityError::Undecided)
            | Self::ClientShare
            | Self::NoTurn
            | Self::TooManyDelayed => Retry::Later,
            Self::Connect | Self::IdentityHeader(_) | Self::Identity(_) | Self::NoIdentity | Self::UnaskedUpgrade => {
                Retry::Never
            }
            Self::NoAnswer(error) => error.retry(),
        }
    }

    /// The word for logs and metric labels.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Connect => "connect_method",
            Self::IdentityHeader(_) => "identity_header",
            Self::Identity(IdentityError::Impersonation) => "impersonation",
            Self::Identity(IdentityError::NotBelieved) => "not_believed",
            Self::Identity(IdentityError::Undecided) => "not_believed_yet",
            Self::Identity(_) => "user",
            Self::NoIdentity => "no_identity",
            Self::ClientShare | Self::NoTurn | Self::TooManyDelayed => "client_share",
            Self::UnaskedUpgrade => "unasked_upgrade",
            Self::NoAnswer(error) => error.as_str(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::{CertificateError, Error};

    use super::*;

    #[test]
    fn a_server_that_is_not_the_api_server_does_not_count_as_its_absence() {
        let unreachable = |error: Error| ForwardError::NoAnswer(SendError::Unreachable(error.into()));
        assert!(unreachable(Error::General("refused".to_owned())).is_away());
        assert!(!unreachable(Error::InvalidCertificate(CertificateError::UnknownIssuer)).is_away());
        let lost = SendError::ConnectionLost { reused: true, source: "lost".into() };
        assert!(ForwardError::NoAnswer(lost).is_away());
        assert!(!ForwardError::NoTurn.is_away() && !ForwardError::NoAnswer(SendError::Saturated).is_away());
    }
}
