//! Which of the gateway's own requests upstream refuses: 401 and 403.

use std::{
    fmt::Display,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use http::StatusCode;
use tokio::time::Instant;

use super::{
    TroubleKind,
    notice::{Notice, bounded},
};
use base::telemetry::limit_reached;

/// The maximum number of paths that are kept.
const PATHS_MAX: usize = 32;
/// A refusal that is not repeated within this time is forgotten: caches repeat theirs after 30 s at the latest.
const KEPT_FOR: Duration = Duration::from_secs(300);

/// The refusals of one upstream. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether `known` has refusals; read without its lock.
    any: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    refusals: Vec<Refusal>,
    /// Whether the log has a warning about the credentials.
    notice: Notice,
}

/// A request of the gateway that upstream refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Without its query.
    pub(super) path: String,
    pub(super) status: StatusCode,
    pub(super) since: SystemTime,
    /// The message of the last answer; empty if it had none.
    pub(super) message: String,
    last: Instant,
}

impl Refusals {
    /// Notes that the request for `path` to `address` was refused, with the message of the answer. The log has one line
    /// if credentials are not accepted, whatever was requested.
    pub(super) fn refused(&self, address: &impl Display, path: &str, status: StatusCode, message: &str) {
        let (path, message) = (bounded(path), bounded(message));
        if self.keep(path, status, &message) {
            tracing::warn!(%address, error = message, "{}", TroubleKind::Unauthorized.advice());
        }
    }

    /// Notes that the request for `path` to `address` was not refused.
    pub(super) fn allowed(&self, address: &impl Display, path: &str) {
        // Most of the time there is nothing to look for.
        if self.0.any.load(Relaxed) && self.forget(path) {
            tracing::info!(%address, "the API server accepts the gateway's own credentials again");
        }
    }

    /// The refusals that count now: of credentials first, then by time.
    pub(super) fn current(&self) -> Vec<Refusal> {
        let mut known = self.lock();
        known.refusals.retain(|refusal| refusal.last.elapsed() < KEPT_FOR);
        let mut refusals = known.refusals.clone();
        refusals.sort_by_key(|refusal| (refusal.status, refusal.since));
        refusals
    }

    /// Whether credentials are not accepted.
    pub(super) fn is_unauthorized(&self) -> bool {
        self.0.any.load(Relaxed) && self.lock().has_unauthorized()
    }

    /// Whether to log it.
    fn keep(&self, path: String, status: StatusCode, message: &str) -> bool {
        let now = Instant::now();
        let mut known = self.lock();
        known.refusals.retain(|refusal| refusal.last.elapsed() < KEPT_FOR);
        let found = known.refusals.iter_mut().find(|refusal| refusal.path == path && refusal.status == status);
        if let Some(refusal) = found {
            (refusal.last, refusal.message) = (now, message.to_owned());
        } else {
            known.refusals.retain(|refusal| refusal.path != path);
            if known.refusals.len() >= PATHS_MAX {
                limit_reached("upstream_refusals");
            } else {
                let (since, message) = (SystemTime::now(), message.to_owned());
                known.refusals.push(Refusal { path, status, since, message, last: now });
            }
        }
        self.0.any.store(true, Relaxed);
        status == StatusCode::UNAUTHORIZED && known.notice.begins()
    }

    /// Whether to log it.
    fn forget(&self, path: &str) -> bool {
        let path = bounded(path);
        let mut known = self.lock();
        // Credentials are accepted for all requests or for none.
        known.refusals.retain(|refusal| refusal.path != path && refusal.status != StatusCode::UNAUTHORIZED);
        self.0.any.store(!known.refusals.is_empty(), Relaxed);
        known.notice.ends()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn has_unauthorized(&self) -> bool {
        self.refusals.iter().any(|refusal| refusal.status == StatusCode::UNAUTHORIZED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::notice::WARN_EVERY;

    const UNAUTHORIZED: StatusCode = StatusCode::UNAUTHORIZED;
    const FORBIDDEN: StatusCode = StatusCode::FORBIDDEN;

    fn paths(refusals: &Refusals) -> Vec<(String, u16)> {
        refusals.current().into_iter().map(|refusal| (refusal.path, refusal.status.as_u16())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_kept_until_its_path_is_allowed_or_it_expires() {
        let refusals = Refusals::default();
        refusals.keep("/a".to_owned(), FORBIDDEN, "");
        refusals.keep("/b".to_owned(), FORBIDDEN, "");
        refusals.forget("/c");
        assert_eq!(paths(&refusals), [("/a".to_owned(), 403), ("/b".to_owned(), 403)]);
        refusals.forget("/a");
        assert_eq!(paths(&refusals), [("/b".to_owned(), 403)]);
        tokio::time::advance(KEPT_FOR).await;
        assert_eq!(paths(&refusals), []);
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_credentials_are_reported_once_until_any_request_is_accepted() {
        let refusals = Refusals::default();
        assert!(!refusals.keep("/a".to_owned(), FORBIDDEN, ""));
        assert!(refusals.keep("/a".to_owned(), UNAUTHORIZED, ""));
        tokio::time::advance(WARN_EVERY).await;
        assert!(!refusals.keep("/b".to_owned(), UNAUTHORIZED, ""));
        assert!(refusals.is_unauthorized());
        assert!(refusals.forget("/version"));
        assert!(!refusals.is_unauthorized() && paths(&refusals).is_empty());
        assert!(!refusals.forget("/version"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_paths_is_bounded() {
        let refusals = Refusals::default();
        for number in 0..PATHS_MAX * 3 {
            refusals.keep(format!("/{number}"), FORBIDDEN, "");
        }
        assert_eq!(refusals.current().len(), PATHS_MAX);
    }
}
