//! Failures of requests to upstream, grouped by their consequence for a reflector.

use bytes::Bytes;

use crate::{encode::protobuf, store::OverBudget};

/// Why a list, a watch or a check failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// 410: upstream's history does not reach back so far.
    #[error("the resource version is too old for upstream")]
    Expired,
    /// 504 with the cause `ResourceVersionTooLarge`: upstream has not reached that version.
    #[error("the resource version is newer than upstream's")]
    TooLarge,
    /// 400, 405, 406, 415, 422: upstream does not accept such a request.
    #[error("upstream rejected the request")]
    Refused,
    /// 404: the resource does not exist any more.
    #[error("upstream does not serve the resource")]
    NotFound,
    /// 401: upstream does not accept the gateway's own credentials.
    #[error("upstream does not accept the gateway's credentials")]
    Unauthorized,
    /// 403: the gateway's own rights are not sufficient.
    #[error("the gateway has no permission to list and watch the resource")]
    Denied,
    /// 500: upstream has accepted the request, and cannot serve it. An API server from 1.31 on answers so to a
    /// watch-list if its etcd cannot report progress on request; clients fall back to a list.
    #[error("upstream failed to serve the request")]
    InternalError,
    /// Anything else: upstream is unreachable or overloaded, or the connection broke.
    #[error("upstream is unreachable or overloaded")]
    Unavailable,
    /// What upstream sent contradicts what it sent before, or cannot be parsed.
    #[error("upstream's response is not valid")]
    Malformed,
    /// Nothing arrived for longer than the watch should have lasted.
    #[error("upstream sent nothing for too long")]
    Silent,
    /// Upstream accepted a watch-list, and did not end its initial events.
    #[error("upstream did not end the initial events of a watch-list")]
    Stalled,
    /// Another watch reported changes long ago that this one still has not.
    #[error("upstream's watch does not report changes")]
    Stuck,
    /// The gateway has no memory for the collection, which takes more than this number of bytes.
    #[error("no memory for the collection, which takes more than {0} bytes; raise cache.bytes")]
    OverBudget(u64),
}

/// The fields of a Status that a reflector reads.
#[derive(Debug, serde::Deserialize)]
pub(super) struct StatusBody {
    pub(super) code: u16,
    #[serde(default)]
    details: StatusDetails,
}

#[derive(Debug, Default, serde::Deserialize)]
struct StatusDetails {
    #[serde(default)]
    causes: Vec<StatusCause>,
}

#[derive(Debug, serde::Deserialize)]
struct StatusCause {
    #[serde(default)]
    reason: String,
}

impl StatusBody {
    /// Whether a cause is `ResourceVersionTooLarge`, which client-go looks for, too (read-path 2, "RV too high").
    pub(super) fn is_too_large(&self) -> bool {
        self.details.causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
    }
}

impl Failure {
    /// The value of the metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::TooLarge => "too_large",
            Self::Refused => "refused",
            Self::NotFound => "not_found",
            Self::Unauthorized => "unauthorized",
            Self::Denied => "denied",
            Self::InternalError => "internal_error",
            Self::Unavailable => "unavailable",
            Self::Malformed => "malformed",
            Self::Silent => "silent",
            Self::Stalled => "stalled",
            Self::Stuck => "stuck",
            Self::OverBudget(_) => "no_room",
        }
    }

    /// The failure for a response whose code is not a success. Its body is a Status in either encoding.
    pub fn of_answer(code: u16, body: &Bytes) -> Self {
        let too_large = match protobuf::read_status(body.clone()) {
            Some(status) => status.is_too_large(),
            None => serde_json::from_slice::<StatusBody>(body).is_ok_and(|status| status.is_too_large()),
        };
        Self::from_code(code, too_large)
    }

    /// The failure for an HTTP status, or for the code of the Status in an ERROR event.
    pub const fn from_code(code: u16, too_large: bool) -> Self {
        match code {
            _ if too_large => Self::TooLarge,
            410 => Self::Expired,
            400 | 405 | 406 | 415 | 422 => Self::Refused,
            404 => Self::NotFound,
            401 => Self::Unauthorized,
            403 => Self::Denied,
            500 => Self::InternalError,
            _ => Self::Unavailable,
        }
    }
}

impl From<OverBudget> for Failure {
    fn from(OverBudget(bytes): OverBudget) -> Self {
        Self::OverBudget(bytes)
    }
}
