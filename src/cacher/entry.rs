//! One resource's place among the cachers: what there is to read now, if anything.

use std::sync::{Arc, PoisonError, RwLock};

use super::{NotCached, instance::Instance};
use crate::fanout::EndCause;

/// Where a resource stands. Readers look, the resource's own task changes it.
#[derive(Debug)]
pub(super) struct Entry {
    state: RwLock<State>,
}

#[derive(Clone, Debug)]
enum State {
    Ready(Arc<Instance>),
    Not(NotCached),
}

impl Entry {
    pub(super) fn filling() -> Arc<Self> {
        Arc::new(Self { state: RwLock::new(State::Not(NotCached::Filling)) })
    }

    pub(super) fn instance(&self) -> Result<Arc<Instance>, NotCached> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Ready(instance) => Ok(instance.clone()),
            State::Not(why) => Err(*why),
        }
    }

    /// Puts an instance in the place of the one before, whose watches end.
    pub(super) fn ready(&self, instance: Arc<Instance>) {
        if let Some(before) = self.set(State::Ready(instance)) {
            before.hub.close(EndCause::Relisted);
        }
    }

    /// Takes the instance away and ends its watches.
    pub(super) fn stop(&self, why: NotCached, cause: EndCause) {
        if let Some(before) = self.set(State::Not(why)) {
            before.hub.close(cause);
        }
    }

    fn set(&self, state: State) -> Option<Arc<Instance>> {
        let mut place = self.state.write().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *place, state) {
            State::Ready(instance) => Some(instance),
            State::Not(_) => None,
        }
    }
}
