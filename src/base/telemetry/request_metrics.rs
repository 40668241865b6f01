//! Metrics of requests. Handles are kept by key, so that only the first request of each kind creates labels.

use std::sync::Arc;

use dashmap::DashMap;
use metrics::{Counter, Histogram, SharedString, counter, histogram};

use crate::apimachinery::GroupResource;
use crate::telemetry::access_log::{Finished, Outcome};
use crate::telemetry::metrics::{REQUEST_DURATION, REQUESTS, RESPONSE_BYTES, limit_reached};

/// Counts finished requests and watches. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RequestMetrics {
    series: Arc<DashMap<Key, Series>>,
}

/// The maximum number of combinations of labels. Beyond it, new combinations are counted without their resource. A
/// cluster with 300 resources, 8 verbs and a few outcomes each stays below it.
const SERIES_MAX: usize = 20_000;

/// The label of a request whose resource is unknown, or that exceeds [`SERIES_MAX`].
const OTHER: SharedString = SharedString::const_str("other");

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    verb: &'static str,
    resource: Resource,
    outcome: Outcome,
    reason: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Resource {
    /// A path that is not a resource.
    None,
    Known(GroupResource),
    Other,
}

#[derive(Clone, Debug)]
struct Series {
    requests: Counter,
    bytes: Counter,
    /// `None` for a watch, whose client determines how long it lasts.
    duration: Option<Histogram>,
}

impl RequestMetrics {
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a finished request or watch.
    pub fn finished(&self, record: &Finished<'_>) {
        let series = self.series(Key::of(record));
        series.requests.increment(1);
        series.bytes.increment(record.bytes);
        if let Some(duration) = &series.duration {
            duration.record(record.duration.as_secs_f64());
        }
    }

    fn series(&self, mut key: Key) -> Series {
        if let Some(series) = self.series.get(&key) {
            return series.clone();
        }
        if self.series.len() >= SERIES_MAX {
            limit_reached("request_series");
            key.resource = Resource::Other;
        }
        let series = Series::new(&key);
        self.series.entry(key).or_insert(series).clone()
    }
}

const WATCH: &str = "watch";

impl Key {
    fn of(record: &Finished<'_>) -> Self {
        let resource = match record.resource {
            None => Resource::None,
            Some(resource) if record.resource_known => Resource::Known(resource.clone()),
            Some(_) => Resource::Other,
        };
        Self { verb: record.verb, resource, outcome: record.outcome, reason: record.reason }
    }
}

impl Series {
    fn new(key: &Key) -> Self {
        let resource = match &key.resource {
            Resource::None => SharedString::const_str(""),
            Resource::Known(resource) => SharedString::from(resource.to_string()),
            Resource::Other => OTHER,
        };
        let (verb, outcome, reason) = (key.verb, key.outcome.as_str(), key.reason.unwrap_or_default());
        Self {
            requests: counter!(
                REQUESTS,
                "verb" => verb,
                "resource" => resource,
                "outcome" => outcome,
                "reason" => reason,
            ),
            bytes: counter!(RESPONSE_BYTES, "verb" => verb, "outcome" => outcome),
            duration: (verb != WATCH).then(|| histogram!(REQUEST_DURATION, "verb" => verb, "outcome" => outcome)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition::recorder;
    use crate::telemetry::logging::tests::record;

    #[test]
    fn requests_are_counted_by_their_known_labels() {
        let recorder = recorder();
        let pods = GroupResource { group: "".into(), resource: "pods".into() };
        let made_up = GroupResource { group: "x".into(), resource: "made-up".into() };
        metrics::with_local_recorder(&recorder, || {
            let metrics = RequestMetrics::new();
            let served =
                Finished { resource: Some(&pods), resource_known: true, outcome: Outcome::Served, ..record().finished };
            metrics.finished(&served);
            metrics.finished(&served);
            metrics.finished(&Finished { verb: WATCH, ..served });
            metrics.finished(&Finished { resource: Some(&made_up), reason: Some("unknown"), ..record().finished });
            metrics.finished(&record().finished);
        });
        let text = recorder.handle().render();
        for line in [
            r#"requests_total{verb="list",resource="pods",outcome="served",reason=""} 2"#,
            r#"requests_total{verb="watch",resource="pods",outcome="served",reason=""} 1"#,
            r#"requests_total{verb="list",resource="other",outcome="forwarded",reason="unknown"} 1"#,
            r#"requests_total{verb="list",resource="",outcome="forwarded",reason=""} 1"#,
            r#"response_bytes_total{verb="list",outcome="served"} 84"#,
            r#"request_duration_seconds_count{verb="list",outcome="served"} 2"#,
            r#"request_duration_seconds_bucket{verb="list",outcome="served",le="0.0025"} 2"#,
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert!(!text.contains(r#"request_duration_seconds_count{verb="watch""#), "{text}");
    }
}
