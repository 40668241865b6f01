//! Sends the gateway's own requests, with its own credentials.

use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, header::USER_AGENT};
use http_body_util::{BodyExt, Collected, Limited};
use tokio::time::timeout;

use super::{
    RequestBody, ResponseBody, SendError,
    access::Access,
    delivery,
    pool::{Pool, PoolSettings},
    servers::Choice,
    target::Target,
};
use base::apimachinery::Status;

/// The gateway's own requests (one watch for each cache, proofs, discovery): 2,000 at once.
const OWN: PoolSettings = PoolSettings { choice: Choice::OneVersion, ..PoolSettings::own("upstream_own_requests", 20) };

/// How the gateway calls itself: in the API server's audit log, and in the status of a gateway above.
pub(super) const AGENT: HeaderValue = HeaderValue::from_static(concat!("kube-fanout/", env!("CARGO_PKG_VERSION")));

/// Bytes of a refusal that are read, and how long its body may take.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
const REFUSAL_TAKES_MAX: Duration = Duration::from_secs(5);

/// Sends requests of the gateway itself, on connections that carry no other.
#[derive(Debug)]
pub struct OwnRequests {
    target: Target,
    pool: Pool,
}

impl OwnRequests {
    pub(super) fn new(access: &Access, target: Target) -> Self {
        Self { target, pool: Pool::new(access, OWN) }
    }

    /// Sends a request, whose answer is read without pause. Only path and query of the URI are used. Keeps whether
    /// upstream refuses it.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn send(&self, mut request: Request<RequestBody>) -> Result<Response<ResponseBody>, SendError> {
        let (target, path) = (&self.target, request.uri().path().to_owned());
        request.headers_mut().insert(USER_AGENT, AGENT);
        let answer = delivery::deliver(target, &[&self.pool], None, request).await?;
        if !matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            target.health.allowed(target, &path);
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        let body = timeout(REFUSAL_TAKES_MAX, Limited::new(body, REFUSAL_BYTES_MAX).collect()).await;
        let body = body.ok().and_then(Result::ok).map(Collected::to_bytes).unwrap_or_default();
        target.health.refused(target, &path, head.status, &Status::message_in(&body).unwrap_or_default());
        Ok(Response::from_parts(head, ResponseBody::read(body)))
    }
}
