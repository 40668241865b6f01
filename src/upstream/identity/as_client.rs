//! Clients that show upstream themselves who they are.

use std::sync::Arc;

use http::{HeaderValue, Request, header};
use kube_client::Config;
use uuid::Uuid;

use super::{Connections, Limits, Outbound, refuse_clear_text, shed};
use crate::upstream::{BuildError, RequestBody, access::Access, target::Target};

/// Sends requests with what their clients have brought, on connections that show nothing of the gateway's: no client
/// certificate, no token, no plugin's credentials, no impersonation. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AsClient {
    connections: Arc<Connections>,
}

const LIMITS: Limits = Limits { requests: "upstream_client_requests", upgrades: "upstream_client_upgrades" };

impl AsClient {
    /// Of a configuration, only where the server is, how it is verified, and a proxy on the way count.
    ///
    /// # Errors
    /// The configuration cannot be used, or tokens would cross a network without TLS.
    pub fn new(config: &Config) -> Result<Self, BuildError> {
        refuse_clear_text(config)?;
        let access = Access::without_credentials(config)?;
        Ok(Self { connections: Connections::new(&access, Target::of(config)?, LIMITS) })
    }

    /// The request with the client's own Authorization, if it has any. A token in a WebSocket's subprotocol passes, and
    /// Impersonate-*: upstream knows what the client may.
    pub fn outbound(&self, mut request: Request<RequestBody>, authorization: Option<HeaderValue>) -> Outbound {
        let headers = request.headers_mut();
        headers.remove(header::AUTHORIZATION);
        shed::shed_front_proxy(headers);
        if let Some(mut authorization) = authorization {
            authorization.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, authorization);
        }
        self.connections.outbound(request)
    }

    /// The request of somebody who has shown what nobody vouches for, with a token that nobody has: upstream words the 401.
    pub fn refused(&self, request: Request<RequestBody>) -> Outbound {
        let token = HeaderValue::try_from(format!("Bearer {}", Uuid::new_v4())).expect("a UUID is a header value");
        self.outbound(request, Some(token))
    }
}
