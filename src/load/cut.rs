//! Cuts: when the connections of informers are closed, as if a load balancer or a gateway had gone away.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};

/// Orders the cuts of one workload.
#[derive(Debug)]
pub(super) struct Cutter {
    every: Duration,
    /// The number and the time of the last order.
    last: watch::Sender<(u64, Instant)>,
}

/// When the connection of one client is cut.
#[derive(Debug)]
pub(super) struct Cuts {
    last: watch::Receiver<(u64, Instant)>,
    /// How long after an order the connection is cut.
    offset: Duration,
    /// The next cut, once it is ordered.
    due: Option<(u64, Instant)>,
}

impl Cutter {
    pub(super) fn new(every: Duration) -> Self {
        Self { every, last: watch::Sender::new((0, Instant::now())) }
    }

    /// Orders cuts from `began` on, until dropped.
    pub(super) async fn run(self, began: Instant) {
        let mut ticks = interval_at(began + self.every, self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.last.send_modify(|last| *last = (last.0 + 1, Instant::now()));
        }
    }

    /// The cuts of the clients that share a connection: connection `index` of `connections`.
    pub(super) fn cuts(&self, spread: Duration, index: usize, connections: usize) -> Cuts {
        let offset = spread.mul_f64(index as f64 / connections.max(1) as f64);
        Cuts { last: self.last.subscribe(), offset, due: None }
    }
}

impl Cuts {
    /// Waits until the connection is to be cut. Returns the number of the cut.
    pub(super) async fn next(&mut self) -> u64 {
        let (number, at) = match self.due {
            Some(due) => due,
            None if self.last.changed().await.is_ok() => {
                let (number, ordered) = *self.last.borrow_and_update();
                *self.due.insert((number, ordered + self.offset))
            }
            // No more cuts are ordered: the turn has ended.
            None => std::future::pending().await,
        };
        sleep_until(at).await;
        self.due = None;
        number
    }

    /// Leaves out the cuts that were due while the client had no connection.
    pub(super) fn skip(&mut self) {
        if self.last.has_changed().unwrap_or_default() {
            let (number, ordered) = *self.last.borrow_and_update();
            self.due = Some((number, ordered + self.offset));
        }
        self.due = self.due.filter(|(_, at)| *at > Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connections_are_cut_one_after_the_other() {
        let (cutter, began) = (Cutter::new(Duration::from_secs(10)), Instant::now());
        let mut all: Vec<_> = (0..4).map(|index| cutter.cuts(Duration::from_secs(4), index, 4)).collect();
        let mut cutting = tokio::task::JoinSet::new();
        cutting.spawn(cutter.run(began));
        for (number, seconds) in [(1, [10, 11, 12, 13]), (2, [20, 21, 22, 23])] {
            for (cuts, at) in all.iter_mut().zip(seconds) {
                // A cancelled call does not postpone the cut.
                assert!(tokio::time::timeout(Duration::from_millis(1), cuts.next()).await.is_err());
                assert_eq!((cuts.next().await, began.elapsed().as_secs()), (number, at));
            }
        }
        tokio::time::sleep(Duration::from_secs(11)).await;
        all.iter_mut().for_each(Cuts::skip);
        assert_eq!((all[0].next().await, began.elapsed().as_secs()), (4, 40), "the cut at 30 s was left out");
    }
}
