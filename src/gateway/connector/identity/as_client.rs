//! Clients whose own credentials are passed to upstream.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, Request, header};
use uuid::Uuid;

use super::{Connections, Limits, Outbound, UNKNOWN_LIMITS, known_tokens::KnownTokens, strip};
use crate::connector::{BuildError, RequestBody, access::Access, target::Target};
use base::fairness::{ClientKey, ConcurrencyLimit};

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
    /// For requests with unknown credentials, until their responses begin.
    pub(super) turns: Arc<ConcurrencyLimit>,
}

/// Requests with unknown credentials that one client has upstream at once; the others wait for their turn. Each may
/// need a new connection, and most of what an invented token costs upstream is its TLS handshake.
const UNKNOWN_AT_ONCE: usize = 4;
/// Such requests of all clients together, beyond the first of each.
const COMMON: usize = 4;
/// How long such a request waits for its turn, then it is sent without one: clients may share an address.
const TURN_WAIT_MAX: Duration = Duration::from_secs(1);
const LIMITS: Limits = Limits { requests: "upstream_client_requests", upgrades: "upstream_client_upgrades" };

impl AsClient {
    /// Uses only the server's verification and the proxy of `access`.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub(in crate::connector) fn new(access: &Access, target: Target) -> Result<Self, BuildError> {
        let access = access.without_credentials()?;
        let unknown = Connections::one_at_a_time(&access, target.clone(), UNKNOWN_LIMITS);
        let turns = ConcurrencyLimit::new(UNKNOWN_AT_ONCE, TURN_WAIT_MAX, "client_token_wait").with_common(COMMON);
        let connections = Connections::new(&access, target, LIMITS);
        Ok(Self {
            connections,
            unknown,
            known_tokens: KnownTokens::new(access.cluster().clone()),
            turns: Arc::new(turns),
        })
    }

    /// Whether few more watches of that client would get a place.
    pub fn is_scarce_for(&self, client: Option<ClientKey>) -> bool {
        self.connections.are_scarce_for(client)
    }

    /// The request with the client's own Authorization, which may be valid; `token` identifies the token in it. A token
    /// in a WebSocket's subprotocol and Impersonate-* are passed on: upstream authorizes the client.
    pub fn outbound(&self, request: Request<RequestBody>, authorization: HeaderValue, token: ClientKey) -> Outbound {
        let token = self.known_tokens.show(token);
        let is_known = token.is_known();
        let connections = if is_known { &self.connections } else { &self.unknown };
        let outbound = connections.outbound(showing(request, Some(authorization)));
        let turns = (!is_known).then(|| self.turns.clone());
        Outbound { token: Some(token), turns, ..outbound }
    }

    /// The request of a client without credentials that could identify a user, with its own Authorization if it has
    /// any. Other headers are passed on as for other clients.
    pub fn unidentified(&self, request: Request<RequestBody>, authorization: Option<HeaderValue>) -> Outbound {
        let turns = authorization.is_some().then(|| self.turns.clone());
        Outbound { turns, ..self.unknown.outbound(showing(request, authorization)) }
    }

    /// The request of a client whose token is in a subprotocol of a WebSocket, which is passed on.
    pub fn with_subprotocol(&self, request: Request<RequestBody>) -> Outbound {
        Outbound { turns: Some(self.turns.clone()), ..self.unidentified(request, None) }
    }

    /// The request of a client with invalid credentials. They are replaced by a random token, so that the 401 comes
    /// from upstream.
    pub fn refused(&self, request: Request<RequestBody>) -> Outbound {
        let token = HeaderValue::try_from(format!("Bearer {}", Uuid::new_v4())).expect("a UUID is a header value");
        self.unidentified(request, Some(token))
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
