//! One call to a collector: gRPC's `TraceService/Export` over HTTP/2 without TLS, as Kubernetes' components make it.

use std::{io, str, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::{Either, select};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::{net::TcpStream, time::timeout};

use super::message::{ExportRequest, ExportResponse, PartialSuccess};

/// Time limit of a call: the default of OpenTelemetry's exporters.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a response body, in bytes. It contains a count and a message.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Maximum size of a response's headers, in bytes.
const HEADER_BYTES_MAX: u32 = 16 << 10;
/// Maximum length of a collector's error message in the log, in characters.
const WORDS_MAX: usize = 200;
const PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// Length of the prefix of a gRPC message, in bytes: a compression flag and the message's length.
const PREFIX_LEN: usize = 5;

/// Why spans were not accepted.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    #[error("cannot connect to the collector")]
    Connect(#[source] io::Error),
    #[error("no response")]
    Http(#[source] hyper::Error),
    #[error("no response within {EXPORT_TIMEOUT:?}")]
    TimedOut,
    #[error("the response ended early or exceeds {ANSWER_BYTES_MAX} bytes")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("HTTP status {0} without a gRPC status; tracing.endpoint must be a gRPC server")]
    NotGrpc(StatusCode),
    #[error("gRPC status {code}: {message:?}")]
    Refused { code: u32, message: String },
    #[error("tracing.endpoint is not a valid address")]
    Endpoint(#[source] http::Error),
}

impl ExportError {
    /// Whether a later attempt with the same spans may succeed, by OTLP's rules.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Http(_) | Self::TimedOut | Self::Body(_) => true,
            Self::NotGrpc(status) => matches!(status.as_u16(), 429 | 502..=504),
            // CANCELLED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS.
            Self::Refused { code, .. } => matches!(code, 1 | 4 | 8 | 10 | 11 | 14 | 15),
            Self::Endpoint(_) => false,
        }
    }
}

/// An export request with its gRPC prefix.
pub(super) fn framed(request: &ExportRequest) -> Bytes {
    let length = request.encoded_len();
    let mut framed = BytesMut::with_capacity(PREFIX_LEN + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    framed.put_slice(&request.encode_to_vec());
    framed.freeze()
}

/// Sends a framed request to `endpoint` on a new connection, so that replicas of a collector share the load; there is
/// rarely more than one request per second. Returns what the collector rejected of it.
pub(super) async fn export(endpoint: &str, framed: Bytes) -> Result<PartialSuccess, ExportError> {
    timeout(EXPORT_TIMEOUT, export_untimed(endpoint, framed)).await.unwrap_or(Err(ExportError::TimedOut))
}

async fn export_untimed(endpoint: &str, framed: Bytes) -> Result<PartialSuccess, ExportError> {
    let request = Request::post(format!("http://{endpoint}{PATH}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, concat!("kube-fanout/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(framed))
        .map_err(ExportError::Endpoint)?;
    let stream = TcpStream::connect(endpoint).await.map_err(ExportError::Connect)?;
    let mut client = http2::Builder::new(TokioExecutor::new());
    client.max_header_list_size(HEADER_BYTES_MAX);
    let (mut sender, connection) = client.handshake(TokioIo::new(stream)).await.map_err(ExportError::Http)?;
    let call = Box::pin(async move {
        let answer = sender.send_request(request).await.map_err(ExportError::Http)?;
        let (head, body) = answer.into_parts();
        if head.status != StatusCode::OK {
            return Err(ExportError::NotGrpc(head.status));
        }
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(ExportError::Body)?;
        // An answer without a message has its status among the headers.
        refused(body.trailers().unwrap_or(&head.headers))?;
        Ok(not_accepted(&body.to_bytes()))
    });
    // The call fails, or ends with what has come already, when the connection ends first.
    match select(call, connection).await {
        Either::Left((answer, _)) => answer,
        Either::Right((_, call)) => call.await,
    }
}

fn refused(headers: &HeaderMap) -> Result<(), ExportError> {
    let text = |name: &str| headers.get(name).map(HeaderValue::as_bytes).and_then(|value| str::from_utf8(value).ok());
    match text("grpc-status").and_then(|code| code.parse().ok()) {
        Some(0) => Ok(()),
        Some(code) => {
            let message = words(text("grpc-message").unwrap_or_default());
            Err(ExportError::Refused { code, message })
        }
        None => Err(ExportError::NotGrpc(StatusCode::OK)),
    }
}

/// The default, which rejects nothing, if the response cannot be decoded.
fn not_accepted(framed: &[u8]) -> PartialSuccess {
    let answer = framed.get(PREFIX_LEN..).and_then(|message| ExportResponse::decode(message).ok());
    let partial = answer.and_then(|answer| answer.partial_success).unwrap_or_default();
    PartialSuccess { error_message: words(&partial.error_message), ..partial }
}

fn words(text: &str) -> String {
    text.chars().take(WORDS_MAX).collect()
}
