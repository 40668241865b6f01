//! Whether upstream can be reached, for the log: a line when it cannot, and one when it can again.

use std::{
    fmt::Display,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::SendError;
use crate::telemetry::Chain;

/// The minimum time between two warnings: where some connections work and others do not, requests alternate.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// What the log was told last. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Reachable(Arc<Told>);

#[derive(Debug, Default)]
struct Told {
    /// The last line was the warning.
    that_not: AtomicBool,
    warned_at: Mutex<Option<Instant>>,
}

impl Reachable {
    /// Notes the outcome of a request to `address`: its error, or `None` if there was an answer.
    pub(super) fn note(&self, address: &impl Display, error: Option<&SendError>) {
        let Told { that_not, .. } = &*self.0;
        match error {
            Some(error) if error.is_unreachable() && self.0.may_warn() => {
                tracing::warn!(%address, error = %Chain(error), "the API server cannot be reached");
            }
            // Read first: requests that succeed must not contend for a write.
            None if that_not.load(Relaxed) && that_not.swap(false, Relaxed) => {
                tracing::info!(%address, "the API server can be reached again");
            }
            // Other errors do not tell whether the request reached it.
            _ => {}
        }
    }
}

impl Told {
    fn may_warn(&self) -> bool {
        if self.that_not.load(Relaxed) {
            return false;
        }
        let mut warned_at = self.warned_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = warned_at.is_none_or(|at| at.elapsed() >= WARN_EVERY);
        if is_due {
            *warned_at = Some(Instant::now());
            self.that_not.store(true, Relaxed);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn warnings_have_a_time_between_them() {
        let told = Told::default();
        let flaps = |times: usize| {
            let flap = |_: &usize| {
                let warned = told.may_warn();
                told.that_not.store(false, Relaxed);
                warned
            };
            (0..times).filter(flap).count()
        };
        assert_eq!(flaps(100), 1);
        tokio::time::advance(WARN_EVERY).await;
        assert_eq!(flaps(100), 1);
        assert!(!told.may_warn());
    }
}
