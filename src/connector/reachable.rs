//! Whether upstream can be reached: for the status, and for the log, which has a line when it cannot, and one when it
//! can again.

use std::{
    fmt::Display,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::SystemTime,
};

use super::{
    SendError,
    notice::{Notice, bounded},
};
use crate::telemetry::Chain;

/// What the last requests found out. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Reachable(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The last request did not reach it. Read without the lock: requests that succeed must not contend for it.
    is_down: AtomicBool,
    down: Mutex<Down>,
}

#[derive(Debug, Default)]
struct Down {
    now: Option<Unreachable>,
    notice: Notice,
}

/// Upstream cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unreachable {
    /// The time of the first request that did not reach it.
    pub(super) since: SystemTime,
    /// The error of the last one, with its causes.
    pub(super) error: String,
}

impl Reachable {
    /// Records the outcome of a request to `address`: its error, or `None` if there was an answer.
    pub(super) fn note(&self, address: &impl Display, error: Option<&SendError>) {
        match error {
            Some(error) if error.is_unreachable() => {
                let text = bounded(&Chain(error).to_string());
                if self.fell(text) {
                    tracing::warn!(%address, error = %Chain(error), "the API server cannot be reached; check its address \
                        and certificate authority in the kubeconfig, its proxy, and the network on the way");
                }
            }
            None if self.0.is_down.load(Relaxed) && self.rose() => {
                tracing::info!(%address, "the API server can be reached again");
            }
            // Other errors do not show whether the request reached upstream.
            _ => {}
        }
    }

    /// `None` while it can be reached, or is not known not to be.
    pub(super) fn trouble(&self) -> Option<Unreachable> {
        self.lock().now.clone()
    }

    /// Notes that it could not be reached. Whether to log that.
    fn fell(&self, error: String) -> bool {
        let mut down = self.lock();
        match &mut down.now {
            Some(now) => now.error = error,
            None => down.now = Some(Unreachable { since: SystemTime::now(), error }),
        }
        self.0.is_down.store(true, Relaxed);
        down.notice.begins()
    }

    /// Notes that it was reached. Whether to log that.
    fn rose(&self) -> bool {
        let mut down = self.lock();
        down.now = None;
        self.0.is_down.store(false, Relaxed);
        down.notice.ends()
    }

    fn lock(&self) -> MutexGuard<'_, Down> {
        self.0.down.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::notice::WARN_EVERY;

    #[tokio::test(start_paused = true)]
    async fn warnings_have_a_time_between_them() {
        let upstream = Reachable::default();
        let flaps = |times: usize| {
            let flap = |_: &usize| {
                let warned = upstream.fell("refused".to_owned());
                upstream.rose();
                warned
            };
            (0..times).filter(flap).count()
        };
        assert_eq!(flaps(100), 1);
        tokio::time::advance(WARN_EVERY).await;
        assert_eq!(flaps(100), 1);
        assert!(!upstream.fell("refused".to_owned()));
    }

    #[test]
    fn it_is_down_since_the_first_failure_with_the_last_error() {
        let upstream = Reachable::default();
        assert_eq!(upstream.trouble(), None);
        upstream.fell("one".to_owned());
        let first = upstream.trouble().unwrap();
        upstream.fell("two".to_owned());
        assert_eq!(upstream.trouble(), Some(Unreachable { error: "two".to_owned(), ..first }));
        upstream.note(&"", None);
        assert_eq!(upstream.trouble(), None);
    }
}
