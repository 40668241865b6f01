//! Tokens that upstream has lately accepted.
//!
//! An API server ends an HTTP/2 connection on an unauthenticated request, with all other requests on it (seen on 1.36:
//! GOAWAY with the refused stream as the last one). So a token shares connections only after upstream has accepted it.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use tokio::time::Instant;

use crate::{
    fairness::ClientKey,
    memo::{Bound, TtlCache},
};

/// How many tokens are remembered; beyond that, some not used lately are forgotten until they are accepted again.
const TOKENS: Bound = Bound { most: 20_000, limit: "proven_tokens" };
/// How long a token is remembered after it was last accepted. Shorter than tokens of service accounts live.
const REMEMBERED: Duration = Duration::from_secs(10 * 60);

/// Cheap to clone; clones share their tokens.
#[derive(Clone, Debug)]
pub(super) struct KnownTokens(Arc<TtlCache<ClientKey, ()>>);

impl KnownTokens {
    pub(super) fn new() -> Self {
        Self(Arc::new(TtlCache::new(TOKENS)))
    }

    pub(super) fn has(&self, token: ClientKey) -> bool {
        self.0.get(&token, Instant::now()).is_some()
    }

    /// Records what an answer says of the token of its request.
    pub(super) fn learn(&self, token: ClientKey, status: StatusCode) {
        match status {
            StatusCode::UNAUTHORIZED => self.0.remove(&token),
            // Other errors may come from a component in front of authentication.
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => self.0.insert(token, (), REMEMBERED),
            status if status.is_success() => self.0.insert(token, (), REMEMBERED),
            _ => {}
        }
    }
}
