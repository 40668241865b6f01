//! Sends the gateway's questions to other gateways of the same cluster, with its own credentials.

use http::{HeaderValue, Request, Response, Version, header};
use tower::ServiceExt;

use super::{
    RequestBody, ResponseBody, SendError,
    access::Access,
    dialer::Protocols,
    own_requests::AGENT,
    pool::{NoPlace, Pool, PoolSettings},
    target::{InvalidTarget, Target},
    via,
};

/// One question for each cache, at its first fill: 400 at once. Peers are not behind `upstream.servers`, so there is no
/// choice of a server: each address is dialled itself.
const PEER: PoolSettings = PoolSettings { protocols: Protocols::Http1, ..PoolSettings::own("peer_requests", 4) };

/// Sends requests to the gateways behind one address. Each has its own connection: a load balancer decides for
/// each connection which gateway is asked.
#[derive(Debug)]
pub struct PeerRequests {
    target: Target,
    pool: Pool,
}

impl PeerRequests {
    pub(super) fn new(access: &Access, target: Target) -> Self {
        Self { target, pool: Pool::new(access, PEER) }
    }

    /// The address, without credentials.
    pub fn address(&self) -> String {
        self.target.to_string()
    }

    /// Sends a request, whose answer is read without pause. Only path and query of the URI are used.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn send(&self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, SendError> {
        let (mut head, body) = request.into_parts();
        head.uri = self.target.join(&head.uri).map_err(|InvalidTarget| SendError::InvalidTarget)?;
        head.version = Version::HTTP_11;
        head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        head.headers.insert(header::USER_AGENT, AGENT);
        via::add(&mut head.headers);
        let (transport, slot) = self.pool.admit(None).map_err(|why| match why {
            NoPlace::Saturated => SendError::Saturated,
            NoPlace::ClientShare => SendError::ClientShare,
        })?;
        let answer = transport.oneshot(Request::from_parts(head, body)).await.map_err(SendError::from_transport)?;
        Ok(answer.map(|received| ResponseBody::new(received, slot)))
    }
}
