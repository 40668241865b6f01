//! Cuts: when the connections of informers are closed, as if a load balancer or a gateway had gone away.

use std::{ops::Range, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};

/// Orders the cuts of one workload.
#[derive(Debug)]
pub(super) struct Cutter {
    every: Duration,
    /// The last order; `None` before the first.
    last: watch::Sender<Option<Order>>,
}

/// All connections are to be cut, each after its offset.
#[derive(Clone, Copy, Debug)]
struct Order {
    number: u64,
    at: Instant,
    /// From this time on, no connection is cut any more.
    end: Instant,
}

/// When the connection of one client is cut.
#[derive(Debug)]
pub(super) struct Cuts {
    last: watch::Receiver<Option<Order>>,
    /// How long after an order the connection is cut.
    offset: Duration,
    /// The next cut, once it is ordered.
    due: Option<(u64, Instant)>,
}

impl Cutter {
    pub(super) fn new(every: Duration) -> Self {
        Self { every, last: watch::Sender::new(None) }
    }

    /// Orders cuts within that time. Its end is that of the requests' schedule: while the last responses are awaited,
    /// nothing is cut.
    pub(super) async fn run(self, Range { start: began, end }: Range<Instant>) {
        let mut ticks = interval_at(began + self.every, self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in 1.. {
            ticks.tick().await;
            let at = Instant::now();
            if at >= end {
                return;
            }
            self.last.send_replace(Some(Order { number, at, end }));
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
        let (number, at) = loop {
            match self.due {
                Some(due) => break due,
                None if self.last.changed().await.is_ok() => self.due = self.ordered(),
                // No more cuts are ordered.
                None => std::future::pending().await,
            }
        };
        sleep_until(at).await;
        self.due = None;
        number
    }

    /// The cut of the last order, if it is due before the end.
    fn ordered(&mut self) -> Option<(u64, Instant)> {
        let Order { number, at, end } = (*self.last.borrow_and_update())?;
        let at = at + self.offset;
        (at < end).then_some((number, at))
    }

    /// Leaves out the cuts that were due while the client had no connection.
    pub(super) fn skip(&mut self) {
        // Not asked of the receiver, which fails once no more cuts are ordered.
        let is_new = self.last.borrow().has_changed();
        if is_new {
            self.due = self.ordered();
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
        cutting.spawn(cutter.run(began..began + Duration::from_secs(60)));
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

    #[tokio::test(start_paused = true)]
    async fn nothing_is_cut_from_the_end_on() {
        let (cutter, began) = (Cutter::new(Duration::from_secs(10)), Instant::now());
        let mut all: Vec<_> = (0..4).map(|index| cutter.cuts(Duration::from_secs(8), index, 4)).collect();
        let mut cutting = tokio::task::JoinSet::new();
        cutting.spawn(cutter.run(began..began + Duration::from_secs(24)));
        let mut seconds = Vec::new();
        for _ in 0..2 {
            for cuts in &mut all {
                let cut = tokio::time::timeout(Duration::from_secs(60), cuts.next()).await;
                seconds.extend(cut.map(|_| began.elapsed().as_secs()));
            }
        }
        assert_eq!(seconds, [10, 12, 14, 16, 20, 22], "those of the last two connections would come at 24 and 26 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_comes_back_after_the_end_is_not_cut() {
        let (cutter, began) = (Cutter::new(Duration::from_secs(10)), Instant::now());
        let mut cuts = cutter.cuts(Duration::ZERO, 0, 1);
        let mut cutting = tokio::task::JoinSet::new();
        cutting.spawn(cutter.run(began..began + Duration::from_secs(24)));
        sleep_until(began + Duration::from_secs(40)).await;
        cuts.skip();
        assert!(tokio::time::timeout(Duration::from_secs(60), cuts.next()).await.is_err());
    }
}
