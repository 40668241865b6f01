//! Errors of requests to upstream: which party caused each, and whether a retry may help.

use std::{error::Error as StdError, io, time::Duration};

use rustls::{AlertDescription, CertificateError};

use super::{
    BoxError, TroubleKind,
    acceptance::NotAccepted,
    dialer::{ConnectTimedOut, ConnectionUse},
    exclusive::ExchangeError,
    servers::NoServer,
    unprocessed::is_unprocessed,
};
use base::telemetry::{caused_by, causes};

/// Why a request has no answer. An answer of any status is not an error.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("the request target is not a valid path")]
    InvalidTarget,
    #[error("the request body ended early")]
    RequestBody(#[source] BoxError),
    #[error("cannot obtain credentials for the API server")]
    Credentials(#[source] BoxError),
    #[error("cannot connect to the API server")]
    Unreachable(#[source] BoxError),
    #[error("connecting to the API server took longer than {0:?}")]
    ConnectTimedOut(Duration),
    /// Nothing was sent, or it was a read.
    #[error("the API server keeps connections open, but has answered nothing for {} s", .0.as_secs())]
    Silent(Duration),
    /// Nothing was sent, or it was a read.
    #[error("the gateway in front of the API server cannot reach it")]
    GoneAbove,
    #[error("too many requests to the API server are in flight")]
    Saturated,
    /// Other clients' requests are not affected.
    #[error("this client has too many requests to the API server in flight")]
    ClientShare,
    /// Nothing was sent.
    #[error("the API server has not shown that it accepts the gateway's certificate")]
    NotAccepted,
    /// `reused`: an earlier request was answered on the same connection, so it may have been dead for some time.
    #[error("the connection to the API server was lost before it answered")]
    ConnectionLost { reused: bool, source: BoxError },
    #[error("the API server's response is not valid HTTP")]
    Malformed(#[source] BoxError),
}

/// The party that has to act on an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Client,
    Upstream,
    Gateway,
}

/// Whether to retry a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same request would fail again.
    Never,
    /// At once, on another connection; only if the request changes nothing.
    AtOnce,
    /// After a while.
    Later,
}

/// How long a server is silent before it counts as away: longer than connecting may take.
const GONE_AFTER: Duration = Duration::from_secs(12);
/// What connections fail with if the server, or its network, is gone.
const OF_NETWORK: [io::ErrorKind; 8] = [
    io::ErrorKind::ConnectionRefused,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::ConnectionAborted,
    io::ErrorKind::HostUnreachable,
    io::ErrorKind::NetworkUnreachable,
    io::ErrorKind::NetworkDown,
    io::ErrorKind::TimedOut,
    io::ErrorKind::UnexpectedEof,
];

impl SendError {
    /// Whether there was no connection on which the API server answers.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::ConnectTimedOut(_) | Self::Silent(_) | Self::GoneAbove)
    }

    /// Whether upstream is not there to be asked: what it says is believed further (`clients.awayTTL`). Not, if
    /// something else keeps the gateway from it: this process, a proxy, the name, or TLS with a server that answers.
    /// Several servers are gone if each of them is.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::ConnectTimedOut(_) | Self::GoneAbove => true,
            Self::Silent(time) => *time >= GONE_AFTER,
            Self::Unreachable(error) => {
                caused_by::<io::Error>(&**error).is_some_and(|error| OF_NETWORK.contains(&error.kind()))
                    || caused_by::<NoServer>(&**error).is_some_and(NoServer::are_gone)
            }
            Self::InvalidTarget
            | Self::RequestBody(_)
            | Self::Credentials(_)
            | Self::Saturated
            | Self::ClientShare
            | Self::NotAccepted
            | Self::ConnectionLost { .. }
            | Self::Malformed(_) => false,
        }
    }

    /// Whether the server's certificate could not be verified.
    pub fn is_unverified(&self) -> bool {
        causes(self).any(|error| matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_))))
    }

    /// Whether upstream has certainly not processed the request: it may be sent again, whatever it changes.
    pub(super) fn is_unprocessed(&self) -> bool {
        matches!(self, Self::ConnectionLost { .. }) && is_unprocessed(self)
    }

    /// What keeps the gateway from upstream, if this error is about a connection. The gateway above answers, and has
    /// most of what is asked for.
    pub(super) fn trouble(&self) -> Option<TroubleKind> {
        let none_is_used = || caused_by::<NoServer>(self).map(NoServer::trouble);
        let is_above = matches!(self, Self::GoneAbove);
        (self.is_unreachable() && !is_above).then(|| none_is_used().unwrap_or(TroubleKind::Unreachable))
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::InvalidTarget | Self::RequestBody(_) | Self::ClientShare => Fault::Client,
            Self::Credentials(_) | Self::Saturated | Self::NotAccepted => Fault::Gateway,
            Self::Unreachable(_)
            | Self::ConnectTimedOut(_)
            | Self::Silent(_)
            | Self::GoneAbove
            | Self::ConnectionLost { .. }
            | Self::Malformed(_) => Fault::Upstream,
        }
    }

    /// Whether a retry may help.
    pub fn retry(&self) -> Retry {
        match self {
            Self::InvalidTarget | Self::RequestBody(_) | Self::Malformed(_) => Retry::Never,
            Self::ConnectionLost { reused: true, .. } => Retry::AtOnce,
            Self::ConnectionLost { reused: false, .. }
            | Self::Credentials(_)
            | Self::Saturated
            | Self::ClientShare
            | Self::NotAccepted
            | Self::Unreachable(_)
            | Self::ConnectTimedOut(_)
            | Self::Silent(_)
            | Self::GoneAbove => Retry::Later,
        }
    }

    /// The word for logs and metric labels.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::InvalidTarget => "invalid_target",
            Self::RequestBody(_) => "request_body",
            Self::Credentials(_) => "credentials",
            Self::Unreachable(_) => "unreachable",
            Self::ConnectTimedOut(_) => "connect_timed_out",
            Self::Silent(_) => "silent",
            Self::GoneAbove => "gone_above",
            Self::Saturated => "saturated",
            Self::ClientShare => "client_share",
            Self::NotAccepted => "not_believed_yet",
            Self::ConnectionLost { .. } => "connection_lost",
            Self::Malformed(_) => "malformed",
        }
    }

    /// Classifies an error of the transport.
    pub(super) fn from_transport(error: BoxError) -> Self {
        let error = match error.downcast::<hyper_util::client::legacy::Error>() {
            Ok(error) => return Self::from_client(*error),
            Err(error) => error,
        };
        let error = match error.downcast::<ExchangeError>() {
            Ok(error) => return Self::from_exchange(*error),
            Err(error) => error,
        };
        let error = match error.downcast::<Self>() {
            Ok(error) => return *error,
            Err(error) => error,
        };
        // Only the layer that adds credentials fails before the HTTP client is called.
        Self::Credentials(error)
    }

    fn from_client(error: hyper_util::client::legacy::Error) -> Self {
        if error.is_connect() {
            return Self::from_connect(error.into());
        }
        let reused = error.connect_info().is_some_and(ConnectionUse::has_answered);
        Self::from_lost(error.into(), reused)
    }

    fn from_exchange(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Connect(_) => Self::from_connect(error.into()),
            ExchangeError::Exchange { reused, .. } => Self::from_lost(error.into(), reused),
        }
    }

    fn from_connect(error: BoxError) -> Self {
        if caused_by::<NotAccepted>(&*error).is_some() {
            return Self::NotAccepted;
        }
        match caused_by::<ConnectTimedOut>(&*error) {
            Some(ConnectTimedOut(limit)) => Self::ConnectTimedOut(*limit),
            None if answers_without_tls(&*error) => Self::Unreachable(Box::new(NotTls(error))),
            None => match certificate_advice(&*error) {
                Some(advice) => Self::Unreachable(Box::new(NotVerified { advice, error })),
                None => Self::Unreachable(error),
            },
        }
    }

    /// There was a connection.
    fn from_lost(error: BoxError, reused: bool) -> Self {
        let cause = caused_by::<hyper::Error>(&*error);
        if cause.is_some_and(hyper::Error::is_user) {
            return Self::RequestBody(error);
        }
        if cause.is_some_and(hyper::Error::is_parse) {
            return Self::Malformed(error);
        }
        Self::ConnectionLost { reused, source: error }
    }
}

