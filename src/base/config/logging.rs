//! Log lines and traces: `logging`, and `tracing` with the field names of Kubernetes' `TracingConfiguration`.

use std::ops::RangeInclusive;

use http::uri::Authority;
use tracing::level_filters::LevelFilter;

use crate::{
    config::fields::{Fields, Number, Parsed, Refused, Words, about},
    telemetry::AccessLines,
};

const FORMATS: Words<LoggingFormat> = Words(&[("text", LoggingFormat::Text), ("json", LoggingFormat::Json)]);
const LEVELS: Words<LevelFilter> = Words(&[
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
]);
const ACCESS: Words<AccessLines> =
    Words(&[("all", AccessLines::All), ("notable", AccessLines::Notable), ("none", AccessLines::None)]);
const RATE_PER_MILLION: RangeInclusive<u32> = 0..=1_000_000;
const ENDPOINT: Parsed<String> = Parsed {
    allowed: "HOST:PORT of a collector that takes OTLP over gRPC without TLS",
    parse: |text| if is_endpoint(text) { Ok(text.to_owned()) } else { Err(Refused::default()) },
    pattern: "^[^/@]+:[0-9]+$",
};

/// The format and amount of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggingConfig {
    pub format: LoggingFormat,
    pub level: LevelFilter,
    /// Which finished requests and watches are logged, at level info and below.
    pub access: AccessLines,
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggingFormat {
    Text,
    Json,
}

/// Traces of requests, for an OpenTelemetry collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingConfig {
    /// `host:port`, over gRPC without TLS.
    pub endpoint: String,
    /// How many of a million requests are traced, among those whose client has not decided.
    pub sampling_rate_per_million: u32,
}

impl LoggingConfig {
    pub(super) fn fields(&mut self, fields: &mut Fields<'_>) {
        fields.value("format", about(""), &mut self.format, &FORMATS);
        fields.value("level", about(""), &mut self.level, &LEVELS);
        let text = "which finished requests and watches are logged, at `info` and below";
        fields.value("access", about(text), &mut self.access, &ACCESS);
    }
}

impl Default for LoggingConfig {
    fn default() -> Self {
        Self { format: LoggingFormat::Text, level: LevelFilter::INFO, access: AccessLines::Notable }
    }
}

impl TracingConfig {
    pub(super) fn fields(&mut self, fields: &mut Fields<'_>) {
        let text = about("`HOST:PORT` of a collector, see below")
            .default("`localhost:4317`; without the section `tracing`, nothing is traced");
        fields.value("endpoint", text, &mut self.endpoint, &ENDPOINT);
        let text = "how many of a million requests are traced, among those whose client has not decided";
        let form = Number(RATE_PER_MILLION);
        fields.value("samplingRatePerMillion", about(text), &mut self.sampling_rate_per_million, &form);
    }
}

impl Default for TracingConfig {
    /// The default of Kubernetes' components: OTLP over gRPC on this machine.
    fn default() -> Self {
        Self { endpoint: "localhost:4317".to_owned(), sampling_rate_per_million: 0 }
    }
}

fn is_endpoint(text: &str) -> bool {
    let authority = text.parse::<Authority>().ok();
    authority.is_some_and(|authority| {
        !text.contains('@') && !authority.host().is_empty() && authority.port_u16().is_some_and(|port| port > 0)
    })
}
