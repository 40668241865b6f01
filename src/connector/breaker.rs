//! Breaks the open connections of one kind, so that new ones take their place.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// The open connections of one kind. Those that are opened later are not affected.
#[derive(Debug)]
pub(super) struct Breaker(Mutex<CancellationToken>);

impl Breaker {
    pub(super) fn new() -> Self {
        let none = CancellationToken::new();
        none.cancel();
        Self(Mutex::new(none))
    }

    /// For a connection that is opened now: cancelled when it is not to be used any more, at the latest with `parent`.
    pub(super) fn token(&self, parent: &CancellationToken) -> CancellationToken {
        let mut current = self.lock();
        if current.is_cancelled() {
            *current = parent.child_token();
        }
        current.child_token()
    }

    /// Breaks all connections that were opened, or began to be opened, until now.
    pub(super) fn trip(&self) {
        self.lock().cancel();
    }

    fn lock(&self) -> MutexGuard<'_, CancellationToken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_from_before_break() {
        let (breaker, mut parent) = (Breaker::new(), CancellationToken::new());
        let old = breaker.token(&parent);
        breaker.trip();
        let new = breaker.token(&parent);
        assert!(old.is_cancelled() && !new.is_cancelled());
        parent.cancel();
        assert!(new.is_cancelled());
        parent = CancellationToken::new();
        assert!(!breaker.token(&parent).is_cancelled(), "another cluster");
    }
}
