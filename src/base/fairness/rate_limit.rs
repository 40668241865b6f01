//! Rate limits: how often each client may do something in the long run, and all clients together.
//!
//! The generic cell rate algorithm (ITU-T I.371, annex A), which is a token bucket. Each client has an account of time:
//! everything that it does costs an interval, and the time that passes pays for it. A client in debt by more than the
//! intervals of its burst does no more than one thing in each interval.
//!
//! Invariant: there is one entry for each client in debt, and no more than [`CLIENTS`] in all.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::ClientKey;
use crate::{
    memo::{Bound, TtlCache},
    telemetry::limit_reached,
};

/// A rate, and what may exceed it for a short time.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Things that are free at once.
    pub burst: u32,
    /// Beyond these, there is one in this time.
    pub interval: Duration,
    /// Things beyond the burst that are counted at most, so that a flood has no effect long after its end.
    pub ahead: u32,
}

/// A rate for each client, and for all together. What exceeds it is the caller's to delay or to refuse.
#[derive(Debug)]
pub struct RateLimit {
    /// When the debt of each client will be paid.
    paid_at: TtlCache<ClientKey, Instant>,
    each: Rate,
    limit: &'static str,
    total: Option<Total>,
}

/// The account of all clients together.
#[derive(Debug)]
struct Total {
    paid_at: Mutex<Instant>,
    rate: Rate,
    /// The burst of each client while the total is exceeded.
    few: u32,
    limit: &'static str,
}

/// Clients in debt; beyond the limit, the debts of some are forgotten.
const CLIENTS: Bound = Bound { most: 20_000, limit: "rate_limited_clients" };

impl Rate {
    /// The debt after that many more things.
    fn charge(&self, paid_at: Instant, now: Instant, things: u32) -> Instant {
        (paid_at.max(now) + self.interval * things).min(now + self.interval * (self.burst + self.ahead))
    }

    /// Whether the debt is more than the burst.
    fn is_exceeded(&self, paid_at: Instant, now: Instant) -> bool {
        paid_at > now + self.interval * self.burst
    }
}

impl RateLimit {
    /// `limit` is counted in the metrics for each thing that has to wait.
    pub fn new(each: Rate, limit: &'static str) -> Self {
        Self { paid_at: TtlCache::new(CLIENTS), each, limit, total: None }
    }

    /// With a rate of all clients together. While it is exceeded, the burst of each client is `few`, and the first
    /// `few` things of a client are no part of the total. So several clients that use up their bursts at the same time
    /// do not have several times as much, and others, which do few things, notice nothing. `limit` is counted in the
    /// metrics for each thing that exceeds the total.
    #[must_use]
    pub fn with_total(self, rate: Rate, few: u32, limit: &'static str) -> Self {
        Self { total: Some(Total { paid_at: Mutex::new(Instant::now()), rate, few, limit }), ..self }
    }

    /// The time at which the client may do the next thing, which is counted now.
    pub(super) fn reserve(&self, client: ClientKey) -> Instant {
        let now = Instant::now();
        // Includes the thing itself, which is paid for later.
        let debt = self.charge(client, now, 1);
        let burst = match &self.total {
            Some(Total { few, .. }) if debt > now + self.each.interval * (few + 1) && self.exceeds_total() => *few,
            _ => self.each.burst,
        };
        let begins = debt.checked_sub(self.each.interval * (burst + 1)).map_or(now, |begins| begins.max(now));
        if begins > now {
            limit_reached(self.limit);
        }
        begins
    }

    /// Counts that many things of a client.
    pub fn count(&self, client: ClientKey, things: u32) {
        self.charge(client, Instant::now(), things);
    }

    /// Whether the client is beyond its burst.
    pub fn is_exceeded(&self, client: ClientKey) -> bool {
        let now = Instant::now();
        self.paid_at.get(&client, now).is_some_and(|paid_at| self.each.is_exceeded(paid_at, now))
    }

    /// Counts one thing of all clients together, and returns whether they are beyond their burst.
    pub fn exceeds_total(&self) -> bool {
        let Some(Total { paid_at, rate, limit, .. }) = &self.total else { return false };
        let now = Instant::now();
        let mut paid_at = paid_at.lock().unwrap_or_else(PoisonError::into_inner);
        *paid_at = rate.charge(*paid_at, now, 1);
        let is_exceeded = rate.is_exceeded(*paid_at, now);
        drop(paid_at);
        if is_exceeded {
            limit_reached(limit);
        }
        is_exceeded
    }

