//! Samples of the metrics of the last hour, from which rates and ratios over time are computed.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::LastHour;
use base::telemetry::{CacheLabels, Exposition, Readings};

/// How often a sample is taken.
const EVERY: Duration = Duration::from_secs(10);
/// Samples that are kept: those of an hour, and the one at its start.
const SAMPLES_MAX: usize = 361;
/// Of these, the samples with events by cache: those of a minute, and the one at its start.
const CACHES_MAX: usize = 7;
/// What `last minute` means.
const MINUTE: Duration = Duration::from_secs(60);
/// Samples in a step of the hour, once there are more than [`FINE_STEPS`]; until then, each is a step of its own.
const COARSE_STEP: usize = 6;
const FINE_STEPS: usize = 60;

/// The samples of one gateway. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Samples(Arc<Mutex<Ring>>);

#[derive(Debug, Default)]
struct Ring {
    /// The oldest first.
    totals: VecDeque<Totals>,
    /// Events sent by each cache, the oldest first.
    caches: VecDeque<(Instant, HashMap<CacheLabels, u64>)>,
}

/// Counters at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    at: Option<Instant>,
    pub(super) served: u64,
    pub(super) forwarded: u64,
    pub(super) events_sent: u64,
    pub(super) cpu_seconds: f64,
}

/// The change over a span of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Difference {
    pub(super) served: u64,
    pub(super) forwarded: u64,
    pub(super) events_sent: u64,
    pub(super) cpu_seconds: f64,
    pub(super) seconds: f64,
}

