//! Estimates what the API server would have spent on the answers from memory, by the manual's chapter `figures`.
//!
//! Where the metrics do not tell which figure applies, the lowest is used: lists count as protobuf without gzip. The
//! cost of the gateway's own watches to the API server is not subtracted: one event for each change, regardless of the
//! number of watchers.

use base::telemetry::Readings;

/// CPU time of kube-apiserver to deliver one event to one of 1,000 watchers, in seconds.
const EVENT_JSON: f64 = 64.9e-6;
const EVENT_PROTOBUF: f64 = 28.9e-6;
/// CPU time per byte of a list in protobuf: 341 ms for 57 MB. JSON costs half as much again, gzip several times as
/// much.
const LIST_BYTE: f64 = 0.341 / 57e6;
/// CPU time of a get.
const GET: f64 = 0.184e-3;

/// CPU time of the API server, in seconds.
pub(super) fn api_server_cpu_seconds(readings: &Readings) -> f64 {
    let events = readings.caches.iter().map(|(labels, cache)| {
        let each = if labels.encoding == "protobuf" { EVENT_PROTOBUF } else { EVENT_JSON };
        cache.events_sent as f64 * each
    });
    let served = readings.response_bytes.iter().filter(|bytes| bytes.outcome == "served" && bytes.verb == "list");
    let lists = served.map(|bytes| bytes.bytes as f64 * LIST_BYTE);
    let gets = readings.requests.iter().filter(|requests| requests.outcome == "served" && requests.verb == "get");
    let gets = gets.map(|requests| requests.count as f64 * GET);
    // The sum of an empty iterator would be -0.
    events.chain(lists).chain(gets).fold(0.0, |sum, seconds| sum + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::telemetry::{BytesReading, CacheLabels, CacheReadings, RequestsReading};

    #[test]
    fn what_memory_answered_counts_and_nothing_else() {
        let cache = |encoding: &str, events_sent| {
            let labels = CacheLabels { encoding: encoding.into(), ..CacheLabels::default() };
            (labels, CacheReadings { events_sent, ..CacheReadings::default() })
        };
        let requests = |verb: &str, outcome: &str, count| RequestsReading {
            verb: verb.into(),
            outcome: outcome.into(),
            count,
            ..RequestsReading::default()
        };
        let bytes =
            |verb: &str, outcome: &str, bytes| BytesReading { verb: verb.into(), outcome: outcome.into(), bytes };
        let readings = Readings {
            caches: [cache("json", 1_000_000), cache("protobuf", 1_000_000)].into(),
            requests: vec![requests("get", "served", 1_000), requests("get", "forwarded", 1_000_000)],
            response_bytes: vec![
                bytes("list", "served", 57_000_000),
                bytes("list", "forwarded", u64::MAX),
                // Its events are counted already.
                bytes("watch", "served", u64::MAX),
            ],
            ..Readings::default()
        };
        let seconds = api_server_cpu_seconds(&readings);
        assert!((seconds - (64.9 + 28.9 + 0.184 + 0.341)).abs() < 1e-6, "{seconds}");
    }
}
