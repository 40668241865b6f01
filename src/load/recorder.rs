//! The measurements of one workload on one endpoint.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::Instant;

use crate::{
    demand::Due,
    failure::{ErrorKind, Failure, Failures},
    timeline::Timeline,
    times::Times,
    waits::{Clients, Missing, Waiting},
};

/// The measurements of a workload's requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    /// Requests with a complete response; for watches, those that were opened.
    pub(super) answered: u64,
    /// How long its requests were sent, and responses to them awaited, in all turns. Zero for watches.
    pub(super) sending: Duration,
    /// Bytes of bodies, as received.
    pub(super) bytes: u64,
    /// The time from when a request was due to the end of its response. For watches, from the request to the head of
    /// the response. For requests that timed out, here or at the server, the time that was spent waiting.
    pub(super) latency: Times,
    /// The time from when a request was due to the head of its response.
    pub(super) first_byte: Times,
    /// The time from when a client first asked for all objects until it had them.
    pub(super) sync: Times,
    /// The time from sending a write to receiving its event in a watch.
    pub(super) delay: Times,
    /// Latency and event delay over time, as if the turns followed each other without pauses.
    pub(super) latency_timeline: Timeline,
    pub(super) delay_timeline: Timeline,
    /// Events with objects, from when requests were sent until the end of the turn.
    pub(super) events: u64,
    /// What of `answered` and `events` came while requests were sent, or responses to them awaited.
    pub(super) in_time: InTime,
    /// Lists and watch-lists sent by informers.
    pub(super) lists: u64,
    /// Lists and watch-lists that informers sent although they had all objects before.
    pub(super) relists: u64,
    /// Watches that ended cleanly.
    pub(super) ended: u64,
    /// How often an informer's connection was cut, and the time from a cut, or from when a connection broke, until the
    /// informer had an open watch and all objects again.
    pub(super) cuts: u64,
    pub(super) back: Times,
    /// What ended the responses of slow readers.
    pub(super) ends: BTreeMap<End, u64>,
    /// The responses that slow readers are reading.
    pub(super) reading: u64,
    /// The longest time by which a request was sent late although a client was free, so that the tool itself was late.
    pub(super) lag: Duration,
    pub(super) failures: Failures,
}

/// What rates are computed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InTime {
    pub(super) answered: u64,
    pub(super) events: u64,
}

/// What ended a response that was read slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    /// The list was read to its end.
    Complete,
    /// The server ended the watch cleanly.
    Closed,
    /// It was still being read at the end of the turn.
    Open,
    Error(ErrorKind),
}

/// Measures the time for which requests are sent, in all turns.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// The length of the finished turns.
    before: Duration,
    /// The start of the current turn.
    began: Option<Instant>,
}

/// Records what clients see.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    /// The run whose writes count.
    run: String,
    recorded: Mutex<Recorded>,
    clock: Mutex<Clock>,
    /// The clients of the turn that receive events.
    clients: Clients,
    /// The time from which events count, in nanoseconds since 1970; 0 if they do not count.
    since: AtomicU64,
    /// Whether requests are sent, or responses to them awaited.
    is_sending: AtomicBool,
    timestamps: Timestamps,
}

/// The clock that timestamps of writes are compared with.
#[derive(Debug)]
struct Timestamps(fn() -> u64);

impl Recorder {
    pub(super) fn of_run(run: &str) -> Self {
        Self { run: run.to_owned(), ..Self::default() }
    }

