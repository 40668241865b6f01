//! The metrics as values, parsed from the text of a scrape, so that every display shows the same numbers as `/metrics`.

use std::collections::{BTreeMap, HashMap};

use crate::telemetry::metrics::{
    BUILD_INFO, CACHE_COLD_BYTES, CACHE_DEFLATED_BYTES, CACHE_DERIVED_BYTES, CACHE_EPOCH, CACHE_HISTORY_BYTES,
    CACHE_HISTORY_CHANGES, CACHE_JOINED_BYTES, CACHE_OBJECT_BYTES, CACHE_OBJECTS, CACHE_PROGRESS_LAG,
    CACHE_PROGRESS_VERSION, CACHE_RESOURCE_VERSION, CONNECTIONS, FRESHNESS_PROOFS, LIMIT, LIMIT_USED, LIMITS_REACHED,
    PROCESS_CPU, PROCESS_MEMORY, PROCESS_START, REFLECTOR_RESTARTS, RELAYED_WATCHES_ENDED, REQUESTS, RESPONSE_BYTES,
    UPSTREAM_WATCHES, WATCH_EVENTS, WATCHERS,
};

/// All metrics at one moment.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    pub version: String,
    pub caches: HashMap<CacheLabels, CacheReadings>,
    pub requests: Vec<RequestsReading>,
    pub response_bytes: Vec<BytesReading>,
    /// By name.
    pub limits: BTreeMap<String, LimitReading>,
    pub connections: u64,
    pub cpu_seconds: f64,
    pub memory_bytes: u64,
    /// Seconds since 1970.
    pub started: f64,
}

/// Identifies a cache by the labels of its metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheLabels {
    /// For example `deployments.apps`.
    pub resource: String,
    pub version: String,
    pub encoding: String,
    /// The namespace of a cache of one namespace; otherwise empty.
    pub scope: String,
}

/// The metrics of one cache.
#[derive(Clone, Debug, Default)]
pub struct CacheReadings {
    pub objects: u64,
    pub object_bytes: u64,
    pub cold_bytes: u64,
    pub joined_bytes: u64,
    pub deflated_bytes: u64,
    pub derived_bytes: u64,
    pub history_bytes: u64,
    pub history_changes: u64,
    pub resource_version: u64,
    pub progress_version: u64,
    pub lag_seconds: f64,
    pub epoch: u64,
    pub watchers: u64,
    pub upstream_watches: u64,
    pub events_sent: u64,
    pub relayed_ended: u64,
    /// By cause.
    pub restarts: BTreeMap<String, u64>,
    /// By outcome.
    pub proofs: BTreeMap<String, u64>,
}

/// The number of finished requests with the same labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestsReading {
    pub verb: String,
    /// Empty for a path that is not a resource.
    pub resource: String,
    pub outcome: String,
    pub reason: String,
    pub count: u64,
}

/// The bytes of responses with the same labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BytesReading {
    pub verb: String,
    pub outcome: String,
    pub bytes: u64,
}

/// One limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitReading {
    /// `None` if it is only known when the limit is reached.
    pub used: Option<u64>,
    pub most: Option<u64>,
    /// How often it was reached.
    pub reached: u64,
}

/// One line: a series and its value.
struct Line<'a> {
    metric: &'a str,
    labels: HashMap<&'a str, String>,
    value: &'a str,
}

impl Readings {
    /// Parses Prometheus' text format. Unknown metrics are ignored.
    pub(super) fn parse(text: &str) -> Self {
        let mut readings = Self::default();
        for line in text.lines().filter_map(Line::parse) {
            readings.add(line);
        }
        readings
    }

    fn add(&mut self, mut line: Line<'_>) {
        match line.metric {
            BUILD_INFO => self.version = line.label("version"),
            REQUESTS => self.requests.push(RequestsReading {
                verb: line.label("verb"),
                resource: line.label("resource"),
                outcome: line.label("outcome"),
                reason: line.label("reason"),
                count: line.whole(),
            }),
            RESPONSE_BYTES => self.response_bytes.push(BytesReading {
                verb: line.label("verb"),
                outcome: line.label("outcome"),
                bytes: line.whole(),
            }),
            LIMIT => self.limits.entry(line.label("limit")).or_default().most = Some(line.whole()),
            LIMIT_USED => self.limits.entry(line.label("limit")).or_default().used = Some(line.whole()),
            LIMITS_REACHED => self.limits.entry(line.label("limit")).or_default().reached = line.whole(),
            CONNECTIONS => self.connections = line.whole(),
            PROCESS_CPU => self.cpu_seconds = line.number(),
            PROCESS_MEMORY => self.memory_bytes = line.whole(),
            PROCESS_START => self.started = line.number(),
            _ if line.labels.contains_key("encoding") => self.add_to_cache(line),
            _ => {}
        }
    }

