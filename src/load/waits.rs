//! What clients still wait for at the end of a turn: all objects, the way back after a lost connection, events of
//! writes. Leaving it out would make a server look fast whose watches hang.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// What one client waits for.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Since when it has wanted all objects, over all its attempts; `None` if it has them, or needs none.
    pub(super) objects: Option<Instant>,
    /// Since when its connection is lost, until the client is back.
    pub(super) lost: Option<Instant>,
    /// The time of the newest write whose event it has received.
    pub(super) newest: u64,
}

/// The waits of one client, which it shares with the recorder of its workload.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting(Arc<Mutex<Waits>>);

/// The clients of a workload in one turn.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<Vec<Waiting>>);

/// What the clients of a workload have not received. All times are lower bounds.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Missing {
    /// For each client without all objects: how long it has waited for them.
    pub(super) objects: Vec<Duration>,
    /// For each client whose connection is lost: for how long.
    pub(super) lost: Vec<Duration>,
    /// For each write whose event did not reach all clients: how many it did not reach, and how long ago it was sent.
    pub(super) events: Vec<(u64, Duration)>,
}

impl Waiting {
    pub(super) fn lock(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clients {
    /// Adds a client.
    pub(super) fn add(&self) -> Waiting {
        let waiting = Waiting::default();
        self.lock().push(waiting.clone());
        waiting
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// Whether no client waits for anything. `newest` is the time of the newest write whose event all have to receive.
    pub(super) fn have_all(&self, newest: Option<u64>) -> bool {
        self.lock().iter().map(Waiting::lock).all(|waits| {
            waits.objects.is_none() && waits.lost.is_none() && newest.is_none_or(|newest| waits.newest >= newest)
        })
    }

    /// What they have not received at the time `now`. `writes` are the times of the writes whose events all have to
    /// receive, the oldest first.
    pub(super) fn missing(&self, writes: &[u64], now: u64) -> Missing {
        let (mut missing, mut newest) = (Missing::default(), Vec::new());
        for waits in self.lock().iter().map(Waiting::lock) {
            missing.objects.extend(waits.objects.map(|since| since.elapsed()));
            missing.lost.extend(waits.lost.map(|since| since.elapsed()));
            newest.push(waits.newest);
        }
        newest.sort_unstable();
        for sent in writes.iter().rev() {
            let behind = newest.partition_point(|newest| newest < sent);
            if behind == 0 {
                break;
            }
            missing.events.push((behind as u64, Duration::from_nanos(now.saturating_sub(*sent))));
        }
        missing
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn everything_that_has_not_come_counts_with_the_time_waited_so_far() {
        let clients = Clients::default();
        let [current, behind, hung] = [(); 3].map(|()| clients.add());
        let writes = [100, 200, 300, 400];
        hung.lock().objects = Some(Instant::now());
        behind.lock().lost = Some(Instant::now());
        current.lock().newest = 400;
        behind.lock().newest = 200;
        tokio::time::advance(Duration::from_secs(3)).await;
        let seconds = vec![Duration::from_secs(3)];
        let events = [(2, 600), (2, 700), (1, 800), (1, 900)].map(|(count, ago)| (count, Duration::from_nanos(ago)));
        let expected = Missing { objects: seconds.clone(), lost: seconds, events: events.to_vec() };
        assert_eq!(clients.missing(&writes, 1000), expected);
        assert!(!clients.have_all(None));
        (hung.lock().objects, behind.lock().lost) = (None, None);
        assert!(clients.have_all(None) && !clients.have_all(Some(400)));
        (hung.lock().newest, behind.lock().newest) = (400, 400);
        assert!(clients.have_all(Some(400)));
        assert_eq!(clients.missing(&writes, 1000), Missing::default());
    }
}
