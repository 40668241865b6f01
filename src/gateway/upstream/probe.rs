//! Asks upstream for its version at the start, and for as long as there is trouble. So a wrong address and rejected
//! credentials are reported before the first client comes, and no longer once they have been corrected.

use std::time::Duration;

use http::StatusCode;
use tokio::time::{sleep, timeout};

use super::{FetchError, Upstream, server_version};
use crate::connector::{Probe, SendError, TroubleKind};
use base::{lifecycle::Tasks, telemetry::Chain};

/// How often the outcome of the gateway's requests is checked. Nothing is requested while there is no trouble.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The time limit of an answer. Longer than that of opening a connection (10 s), whose failure has its own error.
const ANSWER_MAX: Duration = Duration::from_secs(12);
/// Of an answer that is not an API server's, the characters that are shown.
const SHOWN_MAX: usize = 80;

impl Upstream {
    /// Probes upstream in a task of `tasks` until the drain begins. The log says what is wrong, once.
    pub fn keep_probed(&self, tasks: &Tasks) {
        self.shared.connector.notice_silence(tasks);
        let (upstream, token) = (self.clone(), tasks.token().clone());
        tasks.spawn("upstream probe", async move {
            let _ended = token.run_until_cancelled(upstream.probe_while_in_trouble()).await;
        });
    }

    /// Probes upstream once. [`Upstream::troubles`] says what is wrong.
    pub async fn probe_once(&self) {
        self.probe(ANSWER_MAX).await;
    }

    async fn probe_while_in_trouble(&self) {
        self.probe_once().await;
        loop {
            sleep(LOOK_EVERY).await;
            if self.shared.connector.is_in_trouble() {
                self.probe_once().await;
            }
        }
    }

    /// Asks once, and notes what comes of it.
    pub(super) async fn probe(&self, limit: Duration) {
        let (path, address) = (server_version::PATH, self.address());
        let probe = match timeout(limit, self.fetch(path, "application/json")).await {
            Err(_) => failed(
                TroubleKind::Unanswered,
                format!("the connection is open, but {path} was not answered within {limit:?}"),
            ),
            Ok(Ok(Some(document))) => match server_version::parse(&document) {
                Some(version) => {
                    self.note_version(&version);
                    self.look_above().await;
                    Probe::Passed
                }
                None => failed(
                    TroubleKind::Foreign,
                    format!("{path} is not that of an API server: {:?}", beginning(&document)),
                ),
            },
            Ok(Ok(None)) => failed(TroubleKind::Foreign, format!("{path} was answered with {}", StatusCode::NOT_FOUND)),
            Ok(Err(error)) => of_error(&error, &address),
        };
        self.shared.connector.note_probe(probe);
    }
}

/// What an error shows about the server at `address`.
fn of_error(error: &FetchError, address: &str) -> Probe {
    let with_hint = |error: &FetchError| {
        let hint = if address.starts_with("http://") { HTTPS_HINT } else { "" };
        format!("{}{hint}", Chain(error))
    };
    match error {
        FetchError::Send { source, .. } if source.is_unreachable() => Probe::Noted,
        FetchError::Status { status: StatusCode::UNAUTHORIZED, .. } => Probe::Noted,
        // An API server says why.
        FetchError::Status { status: StatusCode::FORBIDDEN, message, .. } if !message.is_empty() => {
            tracing::warn!(%address, error = %Chain(error), "{}", TroubleKind::Forbidden.advice());
            Probe::Noted
        }
        FetchError::Status { status: StatusCode::LOOP_DETECTED, .. } => {
            failed(TroubleKind::Loop, Chain(error).to_string())
        }
        // Go's servers answer a plain request at their TLS port with this.
        FetchError::Status { status: StatusCode::BAD_REQUEST, .. } => failed(TroubleKind::Foreign, with_hint(error)),
        FetchError::Status { status, .. } if !status.is_server_error() && *status != StatusCode::TOO_MANY_REQUESTS => {
            failed(TroubleKind::Foreign, Chain(error).to_string())
        }
        FetchError::Send { source: SendError::ConnectionLost { .. } | SendError::Malformed(_), .. } => {
            failed(TroubleKind::Unanswered, with_hint(error))
        }
        FetchError::Send { .. }
        | FetchError::Status { .. }
        | FetchError::Body { .. }
        | FetchError::TooLarge { .. }
        | FetchError::TimedOut { .. }
        | FetchError::Malformed { .. } => failed(TroubleKind::Unanswered, Chain(error).to_string()),
    }
}

/// Follows an error that a TLS server causes if it is spoken to in plain HTTP.
const HTTPS_HINT: &str = "; if the server expects TLS, its address begins with https://";

fn failed(kind: TroubleKind, error: String) -> Probe {
    Probe::Failed { kind, error }
}

/// The first characters of a document.
fn beginning(document: &[u8]) -> String {
    String::from_utf8_lossy(&document[..document.len().min(SHOWN_MAX * 4)])
        .trim_start()
        .chars()
        .take(SHOWN_MAX)
        .collect()
}
