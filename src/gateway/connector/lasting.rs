//! One trouble with upstream, or its absence: its kind, its start, its last error, and whether it was logged.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::SystemTime,
};

use super::{TroubleKind, notice::Notice};

/// The state of one trouble. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Lasting(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Read without the lock: requests that succeed must not contend for it.
    is_there: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    now: Option<Current>,
    notice: Notice,
}

/// The trouble that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) kind: TroubleKind,
    /// When it was first found to be of this kind.
    pub(super) since: SystemTime,
    /// The error of the last time, with its causes.
    pub(super) error: String,
}

impl Lasting {
    /// Records that the trouble is there. Returns whether to log it.
    pub(super) fn begins(&self, kind: TroubleKind, error: String) -> bool {
        let mut known = self.lock();
        let same = known.now.as_ref().filter(|now| now.kind == kind);
        let since = same.map_or_else(SystemTime::now, |now| now.since);
        known.now = Some(Current { kind, since, error });
        self.0.is_there.store(true, Relaxed);
        known.notice.begins()
    }

    /// Records that there is none. Returns whether to log the end of one.
    pub(super) fn ends(&self) -> bool {
        if !self.0.is_there.load(Relaxed) {
            return false;
        }
        let mut known = self.lock();
        known.now = None;
        self.0.is_there.store(false, Relaxed);
        known.notice.ends()
    }

    /// `None` while there is none.
    pub(super) fn current(&self) -> Option<Current> {
        if self.0.is_there.load(Relaxed) { self.lock().now.clone() } else { None }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::notice::WARN_EVERY;

    const KIND: TroubleKind = TroubleKind::Unreachable;

    #[tokio::test(start_paused = true)]
    async fn warnings_have_a_time_between_them() {
        let trouble = Lasting::default();
        let flaps = |times: usize| {
            let flap = |_: &usize| {
                let warned = trouble.begins(KIND, "refused".to_owned());
                trouble.ends();
                warned
            };
            (0..times).filter(flap).count()
        };
        assert_eq!(flaps(100), 1);
        tokio::time::advance(WARN_EVERY).await;
        assert_eq!(flaps(100), 1);
        assert!(!trouble.begins(KIND, "refused".to_owned()));
    }

    #[test]
    fn trouble_keeps_its_start_and_its_last_error() {
        let trouble = Lasting::default();
        assert_eq!(trouble.current(), None);
        assert!(trouble.begins(TroubleKind::Foreign, "one".to_owned()));
        let first = trouble.current().unwrap();
        assert!(!trouble.begins(TroubleKind::Foreign, "two".to_owned()));
        assert_eq!(trouble.current(), Some(Current { error: "two".to_owned(), ..first }));
        assert!(!trouble.begins(TroubleKind::Unanswered, "three".to_owned()));
        assert_eq!(trouble.current().unwrap().kind, TroubleKind::Unanswered);
        assert!(trouble.ends());
        assert_eq!(trouble.current(), None);
        assert!(!trouble.ends());
    }
}
