//! Breaks the open connections of one kind, so that new ones take their place: those to a cluster that was replaced, to
//! a server that is not used any more, or with a certificate that was.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use tokio_util::sync::CancellationToken;

/// The open connections of one kind. Those that are opened later are not affected. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionCloser(Arc<Mutex<CancellationToken>>);

/// What breaks one connection: the first of these that is cancelled.
#[derive(Clone, Debug, Default)]
pub(super) struct Breaks {
    tokens: Vec<CancellationToken>,
    /// No request is to be sent on it any more, but one that is under way may end.
    left: Option<CancellationToken>,
}

/// An open connection is not to be used any more.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this connection to the API server is not used any more")]
pub(super) struct Broken;

impl ConnectionCloser {
    /// For a connection that is opened now: cancelled when it is not to be used any more.
    pub(super) fn token(&self) -> CancellationToken {
        // A child, so that connections do not contend for one lock at each read.
        self.current().child_token()
    }

    /// Cancelled when connections break the next time: what was learned on them may not hold for later ones.
    pub(super) fn current(&self) -> CancellationToken {
        self.lock().clone()
    }

    /// Breaks all connections that were opened, or began to be opened, until now.
    pub(super) fn trip(&self) {
        let before = std::mem::take(&mut *self.lock());
        before.cancel();
    }

    fn lock(&self) -> MutexGuard<'_, CancellationToken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Breaks {
    pub(super) fn by(tokens: impl IntoIterator<Item = CancellationToken>) -> Self {
        Self { tokens: tokens.into_iter().collect(), left: None }
    }

    pub(super) fn or_left(self, left: CancellationToken) -> Self {
        Self { left: Some(left), ..self }
    }

    pub(super) fn push(&mut self, token: CancellationToken) {
        self.tokens.push(token);
    }

    /// Whether the connection is not to be used any more.
    pub(super) fn is_broken(&self) -> bool {
        self.tokens.iter().any(CancellationToken::is_cancelled)
    }

    /// Whether no other request is to be sent on the connection.
    pub(super) fn is_left(&self) -> bool {
        self.is_broken() || self.left.as_ref().is_some_and(CancellationToken::is_cancelled)
    }

    /// Resolves when the connection is not to be used any more.
    pub(super) fn broken(&self) -> Pin<Box<dyn Future<Output = ()> + Send + Sync>> {
        let mut broken: Vec<_> = self.tokens.iter().map(|token| Box::pin(token.clone().cancelled_owned())).collect();
        Box::pin(poll_fn(move |context| {
            let is_broken = broken.iter_mut().any(|broken| broken.as_mut().poll(context).is_ready());
            if is_broken { Poll::Ready(()) } else { Poll::Pending }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_from_before_break() {
        let (closer, server) = (ConnectionCloser::default(), ConnectionCloser::default());
        let open = || Breaks::by([server.token(), closer.token()]);
        let old = open();
        closer.trip();
        let new = open();
        assert!(old.is_broken() && !new.is_broken());
        server.trip();
        assert!(new.is_broken() && !open().is_broken());
    }
}
