//! The entry of one store among the cachers: its current instance, if there is one.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::{NotCached, instance::Instance};
use crate::peers::LowestRank;
use base::apimachinery::ElectionRank;
use engine::fanout::EndCause;

/// The state of a store. Readers check it or wait for it, and the store's own task changes it.
#[derive(Debug)]
pub(super) struct Entry {
    state: watch::Sender<State>,
    restart: Mutex<Option<Restart>>,
    /// When the last read came that found no instance.
    asked: Mutex<Instant>,
    /// Set by the search for a peer that has the state.
    lowest: Arc<LowestRank>,
    backfill_wanted: Arc<Notify>,
    /// Not a state: a permanent subscriber would count as a read that waits, see [`Self::unasked_since`].
    given_up: watch::Sender<Option<GivenUp>>,
    /// What the store takes, as it was measured last.
    bytes: AtomicU64,
}

/// Why a store has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    /// The gateway may not list and watch the collection.
    Forbidden,
    /// There is no memory for it; it takes at least this number of bytes.
    OverBudget(u64),
}

/// A time at which upstream had to be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// The value of the metric label.
    pub cause: &'static str,
    pub at: Instant,
}

#[derive(Clone, Debug)]
enum State {
    Ready(Arc<Instance>),
    Not(NotCached),
}

impl Entry {
    pub(super) fn filling() -> Arc<Self> {
        let state = watch::Sender::new(State::Not(NotCached::Filling));
        let (restart, lowest, backfill_wanted, bytes) = Default::default();
        let (asked, given_up) = (Mutex::new(Instant::now()), watch::Sender::new(None));
        Arc::new(Self { state, restart, asked, lowest, backfill_wanted, given_up, bytes })
    }

    /// Lets the store end.
    pub(super) fn give_up(&self, why: GivenUp) {
        self.given_up.send_replace(Some(why));
    }

    /// Returns once it is to end. Earlier calls of [`Self::give_up`] do not count.
    pub(super) async fn given_up(&self) -> GivenUp {
        self.given_up.send_replace(None);
        let mut given_up = self.given_up.subscribe();
        // The sender lives as long as this entry does, so waiting cannot fail.
        let why = given_up.wait_for(Option::is_some).await.ok().and_then(|why| *why);
        why.unwrap_or(GivenUp::Forbidden)
    }

    pub(super) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Relaxed);
    }

    /// What the store takes, as it was measured last.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Notified when clients wait for history to begin earlier.
    pub(super) fn backfill_wanted(&self) -> Arc<Notify> {
        self.backfill_wanted.clone()
    }

    /// The lowest rank that the search for a peer with the state has heard of; the search sets it.
    pub(super) fn lowest_rank(&self) -> Arc<LowestRank> {
        self.lowest.clone()
    }

    /// The lowest rank that this gateway knows of, for a peer that asks for the state; `None` unless this gateway is
    /// about to have the state itself.
    pub(super) fn rank(&self) -> Option<ElectionRank> {
        matches!(*self.state.borrow(), State::Not(NotCached::Filling)).then(|| self.lowest.get())?
    }

    /// Records that upstream had to be asked again, for this cause.
    pub(super) fn restarted(&self, cause: &'static str) {
        *self.restart.lock().unwrap_or_else(PoisonError::into_inner) = Some(Restart { cause, at: Instant::now() });
    }

    /// The last call of [`Self::restarted`].
    pub(super) fn last_restart(&self) -> Option<Restart> {
        *self.restart.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a read found no instance.
    pub(super) fn ask(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// When a read last found no instance; `None` while one waits for it.
    pub(super) fn unasked_since(&self) -> Option<Instant> {
        let is_awaited = self.state.receiver_count() > 0;
        (!is_awaited).then(|| *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn instance(&self) -> Result<Arc<Instance>, NotCached> {
        self.state.borrow().instance()
    }

    /// The instance once the current fill has ended, whether it succeeded or failed. A fill may take long, so the
    /// caller must set a timeout.
    pub(super) async fn filled(&self) -> Result<Arc<Instance>, NotCached> {
        let mut state = self.state.subscribe();
        let filled = state.wait_for(|state| !matches!(state, State::Not(NotCached::Filling))).await;
        // The sender lives as long as this entry does, so waiting cannot fail.
        filled.map_or(Err(NotCached::Filling), |state| state.instance())
    }

    /// Replaces the instance, and ends the watches of the previous one.
    pub(super) fn ready(&self, instance: Arc<Instance>) {
        if let Some(before) = self.set(State::Ready(instance)) {
            before.backfill.end();
            before.hub.close(EndCause::Relisted);
        }
    }

    /// Sets the reason why there is no instance. Does nothing if there is one.
    pub(super) fn not_ready(&self, why: NotCached) {
        self.state.send_if_modified(|state| match state {
            State::Not(before) if *before != why => {
                *before = why;
                true
            }
            State::Ready(_) | State::Not(_) => false,
        });
    }

    /// Removes the instance and ends its watches.
    pub(super) fn stop(&self, why: NotCached, cause: EndCause) {
        if let Some(before) = self.set(State::Not(why)) {
            before.backfill.end();
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
