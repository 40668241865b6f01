//! The report of a run as a value, which is serialized as the JSON report. Fields are only ever added; the manual
//! describes them.

use serde::Serialize;

use crate::{
    assertion::Outcome,
    processes::Usage,
    profile::{Profile, Workload},
    recorder::Recorded,
    timeline::{Interval, Timeline},
    times::Times,
};
use base::config::API_VERSION;

/// `kind` of a report.
const KIND: &str = "LoadReport";

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub api_version: &'static str,
    pub kind: &'static str,
    /// The version of the program.
    pub version: &'static str,
    pub profile: String,
    /// Whether the run was stopped early; the figures are those up to that time.
    pub interrupted: bool,
    /// Objects of the run that may not have been deleted, and why; `null` if there are none.
    pub left: Option<String>,
    /// What the tool could not check or count, and readers have to know.
    pub notes: Vec<String>,
    /// First `url`, then `against`.
    pub endpoints: Vec<EndpointReport>,
    pub assertions: Vec<AssertionReport>,
}

/// The measurements of one endpoint in all its turns.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointReport {
    /// `url` or `against`.
    pub name: &'static str,
    pub url: String,
    pub turns: usize,
    /// How long requests were sent, and the last responses awaited.
    pub seconds: f64,
    pub workloads: Vec<WorkloadReport>,
    pub processes: Vec<ProcessReport>,
    /// Whether it has answered a request of a workload itself: writes may go to another server.
    #[serde(skip)]
    pub has_answered: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadReport {
    pub name: String,
    /// `get`, `list`, `watch`, `informer`, `slowReader`, `reconnect`, `churn`.
    pub work: &'static str,
    pub clients: usize,
    pub connections: usize,
    /// Requests per second on an open schedule; `null` if each client waits for its responses.
    pub rate: Option<f64>,
    pub http: &'static str,
    pub encoding: &'static str,
    pub gzip: bool,
    /// Requests with a complete response; for watches, those that were opened.
    pub requests: u64,
    /// In the time in which requests were sent or responses awaited: without watches that were opened before or after.
    pub requests_per_second: f64,
    pub bytes: u64,
    pub errors: Vec<ErrorReport>,
    /// The times are in milliseconds; `null` if there were none.
    pub latency: Option<TimesReport>,
    pub first_byte: Option<TimesReport>,
    pub sync: Option<TimesReport>,
    pub event_delay: Option<TimesReport>,
    /// The intervals of all turns, as if the turns followed each other without pauses; `null` if there were no times.
    pub latency_over_time: Option<TimelineReport>,
    pub event_delay_over_time: Option<TimelineReport>,
    pub events: u64,
    pub events_per_second: f64,
    /// How many lists and watch-lists informers sent.
    pub lists: u64,
    /// How many lists and watch-lists informers sent although they had all objects before.
    pub relists: u64,
    /// Watches that ended cleanly.
    pub watches_ended: u64,
    /// How often the connections of informers were cut.
    pub cuts: u64,
    /// The time from a cut, or from when a connection broke, until an informer had an open watch and all objects again.
    pub back: Option<TimesReport>,
    /// What ended the responses of slow readers.
    pub ends: Vec<EndReport>,
    /// The longest time by which the tool itself was late, in milliseconds.
    pub lag_max: f64,
}

/// Errors of one kind.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorReport {
    pub kind: String,
    pub count: u64,
    /// The text of the first one.
    pub first: String,
}

/// Responses with the same end: `complete` (a list), `closed` (a watch), `open` at the end of a turn, or the kind of an
/// error.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndReport {
    pub kind: String,
    pub count: u64,
}

/// Times in milliseconds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimesReport {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    pub max: f64,
    /// The counts of times by bucket, up to the largest time; the bounds are the same in all histograms.
    pub histogram: Vec<Bucket>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bucket {
    /// The upper bound in milliseconds, with a precision of about a thousandth. The lower bound is that of the previous
    /// bucket.
    pub up_to: f64,
    pub count: u64,
}

/// How a time changed during the turns.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineReport {
    /// The length of each interval.
    pub seconds: f64,
    pub intervals: Vec<IntervalReport>,
}

/// In milliseconds; `null` in intervals without any times.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IntervalReport {
    pub count: u32,
    pub mean: Option<f64>,
    pub max: Option<f64>,
}

/// The resource usage of a process during the turns of an endpoint.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessReport {
    pub name: String,
    /// From the first request of a turn until its last events arrived.
    pub cpu_seconds: f64,
    /// CPU time while watches were opened.
    pub opening_cpu_seconds: f64,
    /// The maximum at the end of a turn.
    pub resident_bytes: u64,
    /// The turns of which this is not known, for example because the process has ended. The other figures lack them.
    pub unread_turns: usize,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AssertionReport {
    pub assertion: String,
    /// In milliseconds for times, otherwise a count or rate; `null` if nothing was measured, so that the assertion
    /// failed.
    pub value: Option<f64>,
    pub unit: &'static str,
    /// `null` if the run was interrupted: a part of a run is not judged.
    pub passed: Option<bool>,
}

