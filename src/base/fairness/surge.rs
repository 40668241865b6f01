//! Surge: whether all clients together do something more often than usual.
//!
//! The account of time of [`Pace`](super::Pace), but one for all clients, and nothing waits for it: where it says that
//! there is a surge, the caller is stricter with each client.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::telemetry::limit_reached;

/// The account of all clients.
#[derive(Debug)]
pub struct Surge {
    /// When the debt will be paid.
    paid_at: Mutex<Instant>,
    interval: Duration,
    free: u32,
    limit: &'static str,
}

impl Surge {
    /// A surge begins if more than `free` things are done at once, and ends when no more than one in each interval
    /// was done for long enough: at most `free` intervals after the last one. `limit` is counted in the metrics for
    /// each thing that is done in a surge.
    pub fn new(free: u32, interval: Duration, limit: &'static str) -> Self {
        Self { paid_at: Mutex::new(Instant::now()), interval, free, limit }
    }

    /// Accounts for one thing, and returns whether it is part of a surge.
    pub fn count(&self) -> bool {
        let now = Instant::now();
        let free = self.interval * self.free;
        let mut paid_at = self.paid_at.lock().unwrap_or_else(PoisonError::into_inner);
        // No more debt than that, so that a flood has no effect long after its end.
        *paid_at = ((*paid_at).max(now) + self.interval).min(now + free * 2);
        let is_surge = *paid_at > now + free;
        drop(paid_at);
        if is_surge {
            limit_reached(self.limit);
        }
        is_surge
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use tokio::time::advance;

    const INTERVAL: Duration = Duration::from_millis(10);

    fn counted(surge: &Surge, count: usize) -> Vec<bool> {
        (0..count).map(|_| surge.count()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_free_is_no_surge_and_a_surge_ends_soon() {
        let surge = Surge::new(2, INTERVAL, "test");
        assert_eq!(counted(&surge, 4), [false, false, true, true]);
        assert!(counted(&surge, 1000).iter().all(|is_surge| *is_surge));
        advance(INTERVAL * 2).await;
        assert_eq!(counted(&surge, 1), [true], "not paid yet");
        advance(INTERVAL * 2).await;
        assert_eq!(counted(&surge, 2), [false, true]);
        advance(INTERVAL * 4).await;
        assert_eq!(counted(&surge, 3), [false, false, true], "all is paid");
    }

    #[tokio::test(start_paused = true)]
    async fn one_thing_in_each_interval_is_no_surge() {
        let surge = Surge::new(1, INTERVAL, "test");
        for _ in 0..100 {
            assert_eq!(counted(&surge, 1), [false]);
            advance(INTERVAL).await;
        }
    }
}
