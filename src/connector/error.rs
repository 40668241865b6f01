//! Errors of requests to upstream: which party caused each, and whether a retry may help.

use std::{error::Error as StdError, io, iter::successors, time::Duration};

use super::{
    BoxError, TroubleKind,
    dialer::{ConnectTimedOut, ConnectionUse},
    exclusive::ExchangeError,
    servers::NoServer,
    unprocessed::is_unprocessed,
};

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
    #[error("too many requests to the API server are in flight")]
    Saturated,
    /// Other clients' requests are not affected.
    #[error("this client has too many requests to the API server in flight")]
    ClientShare,
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

impl SendError {
    /// Whether there was no connection to send the request on.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::ConnectTimedOut(_))
    }

    /// Whether upstream has certainly not processed the request: it may be sent again, whatever it changes.
    pub(super) fn is_unprocessed(&self) -> bool {
        matches!(self, Self::ConnectionLost { .. }) && is_unprocessed(self)
    }

    /// What keeps the gateway from upstream, if this error is about a connection.
    pub(super) fn trouble(&self) -> Option<TroubleKind> {
        let none_is_used = || caused_by::<NoServer>(self).map(NoServer::trouble);
        self.is_unreachable().then(|| none_is_used().unwrap_or(TroubleKind::Unreachable))
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::InvalidTarget | Self::RequestBody(_) | Self::ClientShare => Fault::Client,
            Self::Credentials(_) | Self::Saturated => Fault::Gateway,
            Self::Unreachable(_) | Self::ConnectTimedOut(_) | Self::ConnectionLost { .. } | Self::Malformed(_) => {
                Fault::Upstream
            }
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
            | Self::Unreachable(_)
            | Self::ConnectTimedOut(_) => Retry::Later,
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
            Self::Saturated => "saturated",
            Self::ClientShare => "client_share",
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
        match caused_by::<ConnectTimedOut>(&*error) {
            Some(ConnectTimedOut(limit)) => Self::ConnectTimedOut(*limit),
            None if answers_without_tls(&*error) => Self::Unreachable(Box::new(NotTls(error))),
            None => Self::Unreachable(error),
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

/// Whether the answer to a TLS handshake was something else.
fn answers_without_tls(error: &(dyn StdError + 'static)) -> bool {
    let mut causes = successors(Some(error), |&error| contained(error).or_else(|| error.source()));
    causes.any(|error| matches!(error.downcast_ref(), Some(rustls::Error::InvalidMessage(_))))
}

/// What an IO error was made of, which it does not show as its source.
fn contained<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    let contained = error.downcast_ref::<io::Error>()?.get_ref()?;
    Some(contained)
}

/// The first cause of that type in an error's chain.
pub(super) fn caused_by<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