impl Report {
    pub(super) fn new(profile: &Profile, interrupted: bool, endpoints: Vec<EndpointReport>) -> Self {
        Self {
            api_version: API_VERSION,
            kind: KIND,
            version: env!("CARGO_PKG_VERSION"),
            profile: profile.name.clone(),
            interrupted,
            left: None,
            notes: Vec::new(),
            endpoints,
            assertions: Vec::new(),
        }
    }

    /// Whether each endpoint has answered a request.
    pub fn has_measured(&self) -> bool {
        self.endpoints.iter().all(|endpoint| endpoint.has_answered)
    }

    /// Whether no assertion failed.
    pub fn passed(&self) -> bool {
        self.assertions.iter().all(|assertion| assertion.passed != Some(false))
    }
}

impl WorkloadReport {
    /// Whether it has informers that lost their connections or listed again, or that are cut.
    pub(super) fn has_losses(&self) -> bool {
        self.work == "reconnect" || self.back.is_some() || self.relists > 0
    }

    /// `seconds`: the time of all turns, which counts for what is not sent on a schedule.
    pub(super) fn new(workload: &Workload, recorded: &Recorded, seconds: f64) -> Self {
        let seconds = if recorded.sending.is_zero() { seconds } else { recorded.sending.as_secs_f64() };
        let a_second = |count: u64| if seconds > 0.0 { rounded(count as f64 / seconds) } else { 0.0 };
        let error = |(kind, (count, first)): (&crate::failure::ErrorKind, &(u64, String))| ErrorReport {
            kind: kind.to_string(),
            count: *count,
            first: first.clone(),
        };
        Self {
            name: workload.name.clone(),
            work: workload.work.name(),
            clients: workload.clients,
            connections: workload.connections,
            rate: workload.rate,
            http: workload.transport.http.as_str(),
            encoding: workload.transport.encoding.as_str(),
            gzip: workload.transport.gzip,
            requests: recorded.answered,
            requests_per_second: a_second(recorded.in_time.answered),
            bytes: recorded.bytes,
            errors: recorded.failures.0.iter().map(error).collect(),
            latency: TimesReport::of(&recorded.latency),
            first_byte: TimesReport::of(&recorded.first_byte),
            sync: TimesReport::of(&recorded.sync),
            event_delay: TimesReport::of(&recorded.delay),
            latency_over_time: TimelineReport::of(&recorded.latency_timeline),
            event_delay_over_time: TimelineReport::of(&recorded.delay_timeline),
            events: recorded.events,
            events_per_second: a_second(recorded.in_time.events),
            lists: recorded.lists,
            relists: recorded.relists,
            watches_ended: recorded.ended,
            cuts: recorded.cuts,
            back: TimesReport::of(&recorded.back),
            ends: recorded.ends.iter().map(|(end, count)| EndReport { kind: end.to_string(), count: *count }).collect(),
            lag_max: rounded(recorded.lag.as_secs_f64() * 1e3),
        }
    }
}

impl TimesReport {
    fn of(times: &Times) -> Option<Self> {
        (times.count() > 0).then(|| Self {
            count: times.count(),
            mean: rounded(times.mean()),
            p50: times.percentile(50.0),
            p90: times.percentile(90.0),
            p99: times.percentile(99.0),
            p99_9: times.percentile(99.9),
            max: times.max(),
            histogram: times.buckets().map(|(up_to, count)| Bucket { up_to: rounded(up_to), count }).collect(),
        })
    }
}

impl TimelineReport {
    fn of(timeline: &Timeline) -> Option<Self> {
        let milliseconds = |time: std::time::Duration| rounded(time.as_secs_f64() * 1e3);
        let interval = |interval: &Interval| IntervalReport {
            count: interval.count,
            mean: (interval.count > 0).then(|| milliseconds(interval.mean())),
            max: (interval.count > 0).then(|| milliseconds(interval.max)),
        };
        let intervals: Vec<_> = timeline.intervals().iter().map(interval).collect();
        (!intervals.is_empty()).then(|| Self { seconds: timeline.length().as_secs_f64(), intervals })
    }
}

impl ProcessReport {
    pub(super) fn new(name: &str) -> Self {
        let name = name.to_owned();
        Self { name, cpu_seconds: 0.0, opening_cpu_seconds: 0.0, resident_bytes: 0, unread_turns: 0 }
    }

    /// Adds a turn: the usage before watches were opened, when requests began, and at the end; `None` where it could
    /// not be read.
    pub(super) fn add(&mut self, usage: &[Option<Usage>; 3]) {
        let [Some(before), Some(begin), Some(end)] = usage else {
            self.unread_turns += 1;
            return;
        };
        self.opening_cpu_seconds = rounded(self.opening_cpu_seconds + begin.cpu_since(before));
        self.cpu_seconds = rounded(self.cpu_seconds + end.cpu_since(begin));
        self.resident_bytes = self.resident_bytes.max(end.resident_bytes);
    }
}

impl AssertionReport {
    pub(super) fn new(assertion: &crate::Assertion, outcome: &Outcome, interrupted: bool) -> Self {
        let value = outcome.value.map(rounded);
        let passed = (!interrupted).then_some(outcome.passed);
        Self { assertion: assertion.to_string(), value, unit: assertion.unit(), passed }
    }
}

/// Rounded to a thousandth.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
