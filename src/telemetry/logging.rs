//! Where log lines go and what they look like.

use std::io::{self, IsTerminal};

use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{Layer, filter::Targets, fmt, fmt::MakeWriter, layer::SubscriberExt};

/// Form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    /// One JSON object a line, all fields at its top level.
    Json,
}

/// The process has a logger already.
#[derive(Debug, thiserror::Error)]
#[error("another logger is set in this process")]
pub struct LoggingAlreadySet(#[source] tracing::subscriber::SetGlobalDefaultError);

/// Logs to standard error from now on.
///
/// # Errors
/// The process has a logger already.
pub fn init_logging(format: LogFormat, level: LevelFilter) -> Result<(), LoggingAlreadySet> {
    tracing::subscriber::set_global_default(subscriber(format, level, io::stderr)).map_err(LoggingAlreadySet)
}

fn subscriber<W>(format: LogFormat, level: LevelFilter, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let registry = tracing_subscriber::registry();
    match format {
        LogFormat::Text => {
            let layer = fmt::layer().with_ansi(io::stderr().is_terminal());
            Box::new(registry.with(layer.with_writer(writer).with_filter(filter(level))))
        }
        LogFormat::Json => {
            let layer = fmt::layer().json().flatten_event(true).with_current_span(false).with_span_list(false);
            Box::new(registry.with(layer.with_writer(writer).with_filter(filter(level))))
        }
    }
}

/// The libraries below log every frame at debug: only trace asks for that.
fn filter(level: LevelFilter) -> Targets {
    let libraries = if level == LevelFilter::TRACE { level } else { level.min(LevelFilter::INFO) };
    Targets::new().with_default(libraries).with_target("kube_fanout", level).with_target("access", level)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    use crate::telemetry::access_log::{AccessRecord, Outcome, access_log};

    pub(in crate::telemetry) fn record() -> AccessRecord<'static> {
        AccessRecord {
            verb: "list",
            path: "/apis/apps/v1/deployments",
            resource: None,
            resource_known: false,
            namespace: None,
            outcome: Outcome::Forwarded,
            reason: None,
            status: 200,
            duration: Duration::from_micros(1_500),
            bytes: 42,
            user_agent: "kubectl/v1.36.0",
        }
    }

    /// What is logged as JSON while `run` runs.
    pub(in crate::telemetry) fn capture(run: impl FnOnce()) -> String {
        capture_at(LevelFilter::INFO, run)
    }

    fn capture_at(level: LevelFilter, run: impl FnOnce()) -> String {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let writer = Lines(lines.clone());
        tracing::subscriber::with_default(subscriber(LogFormat::Json, level, move || writer.clone()), run);
        String::from_utf8(lines.lock().unwrap().clone()).unwrap()
    }

    #[derive(Clone)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_level_is_for_the_gateway_and_libraries_stay_quieter() {
        let lines = capture_at(LevelFilter::DEBUG, || {
            tracing::debug!(target: "kube_fanout::store", "ours");
            tracing::debug!(target: "h2::codec", "theirs");
        });
        assert!(lines.contains("ours") && !lines.contains("theirs"), "{lines}");
    }

    #[test]
    fn warn_leaves_the_access_log_out() {
        assert_eq!(capture_at(LevelFilter::WARN, || access_log(&record())), "");
    }
}
