//! Breaks the open connections of one kind, so that new ones take their place: those to a cluster that was replaced, to
//! a server that is not used any more, or with a certificate that was.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The open connections of one kind. Those that are opened later are not affected. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Breaker(Arc<Mutex<Current>>);

#[derive(Debug, Default)]
struct Current {
    /// How often connections were broken.
    generation: u64,
    token: CancellationToken,
}

/// What breaks one connection: the first of these that is cancelled.
#[derive(Clone, Debug, Default)]
pub(super) struct Breaks(Vec<CancellationToken>);

/// Whether an open connection is still to be used.
pub(super) struct Breakable {
    breaks: Breaks,
    broken: Vec<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// An open connection is not to be used any more.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this connection to the API server is not used any more")]
pub(super) struct Broken;

impl Breaker {
    /// For a connection that is opened now: cancelled when it is not to be used any more.
    pub(super) fn token(&self) -> CancellationToken {
        // A child, so that connections do not contend for one lock at each read.
        self.lock().token.child_token()
    }

    /// Breaks all connections that were opened, or began to be opened, until now.
    pub(super) fn trip(&self) {
        let mut current = self.lock();
        current.generation += 1;
        std::mem::take(&mut current.token).cancel();
    }

    /// What was learned on connections of another generation may not hold for those of this one.
    pub(super) fn generation(&self) -> u64 {
        self.lock().generation
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
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
}

impl Breakable {
    pub(super) fn by(breaks: Breaks) -> Self {
        let broken = breaks.0.iter().map(|token| Box::pin(token.clone().cancelled_owned())).collect();
        Self { breaks, broken }
    }

    /// What tells that the connection is not to be used any more.
    pub(super) fn breaks(&self) -> Breaks {
        self.breaks.clone()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.breaks.is_broken()
    }

    /// Ready when the connection is not to be used any more.
    pub(super) fn poll_broken(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut broken = self.broken.iter_mut();
        if broken.any(|broken| broken.as_mut().poll(context).is_ready()) { Poll::Ready(()) } else { Poll::Pending }
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