/// What a TLS handshake with a plain server ends with.
#[derive(Debug, thiserror::Error)]
#[error("the server does not answer in TLS; if it speaks plain HTTP, its address begins with http://")]
struct NotTls(#[source] BoxError);

/// What a TLS handshake ends with if one side does not accept the other's certificate.
#[derive(Debug, thiserror::Error)]
#[error("{advice}")]
struct NotVerified {
    advice: &'static str,
    #[source]
    error: BoxError,
}

/// What is wrong with a certificate, and what to check; `None` if the error is about something else.
#[expect(clippy::wildcard_enum_match_arm, reason = "the others are not about certificates, and there may be more")]
fn certificate_advice(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    let mut causes = causes(error);
    causes.find_map(|error| match error.downcast_ref()? {
        rustls::Error::InvalidCertificate(error) => of_server(error),
        rustls::Error::AlertReceived(
            AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA,
        ) => Some("the server does not accept the gateway's client certificate, or requires one"),
        _ => None,
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the others say it themselves, and there may be more kinds")]
fn of_server(error: &CertificateError) -> Option<&'static str> {
    match error {
        CertificateError::UnknownIssuer => Some(
            "the server's certificate is issued by an authority that is not configured for it (certificate-authority \
             of a kubeconfig, caFile of peers)",
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            Some("the server's certificate has expired, or the clock of this machine is wrong")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            Some("the server's certificate is not valid yet, or the clock of this machine is wrong")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Some(
            "the server's certificate is for other names: use one of them as the address, or as tls-server-name of the \
             kubeconfig",
        ),
        _ => None,
    }
}

/// Whether the answer to a TLS handshake was something else.
fn answers_without_tls(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(|error| matches!(error.downcast_ref(), Some(rustls::Error::InvalidMessage(_))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn only_a_server_or_network_that_is_gone_counts() {
        let connecting = |error: io::Error| SendError::from_connect(error.into());
        let tls = |error: rustls::Error| connecting(io::Error::new(io::ErrorKind::InvalidData, error));
        for (error, is_gone) in [
            (connecting(io::ErrorKind::ConnectionRefused.into()), true),
            (connecting(io::ErrorKind::HostUnreachable.into()), true),
            (SendError::ConnectTimedOut(GONE_AFTER), true),
            (SendError::Silent(GONE_AFTER), true),
            (SendError::Silent(GONE_AFTER - Duration::from_secs(1)), false),
            (tls(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)), false),
            (tls(rustls::Error::AlertReceived(AlertDescription::HandshakeFailure)), false),
            (connecting(io::Error::other("failed to lookup address information")), false),
            // Too many open files.
            (connecting(io::Error::from_raw_os_error(24)), false),
            (SendError::Credentials("the plugin has failed".into()), false),
            (SendError::Saturated, false),
        ] {
            assert_eq!(error.is_gone(), is_gone, "{error:?}");
        }
    }

    #[test]
    fn each_problem_of_a_certificate_has_its_own_advice() {
        let told = |error: rustls::Error| {
            let is_of_server = matches!(error, rustls::Error::InvalidCertificate(_));
            let error: BoxError = Box::new(io::Error::new(io::ErrorKind::InvalidData, error));
            let error = SendError::from_connect(error);
            assert_eq!(error.is_unverified(), is_of_server, "{error:?}");
            error.source().map(ToString::to_string).unwrap_or_default()
        };
        for (error, expected) in [
            (rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer), "an authority that is not configured"),
            (rustls::Error::InvalidCertificate(CertificateError::Expired), "has expired"),
            (rustls::Error::InvalidCertificate(CertificateError::NotValidYet), "is not valid yet"),
            (rustls::Error::InvalidCertificate(CertificateError::NotValidForName), "tls-server-name"),
            (rustls::Error::AlertReceived(AlertDescription::UnknownCA), "client certificate"),
            // Nothing to advise.
            (rustls::Error::InvalidCertificate(CertificateError::BadSignature), "BadSignature"),
            (rustls::Error::DecryptError, "decrypt"),
        ] {
            let told = told(error);
            assert!(told.contains(expected), "{told}");
        }
    }
}
