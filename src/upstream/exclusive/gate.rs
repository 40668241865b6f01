//! Who is woken for a connection that is driven by whoever reads from it.
//!
//! Reading what a connection has received tells it that there is room again, and what it tells to waits in the same task. That task
//! would be woken while it runs: put at the end of its queue, and another thread be woken to take it from there. A gate lets through
//! only what comes while the task sleeps; what came before makes it look again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Wake, Waker},
};

use futures_util::task::AtomicWaker;

/// Of one connection.
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
/// There was something to wake it for since it last looked.
const CALLED: u8 = 1;
/// The task waits to be woken.
const ASLEEP: u8 = 2;

impl Gate {
    pub(super) fn new() -> Self {
        let state = Arc::new(State { now: AtomicU8::new(AWAKE), task: AtomicWaker::new() });
        Self { waker: state.clone().into(), state }
    }

    /// What the connection is to call. Its task is awake from now on.
    pub(super) fn open(&self) -> Context<'_> {
        self.state.now.store(AWAKE, Ordering::SeqCst);
        Context::from_waker(&self.waker)
    }

    /// The task of `context` is about to sleep. False if it was called since the gate was opened: it has to look again.
    pub(super) fn sleep(&self, context: &Context<'_>) -> bool {
        self.state.task.register(context.waker());
        self.state.now.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok()
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
