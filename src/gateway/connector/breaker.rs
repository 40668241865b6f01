//! Breaks the open connections of one kind, so that new ones take their place.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// The open connections of one kind. Those that are opened later are not affected.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<CancellationToken>);

/// What breaks one connection: the first of these that is cancelled.
#[derive(Clone, Debug, Default)]
pub(super) struct Breaks(Vec<CancellationToken>);

impl Breaker {
    /// For a connection that is opened now: cancelled when it is not to be used any more.
    pub(super) fn token(&self) -> CancellationToken {
        // A child, so that connections do not contend for one lock at each read.
        self.lock().child_token()
    }

    /// Breaks all connections that were opened, or began to be opened, until now.
    pub(super) fn trip(&self) {
        std::mem::take(&mut *self.lock()).cancel();
    }

    fn lock(&self) -> MutexGuard<'_, CancellationToken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Breaks {
    pub(super) fn by(tokens: impl IntoIterator<Item = CancellationToken>) -> Self {
        Self(tokens.into_iter().collect())
    }

    pub(super) fn push(&mut self, token: CancellationToken) {
        self.0.push(token);
    }

    /// Whether the connection is not to be used any more.
    pub(super) fn is_broken(&self) -> bool {
        self.0.iter().any(CancellationToken::is_cancelled)
    }

    pub(super) fn tokens(&self) -> &[CancellationToken] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_from_before_break() {
        let (breaker, server) = (Breaker::default(), Breaker::default());
        let open = || Breaks::by([server.token(), breaker.token()]);
        let old = open();
        breaker.trip();
        let new = open();
        assert!(old.is_broken() && !new.is_broken());
        server.trip();
        assert!(new.is_broken() && !open().is_broken());
    }
}