    pub(super) fn run(&self) -> &str {
        &self.run
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time to compare a timestamp with.
    pub(super) fn now(&self) -> u64 {
        (self.timestamps.0)()
    }

    /// Makes events count from now on, if they come from later writes.
    pub(super) fn begin(&self) {
        self.since.store(self.now(), Relaxed);
        self.is_sending.store(true, Relaxed);
        self.clock().began = Some(Instant::now());
    }

    /// All requests have been sent: what comes from now on is in no rate.
    pub(super) fn sent(&self) {
        self.is_sending.store(false, Relaxed);
    }

    /// Adds the client with that number, which receives events, for this turn.
    pub(super) fn client(&self, number: usize) -> Waiting {
        self.clients.add(number)
    }

    /// Whether no client waits for its objects, its connection, or the event of a write that is due.
    pub(super) fn have_all(&self, due: &Due) -> bool {
        self.clients.have_all(due)
    }

    /// Counts what the clients still wait for, with the time that they have waited so far.
    pub(super) fn give_up(&self, due: &Due) {
        let Missing { objects, lost, events } = self.clients.missing(due, self.now());
        let (at, mut recorded) = (self.at(), self.lock());
        objects.iter().for_each(|time| recorded.sync.add(*time));
        lost.iter().for_each(|time| recorded.back.add(*time));
        events.iter().for_each(|(count, time)| recorded.delays(at, *time, *count));
        let undelivered = events.iter().map(|(count, _)| count).sum();
        for (kind, count, message) in [
            (ErrorKind::Unsynced, objects.len() as u64, "a client without all objects at the end of the turn"),
            (ErrorKind::Away, lost.len() as u64, "a client that was not back at the end of the turn"),
            (ErrorKind::Undelivered, undelivered, "a write whose event had not come at the end of the turn"),
        ] {
            recorded.failures.add_many(kind, count, message.to_owned());
        }
    }

    /// Makes events no longer count. The clients have ended: the responses that they were reading count as open.
    pub(super) fn end(&self) {
        self.since.store(0, Relaxed);
        self.clients.clear();
        let mut recorded = self.lock();
        let reading = std::mem::take(&mut recorded.reading);
        if reading > 0 {
            *recorded.ends.entry(End::Open).or_default() += reading;
        }
        drop(recorded);
        let mut clock = self.clock();
        let length = clock.began.take().map(|began| began.elapsed());
        clock.before += length.unwrap_or_default();
    }

    /// The time for which requests have been sent, in all turns. `None` between turns.
    pub(super) fn at(&self) -> Option<Duration> {
        let clock = self.clock();
        Some(clock.before + clock.began?.elapsed())
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Events of later writes than this count; `None` while none count.
    pub(super) fn since(&self) -> Option<u64> {
        Some(self.since.load(Relaxed)).filter(|since| *since > 0)
    }

    pub(super) fn answered(&self, latency: Duration, first_byte: Duration, bytes: u64) {
        let (at, mut recorded) = (self.at(), self.lock());
        recorded.answered += 1;
        recorded.in_time.answered += u64::from(self.is_sending());
        recorded.bytes += bytes;
        recorded.latency(at, latency);
        recorded.first_byte.add(first_byte);
    }

    /// Records that an informer requests all objects. `again` is set if it had them before.
    pub(super) fn listed(&self, again: bool) {
        let mut recorded = self.lock();
        recorded.lists += 1;
        recorded.relists += u64::from(again);
    }

    /// Records a part of a response, and its events if events count.
    pub(super) fn received(&self, bytes: usize, events: u64) {
        let mut recorded = self.lock();
        recorded.bytes += bytes as u64;
        self.events(&mut recorded, events);
    }

    /// Counts events that came just now, if events count.
    pub(super) fn events(&self, recorded: &mut Recorded, events: u64) {
        if self.since().is_some() {
            recorded.events += events;
            recorded.in_time.events += if self.is_sending() { events } else { 0 };
        }
    }

    fn is_sending(&self) -> bool {
        self.is_sending.load(Relaxed)
    }

    /// Records a request that failed `latency` after it was due.
    pub(super) fn failed(&self, failure: Failure, latency: Duration) {
        let (at, mut recorded) = (self.at(), self.lock());
        // A lower bound of its latency. Leaving it out would make a server that hangs look fast.
        // 504 is the server's own timeout, which is often as long as that of the profile.
        if matches!(failure.kind, ErrorKind::Timeout | ErrorKind::Status(504)) {
            recorded.latency(at, latency);
        }
        recorded.failures.add(failure);
    }
}

impl Recorded {
    /// Adds a latency; `at` is [`Recorder::at`].
    pub(super) fn latency(&mut self, at: Option<Duration>, latency: Duration) {
        self.latencies(at, latency, 1);
    }

    /// Adds the same latency of `count` requests.
    pub(super) fn latencies(&mut self, at: Option<Duration>, latency: Duration, count: u64) {
        self.latency.add_many(latency, count);
        if let Some(at) = at {
            self.latency_timeline.add_many(at, latency, count);
        }
    }

    /// Adds the delay of an event; `at` is [`Recorder::at`].
    pub(super) fn delay(&mut self, at: Option<Duration>, delay: Duration) {
        self.delays(at, delay, 1);
    }

    /// Adds the same delay of `count` events.
    fn delays(&mut self, at: Option<Duration>, delay: Duration, count: u64) {
        self.delay.add_many(delay, count);
        if let Some(at) = at {
            self.delay_timeline.add_many(at, delay, count);
        }
    }

    /// Adds the measurements of another workload, except for its timelines.
    pub(super) fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.in_time.answered += other.in_time.answered;
        self.in_time.events += other.in_time.events;
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
        self.first_byte.merge(&other.first_byte);
        self.sync.merge(&other.sync);
        self.delay.merge(&other.delay);
        self.events += other.events;
        self.lists += other.lists;
        self.relists += other.relists;
        self.cuts += other.cuts;
        self.back.merge(&other.back);
        self.ended += other.ended;
        self.lag = self.lag.max(other.lag);
        for (kind, (count, first)) in &other.failures.0 {
            self.failures.add_many(*kind, *count, first.clone());
        }
        for (end, count) in &other.ends {
            *self.ends.entry(*end).or_default() += count;
        }
    }
}

impl Default for Timestamps {
    fn default() -> Self {
        Self(now)
    }
}

#[cfg(test)]
impl Recorder {
    /// With a clock of its own, as in tests of times.
    pub(super) fn with_timestamps(now: fn() -> u64) -> Self {
        Self { timestamps: Timestamps(now), ..Self::default() }
    }
}

impl fmt::Display for End {
    /// The name in reports.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => formatter.write_str("complete"),
            Self::Closed => formatter.write_str("closed"),
            Self::Open => formatter.write_str("open"),
            Self::Error(kind) => kind.fmt(formatter),
        }
    }
}

/// Nanoseconds since 1970. Only the first time is that of the system's clock: if that is set during a run, delays are
/// still right.
#[expect(clippy::disallowed_types, reason = "timestamps are compared with those of other processes")]
pub(super) fn now() -> u64 {
    static FIRST: OnceLock<(Duration, std::time::Instant)> = OnceLock::new();
    let (first, began) = FIRST.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (since, std::time::Instant::now())
    });
    u64::try_from((*first + began.elapsed()).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    #[test]
    fn what_timed_out_counts_as_latency_and_a_refusal_does_not() {
        let recorder = Recorder::default();
        let refused = |status| Failure::status(status, b"");
        recorder.failed(refused(StatusCode::TOO_MANY_REQUESTS), Duration::from_millis(1));
        recorder.failed(refused(StatusCode::GATEWAY_TIMEOUT), Duration::from_secs(60));
        recorder.failed(Failure::timeout(), Duration::from_secs(60));
        let recorded = recorder.lock();
        assert_eq!((recorded.latency.count(), recorded.failures.total()), (2, 3));
        assert!(recorded.latency.percentile(0.0) >= 59_900.0);
    }
}