impl Samples {
    /// Takes samples until it is dropped.
    pub async fn follow(self, exposition: Exposition) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.add(&exposition.read());
        }
    }

    fn add(&self, readings: &Readings) {
        let mut ring = self.lock();
        let now = Instant::now();
        if ring.totals.len() == SAMPLES_MAX {
            ring.totals.pop_front();
        }
        ring.totals.push_back(Totals::of(readings, now));
        if ring.caches.len() == CACHES_MAX {
            ring.caches.pop_front();
        }
        let caches = readings.caches.iter().map(|(labels, cache)| (labels.clone(), cache.events_sent));
        ring.caches.push_back((now, caches.collect()));
    }

    /// The changes over the last minute and the last hour, or since the first sample.
    pub(super) fn last(&self, now: &Totals) -> (Difference, Difference) {
        let ring = self.lock();
        let since = |time: Duration| {
            let earlier = |totals: &&Totals| totals.age(now) >= time;
            let from = ring.totals.iter().rev().find(earlier).or(ring.totals.front());
            from.map(|from| from.until(now)).unwrap_or_default()
        };
        (since(MINUTE), since(Duration::from_secs(3_600)))
    }

    /// Events per second that a cache has sent over the last minute; `events` is its current count.
    pub(super) fn cache_rate(&self, labels: &CacheLabels, events: u64) -> f64 {
        let ring = self.lock();
        let Some((at, caches)) = ring.caches.front() else { return 0.0 };
        let before = caches.get(labels).copied().unwrap_or(0);
        per_second(events.saturating_sub(before) as f64, at.elapsed().as_secs_f64())
    }

    /// The last hour in steps.
    pub(super) fn hour(&self) -> LastHour {
        let ring = self.lock();
        let step = if ring.totals.len() > FINE_STEPS { COARSE_STEP } else { 1 };
        let mut ends: Vec<_> = ring.totals.iter().rev().step_by(step).collect();
        ends.reverse();
        let steps: Vec<_> = ends.windows(2).map(|pair| pair[0].until(pair[1])).collect();
        LastHour {
            step_seconds: EVERY.as_secs() * step as u64,
            served: steps.iter().map(|step| step.served).collect(),
            forwarded: steps.iter().map(|step| step.forwarded).collect(),
            events_sent: steps.iter().map(|step| step.events_sent).collect(),
            cpu_cores: steps.iter().map(|step| per_second(step.cpu_seconds, step.seconds)).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Totals {
    pub(super) fn of(readings: &Readings, at: Instant) -> Self {
        let reads = |outcome: &str| {
            let those = readings.requests.iter().filter(|requests| is_read(requests) && requests.outcome == outcome);
            those.map(|requests| requests.count).sum()
        };
        Self {
            at: Some(at),
            served: reads("served"),
            forwarded: reads("forwarded"),
            events_sent: readings.caches.values().map(|cache| cache.events_sent).sum(),
            cpu_seconds: readings.cpu_seconds,
        }
    }

    fn age(&self, now: &Self) -> Duration {
        self.at.zip(now.at).map_or(Duration::ZERO, |(at, now)| now.duration_since(at))
    }

    fn until(&self, later: &Self) -> Difference {
        Difference {
            served: later.served.saturating_sub(self.served),
            forwarded: later.forwarded.saturating_sub(self.forwarded),
            events_sent: later.events_sent.saturating_sub(self.events_sent),
            cpu_seconds: later.cpu_seconds - self.cpu_seconds,
            seconds: self.age(later).as_secs_f64(),
        }
    }
}

impl Difference {
    pub(super) fn hit_ratio(&self) -> Option<f64> {
        hit_ratio(self.served, self.forwarded)
    }

    pub(super) fn events_per_second(&self) -> f64 {
        per_second(self.events_sent as f64, self.seconds)
    }

    pub(super) fn cpu_cores(&self) -> f64 {
        per_second(self.cpu_seconds, self.seconds)
    }
}

/// A get, list or watch of a resource.
pub(super) fn is_read(requests: &base::telemetry::RequestsReading) -> bool {
    matches!(requests.verb.as_str(), "get" | "list" | "watch") && !requests.resource.is_empty()
}

/// The share answered from memory; `None` if there were no reads.
pub(super) fn hit_ratio(served: u64, forwarded: u64) -> Option<f64> {
    let all = served + forwarded;
    (all > 0).then(|| served as f64 / all as f64)
}

/// 0 if the time is too short to tell.
fn per_second(amount: f64, seconds: f64) -> f64 {
    if seconds < 0.5 { 0.0 } else { amount / seconds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::telemetry::RequestsReading;

    fn readings(served: u64, forwarded: u64) -> Readings {
        let requests = |outcome: &str, count| RequestsReading {
            verb: "list".into(),
            resource: "pods".into(),
            outcome: outcome.into(),
            count,
            ..RequestsReading::default()
        };
        let write = RequestsReading { verb: "create".into(), ..requests("forwarded", 1_000) };
        let discovery = RequestsReading { resource: String::new(), ..requests("forwarded", 1_000) };
        let requests = vec![requests("served", served), requests("forwarded", forwarded), write, discovery];
        Readings { requests, ..Readings::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_minute_and_hour_are_told_apart_and_memory_is_bounded() {
        let samples = Samples::default();
        // An hour and a half: all from memory at first, and half of it in the last minute.
        let (mut served, mut forwarded) = (0, 0);
        for tick in 0..540 {
            samples.add(&readings(served, forwarded));
            tokio::time::advance(EVERY).await;
            served += 10;
            forwarded += if tick >= 534 { 10 } else { 0 };
        }
        let now = Totals::of(&readings(served, forwarded), Instant::now());
        let (minute, hour) = samples.last(&now);
        assert_eq!((minute.served, minute.forwarded, minute.hit_ratio()), (60, 60, Some(0.5)));
        assert_eq!((hour.served, hour.forwarded), (3_600, 60));
        let steps = samples.hour();
        assert_eq!((steps.step_seconds, steps.served.len()), (60, 60));
        assert!(steps.served.iter().all(|served| *served == 60), "{steps:?}");
        let ring = samples.lock();
        assert_eq!((ring.totals.len(), ring.caches.len()), (SAMPLES_MAX, CACHES_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_gateway_shows_the_samples_it_has() {
        let samples = Samples::default();
        let now = || Totals::of(&readings(5, 0), Instant::now());
        assert_eq!(samples.last(&now()).0.hit_ratio(), None);
        samples.add(&readings(0, 0));
        tokio::time::advance(Duration::from_secs(3)).await;
        let (minute, hour) = samples.last(&now());
        assert_eq!((minute.served, hour.served, minute.seconds), (5, 5, 3.0));
        assert!(samples.hour().served.is_empty());
    }
}
