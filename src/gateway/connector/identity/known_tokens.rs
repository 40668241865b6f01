//! Tokens that upstream has recently accepted.
//!
//! An API server ends an HTTP/2 connection on an unauthenticated request, with all other requests on it (seen on 1.36:
//! GOAWAY with the refused stream as the last one). So a token shares connections only after upstream has accepted it.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connector::connection_closer::ConnectionCloser;
use base::{
    fairness::ClientKey,
    memo::{Bound, TtlCache},
};

/// Maximum number of tokens. Beyond it, some that were not used recently are evicted, until they are accepted again.
const TOKENS: Bound = Bound { most: 20_000, limit: "proven_tokens" };
/// How long a token is kept after it was last accepted. Shorter than the lifetime of service account tokens.
const REMEMBERED: Duration = Duration::from_secs(10 * 60);

/// Tokens of one cluster: another one need not accept them. Cheap to clone; clones share their tokens.
#[derive(Clone, Debug)]
pub(super) struct KnownTokens {
    /// Each with what is cancelled when the cluster that accepted it is replaced.
    tokens: Arc<TtlCache<ClientKey, CancellationToken>>,
    cluster: ConnectionCloser,
}

/// A token that a request carries, and what is cancelled when the cluster is replaced: an answer that comes after that
/// may still be from the cluster before.
#[derive(Clone, Debug)]
pub(super) struct PresentedToken {
    tokens: Arc<TtlCache<ClientKey, CancellationToken>>,
    token: ClientKey,
    replaced: CancellationToken,
}

impl KnownTokens {
    pub(super) fn new(cluster: ConnectionCloser) -> Self {
        Self { tokens: Arc::new(TtlCache::new(TOKENS)), cluster }
    }

    /// To be called before the request is sent.
    pub(super) fn show(&self, token: ClientKey) -> PresentedToken {
        PresentedToken { tokens: self.tokens.clone(), token, replaced: self.cluster.current() }
    }
}

impl PresentedToken {
    /// Whether the cluster accepted the token recently.
    pub(super) fn is_known(&self) -> bool {
        self.tokens.get(&self.token, Instant::now()).is_some_and(|replaced| !replaced.is_cancelled())
    }

    /// Records whether the answer shows that upstream accepted the token.
    pub(super) fn learn(self, status: StatusCode) {
        let Self { tokens, token, replaced } = self;
        let accepted = || tokens.insert(token, replaced, REMEMBERED);
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
        let (cluster, token) = (ConnectionCloser::default(), ClientKey::user("jane"));
        let tokens = KnownTokens::new(cluster.clone());
        let is_known = || tokens.show(token).is_known();
        tokens.show(token).learn(StatusCode::OK);
        assert!(is_known());
        let before = tokens.show(token);
        cluster.trip();
        assert!(!is_known());
        before.learn(StatusCode::OK);
        assert!(!is_known(), "the request was sent to the cluster before");
        tokens.show(token).learn(StatusCode::FORBIDDEN);
        assert!(is_known());
        tokens.show(token).learn(StatusCode::UNAUTHORIZED);
        assert!(!is_known());
    }
}
