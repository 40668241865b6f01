//! Sends the requests that check one of several API servers, including servers that are not in use.

use http::{Request, Response};

use super::{
    RequestBody, ResponseBody, SendError, Servers,
    access::Access,
    delivery,
    pool::{Pool, PoolSettings},
    servers::Choice,
    target::Target,
};

/// A few requests at once to each server.
const CHECKS: PoolSettings = PoolSettings::own("upstream_server_checks", 1);

/// Requests to each of several servers with the gateway's own credentials, on connections that carry no other.
#[derive(Debug)]
pub struct ServerChecks {
    servers: Servers,
    target: Target,
    /// One for each server.
    pools: Vec<Pool>,
}

impl ServerChecks {
    pub(super) fn new(servers: Servers, access: &Access, target: Target) -> Self {
        let only = |index| Pool::new(access, PoolSettings { choice: Choice::Only(index), ..CHECKS });
        let pools = (0..servers.addresses().len()).map(only).collect();
        Self { servers, target, pools }
    }

    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Sends a request to the server at that place in the configuration. Only path and query of the URI are used.
    ///
    /// # Errors
    /// There is no answer, or no such server.
    pub async fn send(&self, index: usize, request: Request<RequestBody>) -> Result<Response<ResponseBody>, SendError> {
        let pool = self.pools.get(index).ok_or(SendError::InvalidTarget)?;
        // That one server cannot be reached says nothing of the others.
        delivery::deliver_unnoted(&self.target, &[pool], None, request).await
    }
}
