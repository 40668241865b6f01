//! Tracks which connections are busy, and picks the one to close when a new one needs its place.
//!
//! Invariant: the work of one connection does not slow down others: a request touches only the counters of its own
//! connection and address, and the lock over all of them is taken only when a connection is accepted or closed.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::in_flight::Address;

/// Which connection is closed when a new one waits for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivesWay {
    /// One without a request in flight: first those that never sent a request, oldest first, then the one that has been
    /// idle the longest. No connection gives way if all are busy.
    Idle,
    /// The one that was accepted first, busy or not. For listeners whose requests are all short, such as probes.
    Oldest,
}

/// All open connections, in the order in which they were accepted. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    open: Arc<Mutex<Open>>,
    began: Instant,
}

#[derive(Debug, Default)]
struct Open {
    accepted: u64,
    activities: BTreeMap<u64, Arc<Activity>>,
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Activity {
    began: Instant,
    /// Shared with the other connections of its address.
    pub(super) address: Arc<Address>,
    /// Number of requests whose answers have not ended.
    in_flight: AtomicUsize,
    /// When the last request arrived or its answer ended, in milliseconds since `began`; 0 before the first request.
    last: AtomicU64,
    gives_way: CancellationToken,
    /// Whether it gives way even if it is busy.
    must: AtomicBool,
}

/// Registers a connection among the open ones until it is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    number: u64,
    all: Connections,
    pub(super) activity: Arc<Activity>,
}

impl Default for Connections {
    fn default() -> Self {
        Self { open: Arc::default(), began: Instant::now() }
    }
}

impl Connections {
    pub(super) fn enter(&self, address: Arc<Address>) -> Entry {
        let activity = Arc::new(Activity::new(self.began, address));
        let mut open = self.lock();
        open.accepted += 1;
        let number = open.accepted;
        open.activities.insert(number, activity.clone());
        drop(open);
        Entry { number, all: self.clone(), activity }
    }

    /// Tells one connection to close. Returns `false` if none can give way.
    pub(super) fn one_gives_way(&self, which: GivesWay) -> bool {
        let mut open = self.lock();
        let number = match which {
            GivesWay::Oldest => open.activities.keys().next().copied(),
            GivesWay::Idle => {
                let idle = open.activities.iter().filter(|(_, activity)| activity.is_idle());
                // `last` is 0 for connections that never sent a request; `min_by_key` returns the first of equals, the
                // oldest.
                idle.min_by_key(|(_, activity)| activity.last.load(Relaxed)).map(|(number, _)| *number)
            }
        };
        // Removed, so that it is not picked again.
        let activity = number.and_then(|number| open.activities.remove(&number));
        drop(open);
        let tell = |activity: &Arc<Activity>| {
            activity.must.store(which == GivesWay::Oldest, Relaxed);
            activity.gives_way.cancel();
        };
        activity.inspect(tell).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Activity {
    pub(super) fn new(began: Instant, address: Arc<Address>) -> Self {
        let (in_flight, last, must) = Default::default();
        Self { began, address, in_flight, last, gives_way: CancellationToken::new(), must }
    }

    /// Whether a request has arrived.
    pub(super) fn has_asked(&self) -> bool {
        self.last.load(Relaxed) != 0
    }

    pub(super) fn request_came(&self) {
        self.in_flight.fetch_add(1, Relaxed);
        self.touch();
    }

    pub(super) fn answer_ended(&self) {
        self.touch();
        self.in_flight.fetch_sub(1, Relaxed);
    }

    /// Resolves when the connection has to close to make room for another one.
    pub(super) async fn gives_way(&self) {
        self.gives_way.cancelled().await;
    }

    /// Whether a connection that was told to give way may be closed now.
    pub(super) fn may_close(&self) -> bool {
        self.is_idle() || self.must.load(Relaxed)
    }

    fn is_idle(&self) -> bool {
        self.in_flight.load(Relaxed) == 0
    }

    fn touch(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now.max(1), Relaxed);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.all.lock().activities.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn told<const N: usize>(entries: [&Entry; N]) -> [bool; N] {
        entries.map(|entry| entry.activity.gives_way.is_cancelled())
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connections_give_way_first_then_idle_ones_and_busy_ones_never() {
        let all = Connections::default();
        let [closed, busy, idle, idle_longer, silent, younger] = [(); 6].map(|()| all.enter(Address::unlimited()));
        drop(closed);
        for entry in [&idle_longer, &idle, &busy] {
            tokio::time::advance(Duration::from_secs(1)).await;
            entry.activity.request_came();
        }
        for entry in [&idle_longer, &idle] {
            tokio::time::advance(Duration::from_secs(1)).await;
            entry.activity.answer_ended();
        }
        for expected in [
            [false, false, false, true, false],
            [false, false, false, true, true],
            [false, false, true, true, true],
            [false, true, true, true, true],
        ] {
            assert!(all.one_gives_way(GivesWay::Idle));
            assert_eq!(told([&busy, &idle, &idle_longer, &silent, &younger]), expected);
        }
        assert!(!all.one_gives_way(GivesWay::Idle));
        assert!(all.one_gives_way(GivesWay::Oldest));
        assert_eq!(told([&busy]), [true]);
        assert!(!all.one_gives_way(GivesWay::Oldest));
    }
}
