//! What most-recent reads of a store have asked for lately, and how long it took to prove that it is recent.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// For how long a proof's time says something about the next one.
const RECENT: Duration = Duration::from_secs(10);
/// Reads that came within this time could share a proof: a small watch takes as long.
const TOGETHER: Duration = Duration::from_secs(1);
/// Reads of that time that are remembered: a hundred are as good a reason to prove as a thousand.
const ASKED_MAX: usize = 100;
/// How much of the time that is expected the last proof makes up, as for round trips of TCP (RFC 6298).
const WEIGHT: u32 = 8;

/// Of one store, from one fill to the next.
#[derive(Debug, Default)]
pub(super) struct Demand(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// When the last proof ended, and how long proofs take.
    proof: Option<(Instant, Duration)>,
    /// When reads came, and how many bytes they are about; oldest first.
    asked: VecDeque<(Instant, usize)>,
}

impl Demand {
    /// Counts a read that is about so many bytes. Gives how many of those that came lately are at least half as large,
    /// this one included.
    pub(super) fn asked(&self, bytes: usize) -> usize {
        let (mut state, now) = (self.state(), Instant::now());
        state.asked.retain(|(at, _)| now.duration_since(*at) < TOGETHER);
        if state.asked.len() == ASKED_MAX {
            state.asked.pop_front();
        }
        state.asked.push_back((now, bytes));
        state.asked.iter().filter(|(_, others)| *others >= bytes / 2).count()
    }

    /// How long a proof takes, as far as recent ones tell.
    pub(super) fn proof(&self) -> Option<Duration> {
        self.state().proof.and_then(|(at, takes)| (at.elapsed() < RECENT).then_some(takes))
    }

    /// One has failed that would have taken so long, or longer: it says more than those that came before it.
    pub(super) fn failed_in(&self, took: Duration) {
        self.state().proof = Some((Instant::now(), took));
    }

    /// A proof has taken so long.
    pub(super) fn proven_in(&self, took: Duration) {
        let before = self.proof();
        let takes = before.map_or(took, |before| before - before / WEIGHT + took / WEIGHT);
        self.state().proof = Some((Instant::now(), takes));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reads_count_for_a_second_and_for_those_of_their_size() {
        let demand = Demand::default();
        assert_eq!([1000, 1000, 600, 100, 2100].map(|bytes| demand.asked(bytes)), [1, 2, 3, 4, 1]);
        advance(TOGETHER).await;
        assert_eq!(demand.asked(1000), 1);
        assert_eq!((0..2 * ASKED_MAX).map(|_| demand.asked(1000)).last(), Some(ASKED_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn one_slow_proof_is_not_what_all_take() {
        let demand = Demand::default();
        assert_eq!(demand.proof(), None);
        demand.proven_in(Duration::from_millis(8));
        demand.proven_in(Duration::from_millis(808));
        assert_eq!(demand.proof(), Some(Duration::from_millis(108)));
        demand.failed_in(Duration::from_secs(6));
        assert_eq!(demand.proof(), Some(Duration::from_secs(6)));
        advance(RECENT).await;
        assert_eq!(demand.proof(), None);
        demand.proven_in(Duration::from_millis(808));
        assert_eq!(demand.proof(), Some(Duration::from_millis(808)));
    }
}
