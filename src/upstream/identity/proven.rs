//! Tokens that upstream has lately taken for somebody's.
//!
//! An API server ends an HTTP/2 connection at once, with everything that others have asked on it, when somebody unknown asks on
//! it (seen on 1.36: GOAWAY with the refused stream as the last one). So a token shares connections only when it has been good.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use tokio::time::Instant;

use crate::{
    fairness::ClientKey,
    remembered::{Bound, Kept},
};

/// Tokens that are remembered; beyond it some that were not seen lately go, and prove themselves again.
const TOKENS: Bound = Bound { most: 20_000, limit: "proven_tokens" };
/// How long one is remembered after it was last good. Shorter than tokens of service accounts live.
const REMEMBERED: Duration = Duration::from_secs(10 * 60);

/// Cheap to clone; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Proven(Arc<Kept<ClientKey, ()>>);

impl Proven {
    pub(super) fn new() -> Self {
        Self(Arc::new(Kept::new(TOKENS)))
    }

    pub(super) fn has(&self, token: ClientKey) -> bool {
        self.0.get(&token, Instant::now()).is_some()
    }

    /// What an answer says of the token that was shown.
    pub(super) fn learn(&self, token: ClientKey, status: StatusCode) {
        match status {
            StatusCode::UNAUTHORIZED => self.0.forget(&token),
            // Errors may come from somebody before the one who looks at tokens.
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => self.0.keep(token, (), REMEMBERED),
            status if status.is_success() => self.0.keep(token, (), REMEMBERED),
            _ => {}
        }
    }
}