    fn add_to_cache(&mut self, mut line: Line<'_>) {
        let labels = CacheLabels {
            resource: line.label("resource"),
            version: line.label("version"),
            encoding: line.label("encoding"),
            scope: line.label("scope"),
        };
        let cache = self.caches.entry(labels).or_default();
        match line.metric {
            CACHE_OBJECTS => cache.objects = line.whole(),
            CACHE_OBJECT_BYTES => cache.object_bytes = line.whole(),
            CACHE_COLD_BYTES => cache.cold_bytes = line.whole(),
            CACHE_JOINED_BYTES => cache.joined_bytes = line.whole(),
            CACHE_DEFLATED_BYTES => cache.deflated_bytes = line.whole(),
            CACHE_DERIVED_BYTES => cache.derived_bytes = line.whole(),
            CACHE_HISTORY_BYTES => cache.history_bytes = line.whole(),
            CACHE_HISTORY_CHANGES => cache.history_changes = line.whole(),
            CACHE_RESOURCE_VERSION => cache.resource_version = line.whole(),
            CACHE_PROGRESS_VERSION => cache.progress_version = line.whole(),
            CACHE_PROGRESS_LAG => cache.lag_seconds = line.number(),
            CACHE_EPOCH => cache.epoch = line.whole(),
            WATCHERS => cache.watchers = line.whole(),
            UPSTREAM_WATCHES => cache.upstream_watches = line.whole(),
            WATCH_EVENTS => cache.events_sent = line.whole(),
            RELAYED_WATCHES_ENDED => cache.relayed_ended = line.whole(),
            REFLECTOR_RESTARTS => *cache.restarts.entry(line.label("cause")).or_default() = line.whole(),
            FRESHNESS_PROOFS => *cache.proofs.entry(line.label("outcome")).or_default() = line.whole(),
            _ => {}
        }
    }
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (metric, rest) = line.split_at(line.find(['{', ' '])?);
        let mut labels = HashMap::new();
        let Some(mut rest) = rest.strip_prefix('{') else {
            return Some(Self { metric, labels, value: rest.trim() });
        };
        while !rest.starts_with('}') {
            let (name, after) = rest.trim_start_matches(',').split_once("=\"")?;
            let (value, after) = unquoted(after)?;
            labels.insert(name, value);
            rest = after;
        }
        Some(Self { metric, labels, value: rest[1..].trim() })
    }

    fn label(&mut self, name: &str) -> String {
        self.labels.remove(name).unwrap_or_default()
    }

    fn number(&self) -> f64 {
        self.value.parse().unwrap_or(0.0)
    }

    /// The value without its fraction, which counts do not have.
    fn whole(&self) -> u64 {
        self.value.split('.').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }
}

/// The value of a label up to the closing quote, and the text after it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut letters) = (String::new(), text.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                escaped => value.push(escaped),
            },
            letter => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_is_parsed_back_into_readings() {
        let text = concat!(
            "# HELP kube_fanout_requests_total Finished\n# TYPE kube_fanout_requests_total counter\n",
            "kube_fanout_requests_total{verb=\"list\",resource=\"pods\",outcome=\"served\",reason=\"\"} 12\n\n",
            "kube_fanout_limits_reached_total{limit=\"connections\"} 2\n",
            "kube_fanout_limit{limit=\"connections\"} 100\n",
            "kube_fanout_connections 7\n",
            "kube_fanout_cache_objects{resource=\"a\\\"b\\\\c\\nd\",version=\"v1\",encoding=\"json\"} 5\n",
            "kube_fanout_cache_progress_lag_seconds",
            "{resource=\"a\\\"b\\\\c\\nd\",version=\"v1\",encoding=\"json\"} 0.25\n",
            "kube_fanout_freshness_proofs_total",
            "{resource=\"x\",version=\"v1\",encoding=\"json\",outcome=\"proven\"} 3\n",
            "process_cpu_seconds_total 1.5\nnonsense{a=\"b\n",
        );
        let readings = Readings::parse(text);
        let words = ["list", "pods", "served", ""].map(str::to_owned);
        let [verb, resource, outcome, reason] = words;
        assert_eq!(readings.requests, [RequestsReading { verb, resource, outcome, reason, count: 12 }]);
        let limit = LimitReading { used: None, most: Some(100), reached: 2 };
        assert_eq!(readings.limits, BTreeMap::from([("connections".to_owned(), limit)]));
        assert_eq!((readings.connections, readings.cpu_seconds), (7, 1.5));
        let labels = |resource: &str| CacheLabels {
            resource: resource.into(),
            version: "v1".into(),
            encoding: "json".into(),
            scope: String::new(),
        };
        let cache = &readings.caches[&labels("a\"b\\c\nd")];
        assert_eq!((cache.objects, cache.lag_seconds), (5, 0.25));
        assert_eq!(readings.caches[&labels("x")].proofs["proven"], 3);
    }
}
