//! Why a request has no complete response, and the counts of such errors.

use std::{collections::BTreeMap, error::Error, fmt, time::Duration};

use http::StatusCode;

use base::telemetry::Chain;

/// The kinds by which errors are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ErrorKind {
    /// No TCP connection.
    Connect,
    /// TLS or HTTP/2 could not be set up on the connection, or the credentials could not be obtained.
    Handshake,
    /// No complete response within the profile's timeout.
    Timeout,
    /// A response whose status is not a success.
    Status(u16),
    /// An ERROR event in a watch, with its code.
    Event(u16),
    /// The connection broke before the end of the response.
    Stream,
    /// The request was due but never sent, because all clients were busy.
    Unsent,
    /// A client still waited for all objects at the end of a turn.
    Unsynced,
    /// A client whose connection was lost was not back at the end of a turn.
    Away,
    /// The event of a write had not reached a client at the end of a turn.
    Undelivered,
}

/// Why a request has no complete response.
#[derive(Clone, Debug)]
pub struct Failure {
    pub(super) kind: ErrorKind,
    /// The text of the error, or the message in the response.
    pub(super) message: String,
    /// After what time the server wants to be asked again.
    pub(super) retry_after: Option<Duration>,
}

/// The number of errors of each kind, and the text of the first one.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures(pub(super) BTreeMap<ErrorKind, (u64, String)>);

impl Failure {
    pub(super) fn of(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }

    pub(super) fn new(kind: ErrorKind, error: &(dyn Error + 'static)) -> Self {
        Self::of(kind, Chain(error).to_string())
    }

    pub(super) fn stream(error: &(dyn Error + 'static)) -> Self {
        Self::new(ErrorKind::Stream, error)
    }

    /// An ERROR event with this code.
    pub(super) fn event(code: u16) -> Self {
        Self::of(ErrorKind::Event(code), "an ERROR event ended the watch")
    }

    pub(super) fn status(status: StatusCode, body: &[u8]) -> Self {
        Self::of(ErrorKind::Status(status.as_u16()), String::from_utf8_lossy(body).trim_end())
    }

    pub(super) fn timeout() -> Self {
        Self::of(ErrorKind::Timeout, "no answer in time")
    }
}

/// A text of a server for a terminal, to which control characters could be commands.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

impl Failures {
    pub(super) fn add(&mut self, Failure { kind, message, .. }: Failure) {
        self.add_many(kind, 1, message);
    }

    pub(super) fn add_many(&mut self, kind: ErrorKind, count: u64, message: String) {
        if count > 0 {
            self.0.entry(kind).or_insert((0, message)).0 += count;
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.0.values().map(|(count, _)| count).sum()
    }
}

impl ErrorKind {
    /// Whether the server would give the same answer to the same request again: a 4xx other than 429.
    pub(super) fn is_refusal(self) -> bool {
        matches!(self, Self::Status(400..=428 | 430..=499))
    }
}

impl fmt::Display for ErrorKind {
    /// The name in reports, for example `connect` or `status_429`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect => formatter.write_str("connect"),
            Self::Handshake => formatter.write_str("handshake"),
            Self::Timeout => formatter.write_str("timeout"),
            Self::Status(code) => write!(formatter, "status_{code}"),
            Self::Event(code) => write!(formatter, "event_{code}"),
            Self::Stream => formatter.write_str("stream"),
            Self::Unsent => formatter.write_str("unsent"),
            Self::Unsynced => formatter.write_str("unsynced"),
            Self::Away => formatter.write_str("away"),
            Self::Undelivered => formatter.write_str("undelivered"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.kind, plain(&self.message))
    }
}

impl Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_cannot_command_the_terminal() {
        let failure = Failure::status(StatusCode::BAD_GATEWAY, b"\x1b[2J\x1b]0;title\x07no\nhealthy upstream");
        assert_eq!(failure.to_string(), "status_502:  [2J ]0;title no healthy upstream");
    }
}
