//! Pace: how often each client may do something in the long run.
//!
//! The generic cell rate algorithm (ITU-T I.371, annex A). Each client has an account of time: everything that it does
//! costs the interval of the pace, and the time that passes pays for it. A client in debt by more than a number of free
//! intervals has to wait, so that it does no more than one thing in each interval.
//!
//! Invariant: there is one entry for each client in debt, and for others only until the entries are swept.

use std::time::Duration;

use dashmap::{DashMap, Entry};
use tokio::time::Instant;

use super::{ClientKey, Surge};
use crate::telemetry::limit_reached;

/// The pace of each client.
#[derive(Debug)]
pub struct Pace {
    /// When the client's debt will be paid.
    paid_at: DashMap<ClientKey, Instant>,
    interval: Duration,
    free: u32,
    /// All clients together, and what is free of it for each in a surge. `None` if each client has its pace whatever
    /// others do.
    in_all: Option<(Surge, u32)>,
    limit: &'static str,
}

/// Things of one client that are accounted for ahead of their time: more than it has turns. One that is given up while
/// it waits has been accounted for, and those that are must not delay later ones for long.
const AHEAD: u32 = 8;
/// Maximum number of clients in debt. Further ones are not held back: it would take that many users that each asked
/// something new a moment ago.
const CLIENTS_MAX: usize = 20_000;

impl Pace {
    /// Each client may do `free` things at once, and then one in each interval. `limit` is counted in the metrics for
    /// each that has to wait.
    pub fn new(free: u32, interval: Duration, limit: &'static str) -> Self {
        Self { paid_at: DashMap::new(), interval, free, in_all: None, limit }
    }

    /// While there is a surge of what all clients do beyond their first `few` things, only these are free. So several
    /// clients that use up what is free at the same time do not have several times as much of it, and others, which do
    /// few things, notice nothing.
    #[must_use]
    pub fn with_surge(self, surge: Surge, few: u32) -> Self {
        Self { in_all: Some((surge, few)), ..self }
    }

    /// The time at which the client may do the next thing, which is accounted for now.
    pub(super) fn next(&self, client: ClientKey) -> Instant {
        let now = Instant::now();
        let most = now + self.interval * (self.free + AHEAD);
        if self.paid_at.len() >= CLIENTS_MAX {
            self.paid_at.retain(|_, paid_at| *paid_at > now);
        }
        let is_full = self.paid_at.len() >= CLIENTS_MAX;
        let before = match self.paid_at.entry(client) {
            Entry::Occupied(mut entry) => {
                let before = (*entry.get()).clamp(now, most);
                entry.insert(before + self.interval);
                before
            }
            Entry::Vacant(_) if is_full => {
                limit_reached("paced_clients");
                now
            }
            Entry::Vacant(entry) => {
                entry.insert(now + self.interval);
                now
            }
        };
        let begins = before.checked_sub(self.interval * self.free(before - now)).map_or(now, |begins| begins.max(now));
        if begins > now {
            limit_reached(self.limit);
        }
        begins
    }

    /// The number of things that are free for a client in that much debt, one of which it does now.
    fn free(&self, debt: Duration) -> u32 {
        match &self.in_all {
            Some((surge, few)) if debt > self.interval * *few && surge.count() => *few,
            _ => self.free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use tokio::time::advance;

    const INTERVAL: Duration = Duration::from_millis(20);

    /// How long the client has to wait each time, if it does that many things at once.
    fn waits(pace: &Pace, client: ClientKey, count: usize) -> Vec<Duration> {
        let now = Instant::now();
        (0..count).map(|_| pace.next(client) - now).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn after_what_is_free_there_is_one_thing_in_each_interval() {
        let pace = Pace::new(2, INTERVAL, "test");
        let [jane, john] = ["jane", "john"].map(|name| ClientKey::of(&name));
        let expected = [0, 0, 0, 1, 2].map(|intervals| INTERVAL * intervals);
        assert_eq!(waits(&pace, jane, 5), expected, "the first is not in debt, and two are free");
        assert_eq!(waits(&pace, john, 5), expected, "each has its own");
        // Time pays: it is as if she had done three things at once.
        advance(INTERVAL * 2).await;
        assert_eq!(waits(&pace, jane, 2), [1, 2].map(|intervals| INTERVAL * intervals));
        advance(INTERVAL * 100).await;
        assert_eq!(waits(&pace, jane, 5), expected, "more than everything is not paid");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_given_up_does_not_delay_what_comes_later_for_long() {
        let (pace, jane) = (Pace::new(2, INTERVAL, "test"), ClientKey::of(&"jane"));
        assert_eq!(waits(&pace, jane, 1000).last(), Some(&(INTERVAL * AHEAD)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_at_the_pace_never_waits() {
        let pace = Pace::new(0, INTERVAL, "test");
        let jane = ClientKey::of(&"jane");
        for _ in 0..100 {
            assert_eq!(waits(&pace, jane, 1), [Duration::ZERO]);
            advance(INTERVAL).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn several_clients_share_what_is_free_beyond_the_first_few() {
        let surge = Surge::new(10, INTERVAL / 4, "test surge");
        let pace = Pace::new(9, INTERVAL, "test").with_surge(surge, 2);
        let at_once = |client: &str, count| {
            let waited = waits(&pace, ClientKey::of(&client), count);
            waited.into_iter().take_while(|wait| wait.is_zero()).count()
        };
        assert_eq!(at_once("alone", 20), 10, "one client has all that is free for it");
        let crowd = ["a", "b", "c", "d"].map(|name| at_once(name, 20));
        assert_eq!(crowd, [3; 4], "in the surge that it began only the first few are free");
        for number in 0..100 {
            assert_eq!(at_once(&number.to_string(), 3), 3, "few things are no part of a surge");
        }
        advance(INTERVAL * 20).await;
        assert_eq!(at_once("alone", 20), 10, "the surge is over, and all is paid");
    }

    #[tokio::test(start_paused = true)]
    async fn clients_are_forgotten_when_they_have_paid_and_are_limited_in_number() {
        let pace = Pace::new(0, INTERVAL, "test");
        for number in 0..CLIENTS_MAX {
            assert_eq!(waits(&pace, ClientKey::of(&number), 1), [Duration::ZERO]);
        }
        let more = ClientKey::of(&"more");
        assert_eq!(waits(&pace, more, 2), [Duration::ZERO; 2], "no room to account for it");
        advance(INTERVAL).await;
        assert_eq!(waits(&pace, more, 2), [Duration::ZERO, INTERVAL]);
        assert_eq!(pace.paid_at.len(), 1);
    }
}
