//! Tokens that upstream has recently accepted.
//!
//! An API server ends an HTTP/2 connection on an unauthenticated request, with all other requests on it (seen on 1.36:
//! GOAWAY with the refused stream as the last one). So a token shares connections only after upstream has accepted it.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use tokio::time::Instant;

use crate::{
    connector::era::Era,
    fairness::ClientKey,
    memo::{Bound, TtlCache},
};

/// Maximum number of tokens. Beyond it, some that were not used recently are evicted, until they are accepted again.
const TOKENS: Bound = Bound { most: 20_000, limit: "proven_tokens" };
/// How long a token is kept after it was last accepted. Shorter than the lifetime of service account tokens.
const REMEMBERED: Duration = Duration::from_secs(10 * 60);

/// Tokens of one era: another cluster need not accept them. Cheap to clone; clones share their tokens.
#[derive(Clone, Debug)]
pub(super) struct KnownTokens {
    /// Each with the number of the era in which it was accepted.
    tokens: Arc<TtlCache<ClientKey, u64>>,
    era: Era,
}

impl KnownTokens {
    pub(super) fn new(era: Era) -> Self {
        Self { tokens: Arc::new(TtlCache::new(TOKENS)), era }
    }

    pub(super) fn has(&self, token: ClientKey) -> bool {
        self.tokens.get(&token, Instant::now()) == Some(self.era.number())
    }

    /// Records whether an answer shows that upstream accepted its request's token.
    pub(super) fn learn(&self, token: ClientKey, status: StatusCode) {
        let accepted = || self.tokens.insert(token, self.era.number(), REMEMBERED);
        match status {
            StatusCode::UNAUTHORIZED => self.tokens.remove(&token),
            // Other errors may come from a component in front of authentication.
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => accepted(),
            status if status.is_success() => accepted(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_cluster_need_not_accept_the_tokens_of_the_one_before() {
        let (era, token) = (Era::default(), ClientKey::user("jane"));
        let tokens = KnownTokens::new(era.clone());
        tokens.learn(token, StatusCode::OK);
        assert!(tokens.has(token));
        era.end();
        assert!(!tokens.has(token));
        tokens.learn(token, StatusCode::FORBIDDEN);
        assert!(tokens.has(token));
        tokens.learn(token, StatusCode::UNAUTHORIZED);
        assert!(!tokens.has(token));
    }
}
