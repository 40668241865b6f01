//! Tokens that upstream has recently accepted.
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

/// Maximum number of tokens. Beyond it, some that were not used recently are evicted, until they are accepted again.
const TOKENS: Bound = Bound { most: 20_000, limit: "proven_tokens" };
/// How long a token is kept after it was last accepted. Shorter than the lifetime of service account tokens.
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

    /// Records whether an answer shows that upstream accepted its request's token.
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
