//! What the stages need to know of a request, besides its head.

use std::net::IpAddr;

use http::Uri;
use tokio::time::Instant;

use crate::{authn::Credentials, authz::Attributes};
use base::apimachinery::{RequestInfo, ResourceRequest};

/// A request that was admitted. Stays the same on its way through the stages.
#[derive(Clone, Debug)]
pub(super) struct RequestContext {
    pub(super) uri: Uri,
    pub(super) info: RequestInfo,
    /// The request's own, removed from its headers.
    pub(super) credentials: Credentials,
    /// The client's address; `None` on a Unix socket.
    pub(super) peer: Option<IpAddr>,
    pub(super) received: Instant,
}

impl RequestContext {
    pub(super) fn query(&self) -> Option<&str> {
        self.uri.query()
    }

    /// What the request's user needs permission for, to read `target`.
    pub(super) fn attributes(&self, target: &ResourceRequest) -> Attributes {
        Attributes::of(self.info.verb, target, self.query())
    }
}
