//! What clients still wait for at the end of a turn: all objects, the way back after a lost connection, events of
//! writes. Leaving it out would make a server look fast whose watches hang.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::demand::Due;

/// What one client waits for.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Since when it has wanted all objects, over all its attempts; `None` if it has them, or needs none.
    pub(super) objects: Option<Instant>,
    /// Since when its connection is lost, until the client is back.
    pub(super) lost: Option<Instant>,
    /// Since when it has all objects but no watch, because the last one has ended: it becomes a loss if the next one
    /// cannot be opened at once.
    pub(super) reopening: Option<Instant>,
    /// The time of the newest write whose event it has received, or before which it cannot have missed any.
    pub(super) newest: u64,
}

/// The waits of one client, which it shares with the recorder of its workload.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting(Arc<Mutex<Waits>>);

/// The clients of a workload in one turn, with their numbers.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<Vec<(usize, Waiting)>>);

/// What the clients of a workload have not received. All times are lower bounds.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Missing {
    /// For each client without all objects: how long it has waited for them.
    pub(super) objects: Vec<Duration>,
    /// For each client whose connection is lost, or that has no watch for another reason: for how long.
    pub(super) lost: Vec<Duration>,
    /// For each write whose event did not reach all clients: how many it did not reach, and how long ago it was sent.
    pub(super) events: Vec<(u64, Duration)>,
}

impl Waits {
    /// Since when it follows nothing although it should.
    fn without_watch(&self) -> Option<Instant> {
        self.lost.or(self.reopening)
    }
}

impl Waiting {
    pub(super) fn lock(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clients {
    /// Adds the client with that number.
    pub(super) fn add(&self, client: usize) -> Waiting {
        let waiting = Waiting::default();
        self.lock().push((client, waiting.clone()));
        waiting
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// Whether no client waits for anything, nor for the event of a write that is due.
    pub(super) fn have_all(&self, due: &Due) -> bool {
        self.lock().iter().all(|(client, waiting)| {
            let waits = waiting.lock();
            let has_events = due.newest(*client).is_none_or(|newest| waits.newest >= newest);
            has_events && waits.objects.is_none() && waits.without_watch().is_none()
        })
    }

    /// What they have not received at the time `now`.
    pub(super) fn missing(&self, due: &Due, now: u64) -> Missing {
        let mut missing = Missing::default();
        // Of the clients that have to receive the same writes.
        let mut newest = vec![Vec::new(); due.sets().len()];
        for (client, waiting) in self.lock().iter() {
            let waits = waiting.lock();
            missing.objects.extend(waits.objects.map(|since| since.elapsed()));
            missing.lost.extend(waits.without_watch().map(|since| since.elapsed()));
            newest.get_mut(due.set_of(*client)).into_iter().for_each(|of_set| of_set.push(waits.newest));
        }
        for (writes, mut newest) in due.sets().iter().zip(newest) {
            newest.sort_unstable();
            for sent in writes.iter().rev() {
                let behind = newest.partition_point(|newest| newest < sent);
                if behind == 0 {
                    break;
                }
                missing.events.push((behind as u64, Duration::from_nanos(now.saturating_sub(*sent))));
            }
        }
        missing
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(usize, Waiting)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn everything_that_has_not_come_counts_with_the_time_waited_so_far() {
        let clients = Clients::default();
        let [current, behind, hung] = [0, 1, 2].map(|client| clients.add(client));
        let (due, nothing) = (Due::new(vec![vec![100, 200, 300, 400]], &[]), Due::default());
        hung.lock().objects = Some(Instant::now());
        behind.lock().reopening = Some(Instant::now());
        current.lock().newest = 400;
        behind.lock().newest = 200;
        tokio::time::advance(Duration::from_secs(3)).await;
        let seconds = vec![Duration::from_secs(3)];
        let events = [(2, 600), (2, 700), (1, 800), (1, 900)].map(|(count, ago)| (count, Duration::from_nanos(ago)));
        let expected = Missing { objects: seconds.clone(), lost: seconds, events: events.to_vec() };
        assert_eq!(clients.missing(&due, 1000), expected);
        assert!(!clients.have_all(&nothing));
        (hung.lock().objects, behind.lock().reopening) = (None, None);
        behind.lock().lost = Some(Instant::now());
        assert!(!clients.have_all(&nothing));
        behind.lock().lost = None;
        assert!(clients.have_all(&nothing) && !clients.have_all(&due));
        (hung.lock().newest, behind.lock().newest) = (400, 400);
        assert!(clients.have_all(&due));
        assert_eq!(clients.missing(&due, 1000), Missing::default());
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_due_for_a_client_is_missing() {
        let clients = Clients::default();
        // In whatever order they begin.
        let [third, first, second, fourth] = [2, 0, 1, 3].map(|client| clients.add(client));
        // Two clients share the first set, nothing is due for the last one.
        let due = Due::new(vec![vec![100, 400], vec![200, 300], vec![]], &[0, 1, 0, 2]);
        (first.lock().newest, second.lock().newest, third.lock().newest) = (400, 200, 100);
        let events = [(1, 600), (1, 700)].map(|(count, ago)| (count, Duration::from_nanos(ago))).to_vec();
        assert_eq!(clients.missing(&due, 1000), Missing { events, ..Missing::default() });
        third.lock().newest = 400;
        assert!(!clients.have_all(&due), "the second waits for the write at 300");
        second.lock().newest = 300;
        assert!(clients.have_all(&due) && fourth.lock().newest == 0);
        assert_eq!(clients.missing(&due, 1000), Missing::default());
    }
}
