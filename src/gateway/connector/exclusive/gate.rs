//! Wakes the task that drives a connection and reads from it.
//!
//! Reading received data notifies the connection that its buffer has space again, and the same task polls the
//! connection. That would wake the task while it runs: the runtime would queue it again, and wake another thread to
//! take it from the queue. The gate passes on only wake-ups that come while the task sleeps; an earlier one makes the
//! task poll again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Wake, Waker},
};

use futures_util::task::AtomicWaker;

/// The gate of one connection.
pub(super) struct Gate {
    state: Arc<State>,
    waker: Waker,
}

struct State {
    now: AtomicU8,
    task: AtomicWaker,
}

/// The task runs.
const AWAKE: u8 = 0;
/// The connection was woken since the task last polled it.
const CALLED: u8 = 1;
/// The task waits to be woken.
const ASLEEP: u8 = 2;

impl Gate {
    pub(super) fn new() -> Self {
        let state = Arc::new(State { now: AtomicU8::new(AWAKE), task: AtomicWaker::new() });
        Self { waker: state.clone().into(), state }
    }

    /// The context to poll the connection with. Its task counts as awake from now on.
    pub(super) fn open(&self) -> Context<'_> {
        self.rouse();
        Context::from_waker(&self.waker)
    }

    /// Its task counts as awake from now on.
    pub(super) fn rouse(&self) {
        self.state.now.store(AWAKE, Ordering::SeqCst);
    }

    /// Called before the task of `context` sleeps. False if the connection was woken since the gate was opened: the
    /// task has to poll again.
    pub(super) fn sleep(&self, context: &Context<'_>) -> bool {
        self.state.task.register(context.waker());
        self.state.now.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether the connection was woken since the gate was last opened.
    pub(super) fn is_called(&self) -> bool {
        self.state.now.load(Ordering::SeqCst) == CALLED
    }
}

impl Wake for State {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.now.swap(CALLED, Ordering::SeqCst) == ASLEEP {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn only_sleeping_tasks_are_woken_and_no_wake_up_is_lost() {
        let (gate, woken) = (Gate::new(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        let task = Context::from_waker(&waker);
        let times = || woken.0.load(Ordering::SeqCst);
        let connection = gate.open().waker().clone();
        connection.wake_by_ref();
        assert_eq!((gate.sleep(&task), times()), (false, 0), "called while it is awake: it looks again");
        let _looks = gate.open();
        assert_eq!((gate.sleep(&task), times()), (true, 0));
        connection.wake_by_ref();
        connection.wake_by_ref();
        assert_eq!(times(), 1, "once for each sleep");
        let _looks = gate.open();
        assert!(gate.sleep(&task));
        connection.wake();
        assert_eq!(times(), 2);
    }
}
