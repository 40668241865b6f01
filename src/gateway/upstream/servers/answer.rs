//! Asks one server who it is, and how it is.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use crate::{
    connector::{Denial, RequestBody, SendError, ServerChecks},
    upstream::{
        introduction::{ClusterName, Introduction, PATH as READY},
        server_version,
    },
};
use base::{apimachinery::Status, telemetry::Chain};

/// A list of one object, which API servers of any cluster have.
const WHO: &str = "/api/v1/namespaces?fieldSelector=metadata.name%3Dkube-system";
/// Time limit for all questions to one server.
const ANSWER_MAX: Duration = Duration::from_secs(3);
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What the questions to one server have shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CheckResult {
    Report(ServerReport),
    /// It is too busy to say who it is: it answers with 429, or with 503 and a time to ask again. `unready` as in
    /// [`ServerReport`].
    Busy {
        error: String,
        unready: Option<String>,
    },
    /// It does not say who it is.
    Untold(String),
    /// It does not say who it is, since the gateway's credentials or rights do not suffice.
    Denied(Denial, String),
    /// There is no connection.
    Unreachable(String),
    /// The same, because nothing answers there ([`SendError::is_gone`]).
    Gone(String),
    /// There is a connection, and not all answers.
    Silent(String),
    /// There is a connection, and no answer at all.
    Mute(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerReport {
    pub(super) cluster: ClusterName,
    /// How many gateways there are from it on: 0 for an API server.
    pub(super) gateways: u32,
    /// Its `/version`; `None` if it does not say.
    pub(super) version: Option<String>,
    /// Why it is not ready to serve; `None` if it is, or may not be asked.
    pub(super) unready: Option<String>,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMetadata,
}

#[derive(Deserialize)]
struct ItemMetadata {
    uid: String,
}

impl CheckResult {
    pub(super) fn report(&self) -> Option<&ServerReport> {
        if let Self::Report(report) = self { Some(report) } else { None }
    }

    /// The value of the metric label.
    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::Report(_) => "",
            Self::Busy { .. } => "busy",
            Self::Untold(_) => "failing",
            Self::Denied(denial, _) => denial.as_str(),
            Self::Unreachable(_) | Self::Gone(_) => "unreachable",
            Self::Silent(_) | Self::Mute(_) => "silent",
        }
    }
}

/// Who a server is, from its answer to [`WHO`].
enum Who {
    /// The uid of the namespace `kube-system`.
    Told(String),
    Busy(String),
}

/// Asks the server at that place in the configuration.
pub(super) async fn ask(checks: &ServerChecks, index: usize) -> CheckResult {
    asked(checks, index).await.unwrap_or_else(|answer| answer)
}

async fn asked(checks: &ServerChecks, index: usize) -> Result<CheckResult, CheckResult> {
    let deadline = Instant::now() + ANSWER_MAX;
    let get = async |path| {
        let answer = timeout_at(deadline, get(checks, index, path)).await;
        answer.unwrap_or_else(|_| {
            let error = format!("it does not answer {path} within {ANSWER_MAX:?}");
            Err(if path == READY { CheckResult::Mute(error) } else { CheckResult::Silent(error) })
        })
    };
    // Never busy: an API server answers this in any case, and with 503 at last when it ends.
    let ready = get(READY).await?;
    let status = ready.status();
    let unready = status.is_server_error().then(|| format!("{READY} was answered with {status}"));
    // Of a gateway nothing else is asked, which it would have to ask the API server.
    if let Some(Introduction { cluster, version, gateways }) = Introduction::of(&ready) {
        return Ok(CheckResult::Report(ServerReport { cluster, gateways, version, unready }));
    }
    let cluster = match who(&get(WHO).await?)? {
        Who::Told(uid) => ClusterName::of_uid(&uid),
        Who::Busy(error) => return Ok(CheckResult::Busy { error, unready }),
    };
    // At the end, since it may stay unanswered: a server that has said who it is, and is ready, is not silent.
    let version = get(server_version::PATH).await.ok().filter(|answer| answer.status() == StatusCode::OK);
    let version = version.and_then(|answer| server_version::parse(answer.body()));
    Ok(CheckResult::Report(ServerReport { cluster, gateways: 0, version, unready }))
}

async fn get(checks: &ServerChecks, index: usize, path: &'static str) -> Result<Response<Bytes>, CheckResult> {
    let request = Request::get(path).header(header::ACCEPT, "application/json").body(RequestBody::Empty);
    let mut request = request.map_err(|error| CheckResult::Untold(error.to_string()))?;
    if path == READY {
        Introduction::ask(&mut request);
    }
    let answer = checks.send(index, request).await.map_err(|error| {
        let text = Chain(&error).to_string();
        match error {
            // The server answers, and something else does not.
            SendError::GoneAbove => CheckResult::Untold(text),
            _ if error.is_gone() => CheckResult::Gone(text),
            SendError::Unreachable(_) | SendError::ConnectTimedOut(_) | SendError::Silent(_) => {
                CheckResult::Unreachable(text)
            }
            SendError::ConnectionLost { .. } => CheckResult::Silent(text),
            SendError::InvalidTarget
            | SendError::RequestBody(_)
            | SendError::Credentials(_)
            | SendError::Saturated
            | SendError::ClientShare
            | SendError::NotAccepted
            | SendError::Malformed(_) => CheckResult::Untold(text),
        }
    })?;
    let (head, body) = answer.into_parts();
    match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
        Ok(body) => Ok(Response::from_parts(head, body.to_bytes())),
        Err(error) => Err(CheckResult::Silent(format!("its response to {path} ended early: {error}"))),
    }
}

