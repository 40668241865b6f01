//! `tracing`: with the field names of Kubernetes' `TracingConfiguration`.

use std::ops::RangeInclusive;

use http::uri::Authority;

use crate::config::check::Check;
use crate::config::raw;
use crate::config::{DEFAULT_TRACING_ENDPOINT, TracingConfig};

const RATE_PER_MILLION: RangeInclusive<u32> = 0..=1_000_000;

impl Check {
    /// Nothing is traced without the section.
    pub(super) fn tracing(&mut self, raw: Option<&raw::Tracing>) -> Option<TracingConfig> {
        let raw = raw?;
        self.unknown("tracing", &raw.unknown, &["endpoint", "samplingRatePerMillion"]);
        let allowed = "HOST:PORT of a collector that takes OTLP over gRPC without TLS";
        let default = DEFAULT_TRACING_ENDPOINT.to_owned();
        let endpoint = |text: &str| is_endpoint(text).then(|| text.to_owned());
        let [from, to] = [RATE_PER_MILLION.start(), RATE_PER_MILLION.end()];
        let rate = |text: &str| text.parse().ok().filter(|rate| RATE_PER_MILLION.contains(rate));
        let rate_allowed = format!("a number from {from} to {to}");
        let per_million = raw.sampling_rate_per_million.as_ref();
        Some(TracingConfig {
            endpoint: self.parsed("tracing.endpoint", raw.endpoint.as_ref(), default, allowed, endpoint),
            sampling_rate_per_million: self.parsed(
                "tracing.samplingRatePerMillion",
                per_million,
                0,
                &rate_allowed,
                rate,
            ),
        })
    }
}

fn is_endpoint(text: &str) -> bool {
    let authority = text.parse::<Authority>().ok();
    authority.is_some_and(|authority| {
        !text.contains('@') && !authority.host().is_empty() && authority.port_u16().is_some_and(|port| port > 0)
    })
}
