//! Whether events can be written.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};

/// The writer's state, for requests that would be answered from memory. Cheap to clone; does not keep the log open.
#[derive(Clone, Debug, Default)]
pub struct AuditHealth(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// The last write failed and will be retried.
    failed: AtomicBool,
    /// Number of writes that have begun and that have ended, successful or not.
    begun: AtomicU64,
    ended: AtomicU64,
    /// Number of the latest write found to take too long. It has stalled until it has ended.
    stalled: AtomicU64,
}

/// How many writes have begun and ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    begun: u64,
    ended: u64,
}

impl AuditHealth {
    /// Whether the last write succeeded and the current one has not stalled.
    pub fn is_writable(&self) -> bool {
        !self.0.failed.load(SeqCst) && self.0.stalled.load(SeqCst) <= self.0.ended.load(SeqCst)
    }

    pub(super) fn progress(&self) -> Progress {
        Progress { begun: self.0.begun.load(SeqCst), ended: self.0.ended.load(SeqCst) }
    }

    pub(super) fn begins(&self) {
        self.0.begun.fetch_add(1, SeqCst);
    }

    /// Records the end of a write; returns whether writability changed.
    pub(super) fn ends(&self, written: bool) -> bool {
        let was_writable = self.is_writable();
        self.0.failed.store(!written, SeqCst);
        self.0.ended.fetch_add(1, SeqCst);
        was_writable != written
    }

    /// Whether the write in flight at `then` is still in flight: it has stalled.
    pub(super) fn has_stalled_since(&self, then: Progress) -> bool {
        let has_stalled = then.begun != then.ended && self.progress() == then;
        if has_stalled {
            self.0.stalled.store(then.begun, SeqCst);
        }
        has_stalled
    }

    /// Called when nothing is written any more.
    pub(super) fn close(&self) {
        self.0.failed.store(true, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_write_decides_whether_events_are_writable() {
        let health = AuditHealth::default();
        for (written, changed) in [(true, false), (false, true), (false, false), (true, true), (true, false)] {
            health.begins();
            assert_eq!(health.ends(written), changed);
            assert_eq!(health.is_writable(), written);
        }
        health.close();
        assert!(!health.is_writable());
    }

    #[test]
    fn events_are_not_writable_while_a_write_is_stalled() {
        let health = AuditHealth::default();
        assert!(!health.has_stalled_since(health.progress()), "nothing is being written");
        health.begins();
        let then = health.progress();
        assert!(health.is_writable());
        assert!(health.has_stalled_since(then) && health.has_stalled_since(then));
        assert!(!health.is_writable());
        assert!(health.ends(true));
        assert!(health.is_writable());
        health.begins();
        assert!(!health.has_stalled_since(then), "it is another one");
        assert!(health.is_writable());
    }
}
