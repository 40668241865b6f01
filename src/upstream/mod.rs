//! The API server behind the gateway: the only module that opens outbound connections.
//!
//! [`Upstream`] makes requests with the gateway's own credentials. What the gateway itself asks for, what it forwards and
//! what is upgraded go on connections of their own, so that none can starve another. TLS, credentials that rotate, exec
//! plugins and proxies come from kube-client's configuration. There is no time limit on an answer: watches and logs
//! last as long as they like; dead connections are found by pings and keep-alive.

mod access;
mod body;
mod connector;
mod crd;
mod discovery;
mod error;
mod fetch;
mod lanes;
mod list_watch;
mod review;
mod target;
#[cfg(test)]
pub(crate) mod test_server;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::{Method, Request, Response, Version, header::HOST, request};

pub use body::{RequestBody, ResponseBody};
pub use crd::Crd;
pub use discovery::{ApiResource, Discovery, DiscoveryError};
pub use error::{BuildError, Fault, Retry, SendError};
pub use fetch::FetchError;
pub use lanes::Slot;
pub use list_watch::ResourceListWatch;
pub use review::ReviewError;

use access::{Access, Transport};
use connector::{ConnectionUse, Protocols};
use lanes::{LaneGroup, Lanes, Windows};
use target::{InvalidTarget, Target};
use tower::ServiceExt;

/// The gateway's own requests, one watch for each cache, proofs, discovery: 2,000 at once.
const OWN: LaneGroup =
    LaneGroup { protocols: Protocols::Any, windows: Windows::EAGER, count: 20, limit: "upstream_own_requests" };
/// Forwarded requests: 4,000 at once.
const FORWARDED: LaneGroup =
    LaneGroup { protocols: Protocols::Any, windows: Windows::PATIENT, count: 40, limit: "upstream_forwarded_requests" };
/// Upgrades, a connection for each: 1,000 at once.
const UPGRADES: LaneGroup =
    LaneGroup { protocols: Protocols::Http1, windows: Windows::PATIENT, count: 10, limit: "upstream_upgrades" };

/// The API server, asked with the gateway's own credentials. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Upstream {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: Target,
    own: Lanes,
    forwarded: Lanes,
    upgrades: Lanes,
    impersonates: bool,
}

impl Upstream {
    /// From a resolved kubeconfig or in-cluster configuration. Runs its exec plugin, if any; connects on first use.
    pub fn new(config: &kube_client::Config) -> Result<Self, BuildError> {
        let target = Target::new(&config.cluster_url).ok_or_else(|| BuildError::Address(config.cluster_url.clone()))?;
        let identity = &config.auth_info;
        let impersonates = identity.impersonate.is_some()
            || identity.impersonate_uid.is_some()
            || identity.impersonate_groups.is_some()
            || identity.impersonate_user_extra.is_some();
        let access = Access::new(config)?;
        let shared = Shared {
            target,
            own: Lanes::new(&access, OWN),
            forwarded: Lanes::new(&access, FORWARDED),
            upgrades: Lanes::new(&access, UPGRADES),
            impersonates,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A request of the gateway itself, whose answer is read without pause. Only path and query of the URI count.
    ///
    /// GET and HEAD without a body are asked a second time if a connection that had worked turns out to be dead.
    pub async fn send(&self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, SendError> {
        self.shared.send(&self.shared.own, request).await
    }

    /// A client's request, whose answer is read at the client's pace. Otherwise as [`Upstream::send`].
    pub async fn send_forwarded(&self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, SendError> {
        self.shared.send(&self.shared.forwarded, request).await
    }

    /// A request that asks for an upgrade, over HTTP/1.1 whatever else upstream speaks.
    pub async fn send_http1(&self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, SendError> {
        self.shared.send(&self.shared.upgrades, request).await
    }

    /// Whether the gateway's credentials act as somebody else, so that a client's impersonation must not be added to it.
    pub fn impersonates(&self) -> bool {
        self.shared.impersonates
    }
}

impl Shared {
    async fn send(&self, lanes: &Lanes, request: Request<RequestBody>) -> Result<Response<ResponseBody>, SendError> {
        let (mut head, body) = request.into_parts();
        head.uri = self.target.join(&head.uri).map_err(|InvalidTarget| SendError::InvalidTarget)?;
        // The client chooses the version by what upstream offers, and writes Host from the URI.
        head.version = Version::HTTP_11;
        head.headers.remove(HOST);
        head.extensions = http::Extensions::new();
        let (transport, slot) = lanes.admit().ok_or(SendError::Saturated)?;

        let again = is_repeatable(&head, &body).then(|| (head.clone(), transport.clone()));
        let answer = match (exchange(transport, Request::from_parts(head, body)).await, again) {
            (Err(error), Some((head, transport))) if error.retry() == Retry::AtOnce => {
                exchange(transport, Request::from_parts(head, RequestBody::Empty)).await?
            }
            (answer, _) => answer?,
        };
        Ok(answer.map(|incoming| ResponseBody::new(incoming, slot)))
    }
}

/// Whether a request may be sent twice without harm, and still can be.
fn is_repeatable(head: &request::Parts, body: &RequestBody) -> bool {
    matches!(head.method, Method::GET | Method::HEAD) && matches!(body, RequestBody::Empty)
}

async fn exchange(
    transport: Transport,
    request: Request<RequestBody>,
) -> Result<Response<hyper::body::Incoming>, SendError> {
    let mut answer = transport.oneshot(request).await.map_err(SendError::from_transport)?;
    if let Some(usage) = answer.extensions_mut().remove::<ConnectionUse>() {
        usage.answered();
    }
    Ok(answer)
}