    /// Of things that one client does at the same moment some may be missed.
    fn charge(&self, client: ClientKey, now: Instant, things: u32) -> Instant {
        let before = self.paid_at.get(&client, now).unwrap_or(now);
        let debt = self.each.charge(before, now, things);
        self.paid_at.insert(client, debt, debt - now);
        debt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use tokio::time::advance;

    const INTERVAL: Duration = Duration::from_millis(20);
    const AHEAD: u32 = 8;

    fn rate(burst: u32, interval: Duration) -> Rate {
        Rate { burst, interval, ahead: AHEAD + 1 }
    }

    /// How long the client has to wait each time, if it does that many things at once.
    fn waits(limit: &RateLimit, client: ClientKey, count: usize) -> Vec<Duration> {
        let now = Instant::now();
        (0..count).map(|_| limit.reserve(client) - now).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_burst_there_is_one_thing_in_each_interval() {
        let limit = RateLimit::new(rate(2, INTERVAL), "test");
        let [jane, john] = ["jane", "john"].map(|name| ClientKey::of(&name));
        let expected = [0, 0, 0, 1, 2].map(|intervals| INTERVAL * intervals);
        assert_eq!(waits(&limit, jane, 5), expected, "the first is not in debt, and two are free");
        assert_eq!(waits(&limit, john, 5), expected, "each has its own");
        // Time pays: it is as if she had done three things at once.
        advance(INTERVAL * 2).await;
        assert_eq!(waits(&limit, jane, 2), [1, 2].map(|intervals| INTERVAL * intervals));
        advance(INTERVAL * 100).await;
        assert_eq!(waits(&limit, jane, 5), expected, "more than everything is not paid");
        assert_eq!(waits(&limit, jane, 1000).last(), Some(&(INTERVAL * AHEAD)), "what is given up delays little");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_at_the_rate_never_waits() {
        let limit = RateLimit::new(rate(0, INTERVAL), "test");
        let jane = ClientKey::of(&"jane");
        for _ in 0..100 {
            assert_eq!(waits(&limit, jane, 1), [Duration::ZERO]);
            advance(INTERVAL).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn several_clients_share_the_burst_beyond_the_first_few() {
        let total = Rate { burst: 10, interval: INTERVAL / 4, ahead: 10 };
        let limit = RateLimit::new(rate(9, INTERVAL), "test").with_total(total, 2, "test total");
        let at_once = |client: &str, count| {
            let waited = waits(&limit, ClientKey::of(&client), count);
            waited.into_iter().take_while(|wait| wait.is_zero()).count()
        };
        assert_eq!(at_once("alone", 20), 10, "one client has all that is free for it");
        let crowd = ["a", "b", "c", "d"].map(|name| at_once(name, 20));
        assert_eq!(crowd, [3; 4], "only the first few are free once the total is exceeded");
        for number in 0..100 {
            assert_eq!(at_once(&number.to_string(), 3), 3, "few things are no part of the total");
        }
        advance(INTERVAL * 20).await;
        assert_eq!(at_once("alone", 20), 10, "all is paid");
    }

    #[tokio::test(start_paused = true)]
    async fn the_total_is_exceeded_beyond_its_burst_and_not_for_long() {
        let total = Rate { burst: 2, interval: INTERVAL, ahead: 2 };
        let limit = RateLimit::new(rate(9, INTERVAL), "test").with_total(total, 0, "test total");
        let counted = |count| -> Vec<bool> { (0..count).map(|_| limit.exceeds_total()).collect() };
        assert_eq!(counted(4), [false, false, true, true]);
        assert!(counted(1000).iter().all(|is_exceeded| *is_exceeded));
        advance(INTERVAL * 2).await;
        assert_eq!(counted(1), [true], "not paid yet");
        advance(INTERVAL * 2).await;
        assert_eq!(counted(2), [false, true]);
        advance(INTERVAL * 4).await;
        assert_eq!(counted(3), [false, false, true], "all is paid");
        for _ in 0..100 {
            advance(INTERVAL).await;
            assert_eq!(counted(1), [true], "at the rate, a debt stays as it is");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clients_in_debt_are_limited_in_number() {
        let limit = RateLimit::new(rate(0, INTERVAL), "test");
        for number in 0..2 * CLIENTS.most {
            limit.count(ClientKey::of(&number), 2);
        }
        let in_debt = (0..2 * CLIENTS.most).filter(|number| limit.is_exceeded(ClientKey::of(number))).count();
        assert!(in_debt <= CLIENTS.most, "{in_debt}");
    }
}
