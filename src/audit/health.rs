//! Whether events can be written.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};

/// What the writer says of itself to those who would read from memory. Cheap to clone; holds nothing of the log open.
#[derive(Clone, Debug, Default)]
pub struct AuditHealth(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// The last write failed, and will be tried again.
    failed: AtomicBool,
    /// Writes that have begun and that have ended, successful or not.
    begun: AtomicU64,
    ended: AtomicU64,
    /// The write, by its number, that has taken too long. It is over when that one has ended.
    stalled: AtomicU64,
}

/// How many writes have begun, and ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    begun: u64,
    ended: u64,
}

impl AuditHealth {
    /// Whether the last events were written, and those that are being written do not take too long.
    pub fn is_writable(&self) -> bool {
        !self.0.failed.load(SeqCst) && self.0.stalled.load(SeqCst) <= self.0.ended.load(SeqCst)
    }

    pub(super) fn progress(&self) -> Progress {
        Progress { begun: self.0.begun.load(SeqCst), ended: self.0.ended.load(SeqCst) }
    }

    pub(super) fn begins(&self) {
        self.0.begun.fetch_add(1, SeqCst);
    }

    /// Whether that is a change.
    pub(super) fn ends(&self, written: bool) -> bool {
        let was_writable = self.is_writable();
        self.0.failed.store(!written, SeqCst);
        self.0.ended.fetch_add(1, SeqCst);
        was_writable != written
    }

    /// Looks whether the same write is under way as some time ago, at `then`. True when that is found for the first time.
    pub(super) fn has_stalled_since(&self, then: Progress) -> bool {
        let is_stalled = then.begun != then.ended && self.progress() == then;
        is_stalled && self.0.stalled.swap(then.begun, SeqCst) != then.begun
    }

    /// Nothing is written any more.
    pub(super) fn close(&self) {
        self.0.failed.store(true, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_good_as_the_last_write() {
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
    fn a_write_that_takes_too_long_is_no_good_until_it_ends() {
        let health = AuditHealth::default();
        assert!(!health.has_stalled_since(health.progress()), "nothing is being written");
        health.begins();
        let then = health.progress();
        assert!(health.is_writable());
        assert!(health.has_stalled_since(then) && !health.has_stalled_since(then));
        assert!(!health.is_writable());
        assert!(health.ends(true));
        assert!(health.is_writable());
        health.begins();
        assert!(!health.has_stalled_since(then), "it is another one");
        assert!(health.is_writable());
    }
}
