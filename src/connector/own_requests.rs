//! Sends the gateway's own requests, with its own credentials.

use http::{Request, Response};

use super::{
    RequestBody, ResponseBody, SendError,
    access::Access,
    delivery,
    dialer::Protocols,
    pool::{Pool, PoolSettings, Windows},
    target::Target,
};

/// The gateway's own requests (one watch for each cache, proofs, discovery): 2,000 at once.
const OWN: PoolSettings = PoolSettings {
    protocols: Protocols::Any,
    windows: Windows::EAGER,
    count: 20,
    limit: "upstream_own_requests",
    // Of no effect: the gateway's own requests are counted for no client.
    client_limit: "upstream_own_requests",
};

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

    /// Sends a request, whose answer is read without pause. Only path and query of the URI are used.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn send(&self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, SendError> {
        delivery::deliver(&self.target, &[&self.pool], None, request).await
    }
}
