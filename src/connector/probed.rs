//! What asking for upstream's version has found out: whether an API server answers at its address.

use std::{
    fmt::Display,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::SystemTime,
};

use super::{
    TroubleKind,
    notice::{Notice, bounded},
};

/// The outcome of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// An API server has said its version.
    Passed,
    /// What is wrong is already known from the request itself: it did not reach upstream, or was refused.
    Noted,
    /// Something answers, or holds the connection open, that is not a working API server.
    Failed { kind: TroubleKind, error: String },
}

/// The outcome of the last probe. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Probed(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The last probe has failed. Read without the lock.
    is_failed: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    failed: Option<Failed>,
    notice: Notice,
}

/// What the last probe has found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) kind: TroubleKind,
    /// The time of the first probe that found the same.
    pub(super) since: SystemTime,
    /// The words of the last probe.
    pub(super) error: String,
}

impl Probed {
    /// Records the outcome of a probe of `address`. The log has a line when a probe fails, and one when they pass again.
    pub(super) fn note(&self, address: &impl Display, probe: Probe) {
        match probe {
            Probe::Passed => {
                tracing::debug!(%address, "the API server answers");
                if self.passed() {
                    tracing::info!(%address, "an API server answers now");
                }
            }
            Probe::Noted => {
                self.passed();
            }
            Probe::Failed { kind, error } => {
                let error = bounded(&error);
                if self.failed(kind, &error) {
                    tracing::warn!(%address, error, "{}", advice(kind));
                }
            }
        }
    }

    /// `None` if the last probe has found nothing wrong, or there was none.
    pub(super) fn trouble(&self) -> Option<Failed> {
        if self.0.is_failed.load(Relaxed) { self.lock().failed.clone() } else { None }
    }

    /// Whether to log it.
    fn failed(&self, kind: TroubleKind, error: &str) -> bool {
        let mut known = self.lock();
        let since = known.failed.as_ref().filter(|failed| failed.kind == kind).map(|failed| failed.since);
        let since = since.unwrap_or_else(SystemTime::now);
        known.failed = Some(Failed { kind, since, error: error.to_owned() });
        self.0.is_failed.store(true, Relaxed);
        known.notice.begins()
    }

    /// Whether to log it.
    fn passed(&self) -> bool {
        let mut known = self.lock();
        known.failed = None;
        self.0.is_failed.store(false, Relaxed);
        known.notice.ends()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is wrong and what to check, for the log.
fn advice(kind: TroubleKind) -> &'static str {
    match kind {
        TroubleKind::Loop => {
            "the API server's address leads back to this gateway; the kubeconfig has to name the API server itself"
        }
        TroubleKind::Foreign => "this does not look like an API server; check its address in the kubeconfig",
        TroubleKind::Unanswered | TroubleKind::Unreachable | TroubleKind::Unauthorized | TroubleKind::Forbidden => {
            "the API server does not say its version; check its address in the kubeconfig, and whether it is well"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_until_a_probe_passes_and_is_told_of_once() {
        let probed = Probed::default();
        assert_eq!(probed.trouble(), None);
        assert!(probed.failed(TroubleKind::Foreign, "one"));
        let first = probed.trouble().unwrap();
        assert!(!probed.failed(TroubleKind::Foreign, "two"));
        assert_eq!(probed.trouble(), Some(Failed { error: "two".to_owned(), ..first }));
        assert!(!probed.failed(TroubleKind::Unanswered, "three"));
        assert_eq!(probed.trouble().unwrap().kind, TroubleKind::Unanswered);
        assert!(probed.passed());
        assert_eq!(probed.trouble(), None);
        assert!(!probed.passed());
    }
}
