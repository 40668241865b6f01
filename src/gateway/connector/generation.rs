//! Which connections lead to the cluster that upstream is now: when it was replaced, all earlier ones break.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::breaker::Breaks;

/// The time since the cluster was last replaced. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Generation(Arc<Mutex<Current>>);

#[derive(Debug, Default)]
struct Current {
    number: u64,
    token: CancellationToken,
}

/// Whether an open connection is still to be used.
pub(super) struct Breakable {
    breaks: Breaks,
    broken: Vec<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// An open connection is not to be used any more.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this connection to the API server is not used any more")]
pub(super) struct Broken;

impl Generation {
    /// Breaks all connections that were opened, or began to be opened, until now.
    pub(super) fn end(&self) {
        let mut current = self.lock();
        current.number += 1;
        std::mem::take(&mut current.token).cancel();
    }

    /// What was learned in a generation of another number may not hold for this one.
    pub(super) fn number(&self) -> u64 {
        self.lock().number
    }

    /// Of a connection that is opened now: cancelled when the generation ends.
    pub(super) fn token(&self) -> CancellationToken {
        // A child, so that connections do not contend for one lock at each read.
        self.lock().token.child_token()
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Breakable {
    pub(super) fn by(breaks: Breaks) -> Self {
        let broken = breaks.tokens().iter().map(|token| Box::pin(token.clone().cancelled_owned())).collect();
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