fn who(answer: &Response<Bytes>) -> Result<Who, CheckResult> {
    let (status, body) = (answer.status(), answer.body());
    if status != StatusCode::OK {
        let message = Status::message_in(body).unwrap_or_default();
        let error = format!("the list of the namespace kube-system was answered with {status}: {message}");
        let is_asked_later = answer.headers().contains_key(header::RETRY_AFTER);
        return match status {
            StatusCode::UNAUTHORIZED => Err(CheckResult::Denied(Denial::Unauthorized, error)),
            StatusCode::FORBIDDEN => Err(CheckResult::Denied(Denial::Forbidden, error)),
            StatusCode::TOO_MANY_REQUESTS => Ok(Who::Busy(error)),
            StatusCode::SERVICE_UNAVAILABLE if is_asked_later => Ok(Who::Busy(error)),
            _ => Err(CheckResult::Untold(error)),
        };
    }
    let list: List = serde_json::from_slice(body)
        .map_err(|error| CheckResult::Untold(format!("its list of the namespace kube-system is not valid: {error}")))?;
    let item = list.items.into_iter().next();
    let untold = || CheckResult::Untold("it has no namespace kube-system".to_owned());
    item.map(|item| Who::Told(item.metadata.uid)).ok_or_else(untold)
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Arc};

    use hyper::body::Incoming;
    use tokio::{
        sync::Notify,
        time::{advance, pause},
    };

    use super::*;
    use crate::connector::{
        Connector,
        test_server::{TestBody, TestServer, full},
    };

    const NAMESPACES: &str = r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"uid":"u"}}]}"#;

    fn checks(server: &TestServer) -> ServerChecks {
        let address = server.config.cluster_url.authority().unwrap().as_str().parse().unwrap();
        Connector::to_servers(&server.config, &[address], None, None).unwrap().server_checks().unwrap()
    }

    /// The result for a server that answers the question who it is with `status`, with or without `Retry-After`, and
    /// `/readyz` with `ready`.
    async fn made_of(status: u16, retries: bool, ready: u16) -> CheckResult {
        let server = TestServer::start(move |request: Request<Incoming>| async move {
            let answer = Response::builder();
            match request.uri().path() {
                READY => answer.status(ready).body(full("")),
                server_version::PATH => answer.body(full(r#"{"gitVersion":"v1"}"#)),
                _ if retries => answer.status(status).header(header::RETRY_AFTER, "1").body(full("")),
                _ => answer.status(status).body(full(if status == 200 { NAMESPACES } else { "" })),
            }
            .unwrap()
        })
        .await;
        ask(&checks(&server), 0).await
    }

    #[tokio::test]
    async fn a_server_that_asks_for_patience_is_busy_and_not_failing() {
        for (status, retries, ready, reason, is_ready) in [
            (200, false, 200, "", true),
            (200, false, 500, "", false),
            (429, false, 200, "busy", true),
            (429, true, 200, "busy", true),
            (503, true, 200, "busy", true),
            // It ends.
            (429, true, 500, "busy", false),
            (503, true, 503, "busy", false),
            (503, false, 200, "failing", true),
            (500, true, 200, "failing", true),
        ] {
            let answer = made_of(status, retries, ready).await;
            let unready = matches!(
                &answer,
                CheckResult::Report(ServerReport { unready: Some(_), .. }) | CheckResult::Busy { unready: Some(_), .. }
            );
            assert_eq!((answer.reason(), unready), (reason, !is_ready), "{status} {retries} {ready}: {answer:?}");
        }
    }

    /// Answers all but one path.
    async fn without(silent: &'static str) -> (TestServer, Arc<Notify>) {
        let asked = Arc::new(Notify::new());
        let told = asked.clone();
        let answer = move |path: String, asked: Arc<Notify>| async move {
            match path.as_str() {
                path if path == silent => {
                    asked.notify_one();
                    pending::<Response<TestBody>>().await
                }
                server_version::PATH => Response::new(full(r#"{"gitVersion":"v1"}"#)),
                READY => Response::new(full("ok")),
                _ => Response::new(full(NAMESPACES)),
            }
        };
        let server =
            TestServer::start(move |request: Request<Incoming>| answer(request.uri().path().to_owned(), told.clone()))
                .await;
        (server, asked)
    }

    #[tokio::test]
    async fn a_server_that_only_does_not_say_its_version_is_not_silent() {
        for (silent, reason) in [(server_version::PATH, ""), (READY, "silent"), ("/api/v1/namespaces", "silent")] {
            let (server, asked) = without(silent).await;
            let checks = checks(&server);
            let time_passes = async {
                asked.notified().await;
                pause();
                advance(ANSWER_MAX).await;
                pending::<()>().await;
            };
            let answer = tokio::select! {
                answer = ask(&checks, 0) => answer,
                () = time_passes => unreachable!("time does not end"),
            };
            tokio::time::resume();
            assert_eq!(answer.reason(), reason, "{silent}: {answer:?}");
            assert_eq!(answer.report().and_then(|report| report.version.as_deref()), None, "{silent}");
        }
    }
}
