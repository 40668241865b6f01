//! Clients whose own credentials are passed to upstream.

use std::sync::Arc;

use http::{HeaderValue, Request, header};
use kube_client::Config;
use uuid::Uuid;

use super::{Connections, Limits, Outbound, UNKNOWN_LIMITS, known_tokens::KnownTokens, strip};
use crate::connector::{BuildError, RequestBody, access::Access, target::Target};
use crate::fairness::ClientKey;

/// Sends requests with their clients' own credentials, on connections without the gateway's: no client
/// certificate, no token, no plugin's credentials, no impersonation. Cheap to clone.
///
/// Tokens that upstream has not accepted yet are kept apart, on connections for one request at a time: API servers end
/// an HTTP/2 connection on an unauthenticated request, with all other requests in flight on it.
#[derive(Clone, Debug)]
pub struct AsClient {
    connections: Arc<Connections>,
    unknown: Arc<Connections>,
    known_tokens: KnownTokens,
}

const LIMITS: Limits = Limits { requests: "upstream_client_requests", upgrades: "upstream_client_upgrades" };

impl AsClient {
    /// Uses only the server's verification and the proxy of a configuration.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub(in crate::connector) fn new(config: &Config, target: Target) -> Result<Self, BuildError> {
        let access = Access::without_credentials(config)?;
        let unknown = Connections::one_at_a_time(&access, target.clone(), UNKNOWN_LIMITS);
        Ok(Self { connections: Connections::new(&access, target, LIMITS), unknown, known_tokens: KnownTokens::new() })
    }

    /// The request with the client's own Authorization, which may be valid; `token` identifies the token in it. A token
    /// in a WebSocket's subprotocol and Impersonate-* are passed on: upstream authorizes the client.
    pub fn outbound(&self, request: Request<RequestBody>, authorization: HeaderValue, token: ClientKey) -> Outbound {
        let connections = if self.known_tokens.has(token) { &self.connections } else { &self.unknown };
        let outbound = connections.outbound(showing(request, Some(authorization)));
        Outbound { token: Some((self.known_tokens.clone(), token)), ..outbound }
    }

    /// The request of a client without credentials that could identify a user, with its own Authorization if it has any.
    /// Other headers are passed on as for other clients.
    pub fn nobody(&self, request: Request<RequestBody>, authorization: Option<HeaderValue>) -> Outbound {
        self.unknown.outbound(showing(request, authorization))
    }

    /// The request of a client with invalid credentials. They are replaced by a random token, so that the 401 comes from
    /// upstream.
    pub fn refused(&self, request: Request<RequestBody>) -> Outbound {
        let token = HeaderValue::try_from(format!("Bearer {}", Uuid::new_v4())).expect("a UUID is a header value");
        self.nobody(request, Some(token))
    }
}

fn showing(mut request: Request<RequestBody>, authorization: Option<HeaderValue>) -> Request<RequestBody> {
    let headers = request.headers_mut();
    headers.remove(header::AUTHORIZATION);
    strip::strip_front_proxy(headers);
    if let Some(mut authorization) = authorization {
        authorization.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, authorization);
    }
    request
}
