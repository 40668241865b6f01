//! Tokens that upstream has recently accepted.
//!
//! An API server ends an HTTP/2 connection on an unauthenticated request, with all other requests on it (seen on 1.36:
//! GOAWAY with the refused stream as the last one). So a token shares connections only after upstream has accepted it.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use tokio::time::Instant;

use crate::connector::era::Era;
use base::{
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

/// A token that a request carries, and the number of the era in which the request was made: an answer that comes in a
/// later era may still be from the cluster before.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    tokens: Arc<TtlCache<ClientKey, u64>>,
    token: ClientKey,
    era: u64,
}

impl KnownTokens {
    pub(super) fn new(era: Era) -> Self {
        Self { tokens: Arc::new(TtlCache::new(TOKENS)), era }
    }

    /// To be called before the request is sent.
    pub(super) fn show(&self, token: ClientKey) -> Shown {
        Shown { tokens: self.tokens.clone(), token, era: self.era.number() }
    }
}

impl Shown {
    /// Whether the cluster of the era accepted the token recently.
    pub(super) fn is_known(&self) -> bool {
        self.tokens.get(&self.token, Instant::now()) == Some(self.era)
    }

    /// Records whether the answer shows that upstream accepted the token.
    pub(super) fn learn(self, status: StatusCode) {
        let Self { tokens, token, era } = self;
        let accepted = || tokens.insert(token, era, REMEMBERED);
        match status {
            StatusCode::UNAUTHORIZED => tokens.remove(&token),
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
        let is_known = || tokens.show(token).is_known();
        tokens.show(token).learn(StatusCode::OK);
        assert!(is_known());
        let before = tokens.show(token);
        era.end();
        assert!(!is_known());
        before.learn(StatusCode::OK);
        assert!(!is_known(), "the request was sent to the cluster before");
        tokens.show(token).learn(StatusCode::FORBIDDEN);
        assert!(is_known());
        tokens.show(token).learn(StatusCode::UNAUTHORIZED);
        assert!(!is_known());
    }
}
