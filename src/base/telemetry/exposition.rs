//! The metrics recorder and its text format.
//!
//! Invariant: [`install`] is called before the first handle is created. Handles created earlier, or without it (in
//! tests), count nothing.

use std::{sync::OnceLock, time::Duration};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::telemetry::{Readings, cache_metrics, limits, metrics::describe, process_metrics};

/// In seconds: from a quick get from memory to a list that takes upstream a minute.
const DURATION_BUCKETS: &[f64] =
    &[0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// How often observations are folded into buckets: bounds the memory for observations if there are no scrapes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Installs the recorder of this process and describes every metric. Later calls return the same recorder.
///
/// # Errors
/// Another recorder is already installed.
pub fn install() -> Result<Exposition, InstallError> {
    static INSTALLED: OnceLock<Result<Exposition, InstallError>> = OnceLock::new();
    INSTALLED
        .get_or_init(|| {
            let recorder = recorder();
            let exposition = Exposition { handle: recorder.handle() };
            ::metrics::set_global_recorder(recorder).map_err(|_| InstallError)?;
            describe();
            process_metrics::started();
            Ok(exposition)
        })
        .clone()
}

/// The process already has another metrics recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a metrics recorder is already installed in this process")]
pub struct InstallError;

/// Renders the metrics for scrapes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Exposition {
    handle: PrometheusHandle,
}

impl Exposition {
    /// Media type of [`Self::render`].
    pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// All metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        cache_metrics::refresh_lags();
        limits::refresh();
        let mut text = self.handle.render();
        process_metrics::render(&mut text);
        text
    }

    /// All metrics as values.
    pub fn read(&self) -> Readings {
        Readings::parse(&self.render())
    }

    /// Keeps the memory of histograms bounded. Runs until it is dropped.
    pub async fn upkeep(self) {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            self.handle.run_upkeep();
        }
    }
}

/// A recorder with the buckets of all histograms, that is not installed for the process.
pub fn recorder() -> PrometheusRecorder {
    PrometheusBuilder::new()
        // All are durations. Without buckets they would be summaries, which cannot be added up.
        .set_buckets(DURATION_BUCKETS)
        .expect("the buckets are not empty")
        .build_recorder()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{metrics::limit_reached, peer_searched};

    #[test]
    fn the_text_form_describes_and_counts() {
        let recorder = recorder();
        let exposition = Exposition { handle: recorder.handle() };
        ::metrics::with_local_recorder(&recorder, || {
            describe();
            limit_reached("connections");
            limit_reached("connections");
            peer_searched("found", Duration::from_millis(3));
        });
        let text = exposition.render();
        assert!(text.contains("# TYPE kube_fanout_limits_reached_total counter"), "{text}");
        assert!(text.contains("# HELP kube_fanout_limits_reached_total How often"), "{text}");
        assert!(text.contains("kube_fanout_limits_reached_total{limit=\"connections\"} 2"), "{text}");
        assert!(text.contains("kube_fanout_build_info{version="), "{text}");
        assert!(text.contains("# TYPE kube_fanout_peer_search_duration_seconds histogram"), "{text}");
        let bucket = r#"kube_fanout_peer_search_duration_seconds_bucket{outcome="found",le="0.005"} 1"#;
        assert!(text.contains(bucket), "{text}");
    }
}
