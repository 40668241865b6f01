//! Determines when requests are due. The schedule does not wait for responses: a server that stalls makes requests
//! late, and their latency counts from when they were due. A load generator that waits, as most do, sends less to a
//! slow server and hides its pauses (coordinated omission).

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// The imprecision of a timer. If a client waited until a request was due and sends it late by less than this, the
/// request counts as sent in time.
const TIMER_STEP: Duration = Duration::from_millis(2);
/// Unsent requests are reported as at most so many times: there may be billions.
const UNSENT_MAX: u64 = 10_000;
/// The range of delays before a failed request is sent again: about a second as in client-go, and not the same for all.
const RETRY_MILLISECONDS: Range<u64> = 500..1500;

/// The requests of one workload in one turn.
#[derive(Debug)]
pub(super) struct Schedule {
    begin: Instant,
    end: Instant,
    /// Requests per second; `None` if each client continues when it is free.
    rate: Option<f64>,
    /// After this time, requests that were due are given up.
    cutoff: Instant,
    next: AtomicU64,
    stop: CancellationToken,
}

/// A request that must be sent now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) number: u64,
    /// The time from which its latency counts.
    pub(super) at: Instant,
    /// How late the tool sends it although a client was free in time.
    pub(super) lag: Duration,
}

impl Schedule {
    /// Requests are due within that time, and given up when they are late by more than `grace` at its end.
    pub(super) fn new(
        Range { start: begin, end }: Range<Instant>,
        rate: Option<f64>,
        grace: Duration,
        stop: CancellationToken,
    ) -> Self {
        Self { begin, end, rate, cutoff: end + grace, next: AtomicU64::new(0), stop }
    }

    /// Waits until the next request is due, and returns it. `None` if there are no more.
    pub(super) async fn next(&self) -> Option<Due> {
        if self.stop.is_cancelled() || Instant::now() >= self.cutoff {
            return None;
        }
        let number = self.next.fetch_add(1, Relaxed);
        let Some(due) = self.due(number) else {
            let now = Instant::now();
            return (now < self.end).then_some(Due { number, at: now, lag: Duration::ZERO });
        };
        if due >= self.end {
            return None;
        }
        if due <= Instant::now() {
            return Some(Due { number, at: due, lag: Duration::ZERO });
        }
        tokio::select! {
            () = sleep_until(due) => {}
            () = self.stop.cancelled() => return None,
        }
        let now = Instant::now();
        let lag = now.duration_since(due);
        Some(Due { number, at: if lag <= TIMER_STEP { now } else { due }, lag })
    }

    /// Waits until the run is interrupted.
    pub(super) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// The requests that no client was free to send: how many, and how long they had been due. Of very many, those that
    /// were due one after the other are taken together, with the shortest of their times.
    pub(super) fn unsent(&self) -> impl Iterator<Item = (u64, Duration)> + use<'_> {
        let now = Instant::now();
        let (given, end) = (self.next.load(Relaxed), self.due_before(now.min(self.end)));
        let together = end.saturating_sub(given).div_ceil(UNSENT_MAX).max(1);
        (given..end).step_by(usize::try_from(together).unwrap_or(usize::MAX)).filter_map(move |first| {
            let count = together.min(end - first);
            Some((count, now.duration_since(self.due(first + count - 1)?)))
        })
    }

    /// How many requests are due before that time.
    fn due_before(&self, time: Instant) -> u64 {
        let Some(rate) = self.rate else { return 0 };
        let is_due = |number: u64| self.due(number).is_some_and(|due| due < time);
        #[expect(clippy::cast_possible_truncation, reason = "at most a million a second for a week")]
        #[expect(clippy::cast_sign_loss, reason = "not below 0")]
        let mut count = (time.duration_since(self.begin).as_secs_f64() * rate) as u64;
        // The estimate is rounded, and the times are, too.
        while count > 0 && !is_due(count - 1) {
            count -= 1;
        }
        while is_due(count) {
            count += 1;
        }
        count
    }

    fn due(&self, number: u64) -> Option<Instant> {
        Some(self.begin + Duration::from_secs_f64(number as f64 / self.rate?))
    }
}

/// Waits until that client is due to start, if `rate` clients start per second; `None`: all at once.
pub(super) async fn stagger(rate: Option<f64>, client: usize) {
    if let Some(rate) = rate {
        sleep(Duration::from_secs_f64(client as f64 / rate)).await;
    }
}

/// Waits before a request that failed is sent again.
pub(super) async fn pause_before_retry() {
    sleep(retry_pause()).await;
}

/// How long to wait before a request that failed is sent again.
pub(super) fn retry_pause() -> Duration {
    Duration::from_millis(fastrand::u64(RETRY_MILLISECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn schedule(rate: Option<f64>) -> Schedule {
        let begin = Instant::now();
        Schedule::new(begin..begin + Duration::from_secs(1), rate, Duration::from_secs(1), CancellationToken::new())
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_due_at_the_rate() {
        let schedule = schedule(Some(10.0));
        let mut due = Vec::new();
        while let Some(next) = schedule.next().await {
            due.push(next.at.duration_since(schedule.begin).as_millis() / 10);
        }
        assert_eq!(due, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
        assert_eq!(schedule.unsent().count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_delayed_by_a_stall_count_from_when_they_were_due() {
        let schedule = schedule(Some(10.0));
        assert!(schedule.next().await.is_some());
        // The only client waits for its response.
        sleep(Duration::from_millis(450)).await;
        let mut late = Vec::new();
        for _ in 0..4 {
            let next = schedule.next().await.unwrap();
            late.push(next.at.elapsed().as_millis());
            assert_eq!(next.lag, Duration::ZERO, "the tool was not late");
        }
        assert_eq!(late, [350, 250, 150, 50]);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_were_never_sent_are_reported() {
        let schedule = schedule(Some(10.0));
        assert!(schedule.next().await.is_some());
        advance(Duration::from_secs(2)).await;
        assert!(schedule.next().await.is_none(), "the grace is over");
        let unsent: Vec<_> = schedule.unsent().map(|(count, late)| (count, late.as_millis())).collect();
        let expected = [1900, 1800, 1700, 1600, 1500, 1400, 1300, 1200, 1100];
        assert_eq!(unsent, expected.map(|late| (1, late)));
    }

    #[tokio::test(start_paused = true)]
    async fn billions_of_requests_that_were_never_sent_are_reported_together() {
        let (begin, day) = (Instant::now(), Duration::from_secs(24 * 3600));
        let schedule = Schedule::new(begin..begin + day, Some(1e6), Duration::ZERO, CancellationToken::new());
        assert!(schedule.next().await.is_some());
        advance(day).await;
        let unsent: Vec<_> = schedule.unsent().collect();
        assert_eq!(unsent.iter().map(|(count, _)| count).sum::<u64>(), 86_400_000_000 - 1);
        assert!(unsent.len() <= 10_000 && unsent[0].1 > day - Duration::from_secs(10), "{:?}", unsent[0]);
        assert!(unsent.is_sorted_by_key(|(_, late)| std::cmp::Reverse(*late)));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_a_request_is_due_when_a_client_is_free() {
        let schedule = schedule(None);
        for _ in 0..5 {
            assert_eq!(schedule.next().await.unwrap().at, Instant::now());
            sleep(Duration::from_millis(200)).await;
        }
        assert!(schedule.next().await.is_none());
        assert_eq!(schedule.unsent().count(), 0);
    }
}
