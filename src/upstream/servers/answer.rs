//! Asks one server who it is, and how it is.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use tokio::time::timeout;

use crate::{
    apimachinery::{ResourceVersion, Status},
    connector::{Denial, RequestBody, SendError, ServerChecks},
    telemetry::Chain,
    upstream::server_version,
};

/// A most-recent list of one object: it has the object's uid and the storage's version.
const WHO: &str = "/api/v1/namespaces?fieldSelector=metadata.name%3Dkube-system";
const READY: &str = "/readyz";
/// Time limit for all questions to one server.
const ANSWER_MAX: Duration = Duration::from_secs(3);
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What a server has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Said(Said),
    /// It does not say who it is.
    Untold(String),
    /// It does not say who it is, since the gateway's credentials or rights do not suffice.
    Denied(Denial, String),
    /// There is no connection.
    Unreachable(String),
    /// There is a connection, and no answer.
    Silent(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// Of the namespace `kube-system`.
    pub(super) uid: String,
    /// The version of its storage.
    pub(super) head: ResourceVersion,
    /// `None` if it does not say.
    pub(super) version: Option<String>,
    /// Why it is not ready to serve; `None` if it is, or may not be asked.
    pub(super) unready: Option<String>,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMetadata,
    items: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMetadata,
}

#[derive(Deserialize)]
struct ItemMetadata {
    uid: String,
}

impl Answer {
    pub(super) fn said(&self) -> Option<&Said> {
        if let Self::Said(said) = self { Some(said) } else { None }
    }

    /// The value of the metric label.
    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::Said(_) => "",
            Self::Untold(_) => "failing",
            Self::Denied(denial, _) => denial.as_str(),
            Self::Unreachable(_) => "unreachable",
            Self::Silent(_) => "silent",
        }
    }
}

/// Asks the server at that place in the configuration.
pub(super) async fn ask(checks: &ServerChecks, index: usize) -> Answer {
    let silent = || Answer::Silent(format!("it does not answer within {ANSWER_MAX:?}"));
    timeout(ANSWER_MAX, ask_untimed(checks, index)).await.unwrap_or_else(|_| silent())
}

async fn ask_untimed(checks: &ServerChecks, index: usize) -> Answer {
    let (uid, head) = match get(checks, index, WHO).await.and_then(|(status, body)| who(status, &body)) {
        Ok(who) => who,
        Err(answer) => return answer,
    };
    let version = match get(checks, index, server_version::PATH).await {
        Ok((StatusCode::OK, body)) => server_version::parse(&body),
        Ok(_) => None,
        Err(answer) => return answer,
    };
    match get(checks, index, READY).await {
        Ok((status, _)) => {
            let unready = status.is_server_error().then(|| format!("{READY} was answered with {status}"));
            Answer::Said(Said { uid, head, version, unready })
        }
        Err(answer) => answer,
    }
}

async fn get(checks: &ServerChecks, index: usize, path: &'static str) -> Result<(StatusCode, Bytes), Answer> {
    let request = Request::get(path).header(header::ACCEPT, "application/json").body(RequestBody::Empty);
    let request = request.map_err(|error| Answer::Untold(error.to_string()))?;
    let answer = checks.send(index, request).await.map_err(|error| {
        let text = Chain(&error).to_string();
        match error {
            SendError::Unreachable(_) | SendError::ConnectTimedOut(_) => Answer::Unreachable(text),
            SendError::ConnectionLost { .. } => Answer::Silent(text),
            SendError::InvalidTarget
            | SendError::RequestBody(_)
            | SendError::Credentials(_)
            | SendError::Saturated
            | SendError::ClientShare
            | SendError::Malformed(_) => Answer::Untold(text),
        }
    })?;
    let status = answer.status();
    match Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await {
        Ok(body) => Ok((status, body.to_bytes())),
        Err(error) => Err(Answer::Silent(format!("its response to {path} ended early: {error}"))),
    }
}

/// The uid and the version in the answer to [`WHO`].
fn who(status: StatusCode, body: &[u8]) -> Result<(String, ResourceVersion), Answer> {
    if status != StatusCode::OK {
        let message = Status::message_in(body).unwrap_or_default();
        let error = format!("the list of the namespace kube-system was answered with {status}: {message}");
        return Err(match status {
            StatusCode::UNAUTHORIZED => Answer::Denied(Denial::Unauthorized, error),
            StatusCode::FORBIDDEN => Answer::Denied(Denial::Forbidden, error),
            _ => Answer::Untold(error),
        });
    }
    let list: List = serde_json::from_slice(body)
        .map_err(|error| Answer::Untold(format!("its list of the namespace kube-system is not valid: {error}")))?;
    let Some(item) = list.items.into_iter().next() else {
        return Err(Answer::Untold("it has no namespace kube-system".to_owned()));
    };
    let head = ResourceVersion::parse(&list.metadata.resource_version).ok();
    let head = head.ok_or_else(|| Answer::Untold("its list of namespaces has no version".to_owned()))?;
    Ok((item.metadata.uid, head))
}
