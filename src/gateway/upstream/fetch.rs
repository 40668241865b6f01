//! Small documents that the gateway itself reads from upstream: discovery, definitions of custom resources.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header::ACCEPT};
use http_body_util::{BodyExt, Collected, LengthLimitError, Limited};

use super::Upstream;
use crate::connector::{BoxError, RequestBody, ResponseBody, SendError};
use base::apimachinery::Status;

/// Time limit for the whole document.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of one document, in bytes. Discovery of a thousand custom resources takes about three million.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;
/// Bytes of a refusal that are searched for a message.
const REFUSAL_BYTES_MAX: usize = 16 << 10;

/// The core group has no other version, and no document that names it.
const CORE_VERSION: &str = "v1";

/// Why a document could not be read. A missing document is not an error.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("cannot request {path}")]
    Send { path: String, source: SendError },
    /// `message` is that of the Status in the answer, on one line; empty without one.
    #[error("{path} was answered with {status}{}", behind_colon(.message))]
    Status { path: String, status: StatusCode, message: String },
    #[error("the response to {path} ended early")]
    Body { path: String, source: BoxError },
    #[error("the response to {path} exceeds {DOCUMENT_BYTES_MAX} bytes")]
    TooLarge { path: String },
    #[error("no complete response to {path} within {FETCH_TIMEOUT:?}")]
    TimedOut { path: String },
    #[error("{path} is not a valid document")]
    Malformed { path: String, source: serde_json::Error },
}

impl FetchError {
    /// Whether the gateway's rights do not suffice.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Status { status: StatusCode::FORBIDDEN, .. })
    }

    /// Whether no connection could be made, which was known at once: upstream has not started, or has stopped.
    pub fn is_refused_connection(&self) -> bool {
        matches!(self, Self::Send { source: SendError::Unreachable(_), .. })
    }
}

impl Upstream {
    /// The JSON document at `path`; `None` if there is none.
    pub(super) async fn fetch(&self, path: &str, accept: &'static str) -> Result<Option<Bytes>, FetchError> {
        self.fetch_selected(path, "", accept).await
    }

    /// Like [`Self::fetch`], with a query, which must not contain what needs escaping.
    pub(super) async fn fetch_selected(
        &self,
        path: &str,
        query: &str,
        accept: &'static str,
    ) -> Result<Option<Bytes>, FetchError> {
        match tokio::time::timeout(FETCH_TIMEOUT, self.fetch_untimed(path, query, accept)).await {
            Ok(fetched) => fetched,
            Err(_) => Err(FetchError::TimedOut { path: path.to_owned() }),
        }
    }

    /// The preferred version of a group; `None` if upstream does not know the group.
    pub async fn preferred_version(&self, group: &str) -> Result<Option<String>, FetchError> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Group {
            preferred_version: Version,
        }
        #[derive(serde::Deserialize)]
        struct Version {
            version: String,
        }
        if group.is_empty() {
            return Ok(Some(CORE_VERSION.to_owned()));
        }
        let path = format!("/apis/{group}");
        let Some(document) = self.fetch(&path, "application/json").await? else { return Ok(None) };
        let group: Group =
            serde_json::from_slice(&document).map_err(|source| FetchError::Malformed { path, source })?;
        Ok(Some(group.preferred_version.version))
    }

    async fn fetch_untimed(&self, path: &str, query: &str, accept: &'static str) -> Result<Option<Bytes>, FetchError> {
        let owned = || path.to_owned();
        // Names in the path may come from clients. No document has a path that needs escaping.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'.');
        if !path.bytes().all(is_plain) {
            return Ok(None);
        }
        let uri = if query.is_empty() { owned() } else { format!("{path}?{query}") };
        let uri = uri
            .parse::<http::Uri>()
            .map_err(|_| FetchError::Send { path: owned(), source: SendError::InvalidTarget })?;
        let mut request = Request::new(RequestBody::Empty);
        *request.uri_mut() = uri;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
        let answer = self.send(request).await.map_err(|source| FetchError::Send { path: owned(), source })?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(None),
            status => {
                let message = refusal(answer.into_body()).await;
                return Err(FetchError::Status { path: owned(), status, message });
            }
        }
        match Limited::new(answer.into_body(), DOCUMENT_BYTES_MAX).collect().await {
            Ok(body) => Ok(Some(body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => {
                base::telemetry::limit_reached("upstream_document_bytes");
                Err(FetchError::TooLarge { path: owned() })
            }
            Err(source) => Err(FetchError::Body { path: owned(), source }),
        }
    }
}

fn behind_colon(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

/// The message of a refusal; empty if it has none.
async fn refusal(body: ResponseBody) -> String {
    let body = Limited::new(body, REFUSAL_BYTES_MAX).collect().await.map(Collected::to_bytes).unwrap_or_default();
    let message = Status::message_in(&body).unwrap_or_default();
    message.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::test_server::{TestServer, full};

    #[tokio::test]
    async fn a_refusal_has_upstreams_message() {
        for (body, message) in
            [(r#"{"kind":"Status","message":"User \"g\"\ncannot"}"#, r#": User "g" cannot"#), ("no", "")]
        {
            let server = TestServer::start(move |_| async move {
                http::Response::builder().status(StatusCode::FORBIDDEN).body(full(body)).unwrap()
            })
            .await;
            let error = server.upstream().preferred_version("apps").await.unwrap_err();
            assert_eq!(error.to_string(), format!("/apis/apps was answered with 403 Forbidden{message}"));
        }
    }
}
