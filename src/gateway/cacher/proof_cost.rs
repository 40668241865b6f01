//! The recent most-recent reads of a store, and the duration of its recent proofs.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How long the duration of a proof predicts the duration of the next one.
const RECENT: Duration = Duration::from_secs(10);
/// Reads within this time could share a proof: a progress probe takes as long.
const TOGETHER: Duration = Duration::from_secs(1);
/// The maximum number of reads that are remembered: a hundred justify a proof as well as a thousand.
const ASKED_MAX: usize = 100;
/// The reciprocal of the last proof's weight in the expected duration, as for TCP's round-trip times (RFC 6298).
const WEIGHT: u32 = 8;

/// The recent most-recent reads and proofs of one store, from one fill to the next.
#[derive(Debug, Default)]
pub(super) struct ProofCost(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// When the last proof ended, and the expected duration of a proof.
    proof: Option<(Instant, Duration)>,
    /// The time and the size in bytes of each read; oldest first.
    asked: VecDeque<(Instant, usize)>,
}

impl ProofCost {
    /// Counts a read of about `bytes` bytes. Returns how many of the recent reads are at least half as large, including
    /// this one.
    pub(super) fn asked(&self, bytes: usize) -> usize {
        let (mut state, now) = (self.state(), Instant::now());
        state.asked.retain(|(at, _)| now.duration_since(*at) < TOGETHER);
        if state.asked.len() == ASKED_MAX {
            state.asked.pop_front();
        }
        state.asked.push_back((now, bytes));
        state.asked.iter().filter(|(_, others)| *others >= bytes / 2).count()
    }

    /// The expected duration of a proof; `None` without recent proofs.
    pub(super) fn proof(&self) -> Option<Duration> {
        self.state().proof.and_then(|(at, takes)| (at.elapsed() < RECENT).then_some(takes))
    }

    /// Records a proof that failed and would have taken at least `took`. It replaces the earlier durations.
    pub(super) fn failed_in(&self, took: Duration) {
        self.state().proof = Some((Instant::now(), took));
    }

    /// Records a successful proof that took `took`.
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
    async fn a_read_counts_for_one_second_among_reads_of_at_least_half_its_size() {
        let cost = ProofCost::default();
        assert_eq!([1000, 1000, 600, 100, 2100].map(|bytes| cost.asked(bytes)), [1, 2, 3, 4, 1]);
        advance(TOGETHER).await;
        assert_eq!(cost.asked(1000), 1);
        assert_eq!((0..2 * ASKED_MAX).map(|_| cost.asked(1000)).last(), Some(ASKED_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn the_expected_duration_of_a_proof_averages_out_one_slow_proof() {
        let cost = ProofCost::default();
        assert_eq!(cost.proof(), None);
        cost.proven_in(Duration::from_millis(8));
        cost.proven_in(Duration::from_millis(808));
        assert_eq!(cost.proof(), Some(Duration::from_millis(108)));
        cost.failed_in(Duration::from_secs(6));
        assert_eq!(cost.proof(), Some(Duration::from_secs(6)));
        advance(RECENT).await;
        assert_eq!(cost.proof(), None);
        cost.proven_in(Duration::from_millis(808));
        assert_eq!(cost.proof(), Some(Duration::from_millis(808)));
    }
}
