//! One resource's place among the cachers: what there is to read now, if anything.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::{sync::watch, time::Instant};

use super::{NotCached, instance::Instance, standing::Restart};
use crate::fanout::EndCause;

/// Where a resource stands. Readers look or wait, the resource's own task changes it.
#[derive(Debug)]
pub(super) struct Entry {
    state: watch::Sender<State>,
    restart: Mutex<Option<Restart>>,
}

#[derive(Clone, Debug)]
enum State {
    Ready(Arc<Instance>),
    Not(NotCached),
}

impl Entry {
    pub(super) fn filling() -> Arc<Self> {
        Arc::new(Self { state: watch::Sender::new(State::Not(NotCached::Filling)), restart: Mutex::default() })
    }

    /// Upstream had to be asked anew, for this cause.
    pub(super) fn restarted(&self, cause: &'static str) {
        *self.restart.lock().unwrap_or_else(PoisonError::into_inner) = Some(Restart { cause, at: Instant::now() });
    }

    /// When that was last, and why.
    pub(super) fn last_restart(&self) -> Option<Restart> {
        *self.restart.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn instance(&self) -> Result<Arc<Instance>, NotCached> {
        self.state.borrow().instance()
    }

    /// The same once the fill that is under way has ended, one way or the other. A fill may take long: set a limit.
    pub(super) async fn filled(&self) -> Result<Arc<Instance>, NotCached> {
        let mut state = self.state.subscribe();
        let filled = state.wait_for(|state| !matches!(state, State::Not(NotCached::Filling))).await;
        // The sender lives as long as this entry does, so waiting cannot fail.
        filled.map_or(Err(NotCached::Filling), |state| state.instance())
    }

    /// Puts an instance in the place of the one before, whose watches end.
    pub(super) fn ready(&self, instance: Arc<Instance>) {
        if let Some(before) = self.set(State::Ready(instance)) {
            before.hub.close(EndCause::Relisted);
        }
    }

    /// Says why there is nothing to read, if there is nothing. An instance stays.
    pub(super) fn not_ready(&self, why: NotCached) {
        self.state.send_if_modified(|state| match state {
            State::Not(before) if *before != why => {
                *before = why;
                true
            }
            State::Ready(_) | State::Not(_) => false,
        });
    }

    /// Takes the instance away and ends its watches.
    pub(super) fn stop(&self, why: NotCached, cause: EndCause) {
        if let Some(before) = self.set(State::Not(why)) {
            before.hub.close(cause);
        }
    }

    fn set(&self, state: State) -> Option<Arc<Instance>> {
        match self.state.send_replace(state) {
            State::Ready(instance) => Some(instance),
            State::Not(_) => None,
        }
    }
}

impl State {
    fn instance(&self) -> Result<Arc<Instance>, NotCached> {
        match self {
            Self::Ready(instance) => Ok(instance.clone()),
            Self::Not(why) => Err(*why),
        }
    }
}
