//! The share of the CPU that one client's large reads may use.
//!
//! Work on a response is done in units of some hundred microseconds. The first unit of each response is free, so small
//! reads never wait. All others take one of the client's turns, of which there are fewer than cores: however many large
//! reads a client sends, cores are left for the reads of others, for watches and for probes.

use std::{sync::Arc, thread::available_parallelism, time::Duration};

use tokio::{task::yield_now, time::Instant};

use super::ForwardReason;
use crate::authz::NotCovered;
use base::fairness::{ClientKey, ConcurrencyLimit, Turn};
use engine::store::{NotEvaluated, Page, Search};

/// How long a read waits for turns before it is refused. Long, because after a rollout the agents of all nodes, which
/// are one user, read at the same time: 5,000 selections from 50,000 objects are 20 s of work for one core.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The turns of all clients. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReadConcurrency(Arc<ConcurrencyLimit>);

/// The turns of one client. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientReadConcurrency {
    turns: Arc<ConcurrencyLimit>,
    client: ClientKey,
}

/// The work on one response.
#[derive(Debug)]
pub(super) struct Work<'a> {
    turns: &'a ClientReadConcurrency,
    turn: Option<Turn>,
    /// How long it may still wait for turns, all of them together.
    wait_left: Duration,
}

/// Why memory gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    Forward(ForwardReason),
    /// The read has waited too long for other large reads of the client. It is refused: forwarded, they would be
    /// upstream's load.
    NoTurn,
}

impl Default for ReadConcurrency {
    /// For the cores of this machine.
    fn default() -> Self {
        Self::of_cores(available_parallelism().map_or(1, usize::from))
    }
}

impl ReadConcurrency {
    /// Each client may use half of the cores, and at least one.
    fn of_cores(cores: usize) -> Self {
        Self(Arc::new(ConcurrencyLimit::new((cores / 2).max(1), WAIT_MAX, "client_read_wait")))
    }

    /// The turns of that client. Clients that are not told apart have turns together: theirs is the same half, and the
    /// other one is left for small reads, watches and probes.
    pub fn of(&self, client: Option<ClientKey>) -> ClientReadConcurrency {
        ClientReadConcurrency { turns: self.0.clone(), client: client.unwrap_or_else(|| ClientKey::of(&"anyone")) }
    }
}

impl ClientReadConcurrency {
    /// Waits for a turn, as long as it takes.
    pub async fn take(&self) -> Turn {
        self.turns.take(self.client).await
    }
}

impl<'a> Work<'a> {
    pub(super) fn new(turns: &'a ClientReadConcurrency) -> Self {
        Self { turns, turn: None, wait_left: turns.turns.wait_max() }
    }

    /// Called between two units of work. The first time, and after a [rest](Self::rest), it waits for a turn; otherwise
    /// it gives way to other tasks.
    pub(super) async fn pause(&mut self) -> Result<(), Unanswered> {
        if self.turn.is_some() {
            yield_now().await;
        } else {
            let began = Instant::now();
            let turn = self.turns.turns.wait_within(self.turns.client, self.wait_left).await;
            self.wait_left = self.wait_left.saturating_sub(began.elapsed());
            self.turn = Some(turn.ok_or(Unanswered::NoTurn)?);
        }
        Ok(())
    }

    /// The objects of a page, or of a whole list.
    pub(super) async fn find(&mut self, mut search: Search<'_>) -> Result<Page, Unanswered> {
        loop {
            if let Some(page) = search.step() {
                return Ok(page);
            }
            self.pause().await?;
        }
    }

    /// Gives the turn back, before a wait for something else.
    pub(super) fn rest(&mut self) {
        self.turn = None;
    }
}

impl From<ForwardReason> for Unanswered {
    fn from(why: ForwardReason) -> Self {
        Self::Forward(why)
    }
}

impl From<NotCovered> for Unanswered {
    fn from(why: NotCovered) -> Self {
        Self::Forward(why.into())
    }
}

impl From<NotEvaluated> for Unanswered {
    fn from(why: NotEvaluated) -> Self {
        Self::Forward(why.into())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::{join, time::sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn large_reads_of_one_client_wait_for_each_other_only() {
        let turns = ReadConcurrency::of_cores(5);
        let [jane, john] = ["jane", "john"].map(|name| turns.of(Some(ClientKey::of(&name))));
        let mut hers = [(); 3].map(|()| Work::new(&jane));
        for large in &mut hers[..2] {
            assert_eq!(large.pause().now_or_never(), Some(Ok(())), "two of five cores");
            assert_eq!(large.pause().now_or_never(), None, "others run in between");
            large.pause().await.unwrap();
        }
        assert_eq!(hers[2].pause().now_or_never(), None, "her third one waits");
        assert_eq!(Work::new(&john).pause().now_or_never(), Some(Ok(())));
        hers[0].rest();
        assert_eq!(hers[2].pause().now_or_never(), Some(Ok(())));
        assert_eq!(hers[0].pause().await, Err(Unanswered::NoTurn), "not forever");
    }

    #[tokio::test(start_paused = true)]
    async fn all_turns_of_a_read_have_one_time_limit() {
        let turns = ReadConcurrency::of_cores(2).of(None);
        let mut read = Work::new(&turns);
        let other = turns.take().now_or_never().unwrap();
        let (waited, ()) = join!(read.pause(), async {
            sleep(WAIT_MAX * 2 / 3).await;
            drop(other);
        });
        assert_eq!(waited, Ok(()));
        read.rest();
        let (_other, began) = (turns.take().now_or_never().unwrap(), Instant::now());
        assert_eq!(read.pause().await, Err(Unanswered::NoTurn));
        // The clock counts milliseconds, and a wait may end with the next one.
        let rest = began.elapsed().checked_sub(WAIT_MAX / 3).expect("it waits as long as it may");
        assert!(rest < Duration::from_millis(10), "{rest:?}");
    }

    #[test]
    fn every_client_has_a_turn() {
        for (cores, expected) in [(1, 1), (2, 1), (3, 1), (16, 8)] {
            let anyone = ReadConcurrency::of_cores(cores).of(None);
            let taken: Vec<_> = std::iter::from_fn(|| anyone.take().now_or_never()).collect();
            assert_eq!(taken.len(), expected);
        }
    }
}
