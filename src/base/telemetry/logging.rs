//! The destination and format of log lines.

use std::{
    io::{self, IsTerminal, Write},
    panic,
};

use tracing::{Level, Metadata, Subscriber, level_filters::LevelFilter, subscriber::Interest};
use tracing_subscriber::{
    Layer, Registry,
    filter::Targets,
    fmt,
    fmt::MakeWriter,
    layer::{Context, Filter, SubscriberExt},
    reload,
};

use crate::telemetry::log_queue::{FLUSH_MAX, LogQueue};

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    /// One JSON object per line, with all fields at its top level.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    #[error("a logger is already set in this process")]
    AlreadySet(#[source] tracing::subscriber::SetGlobalDefaultError),
    #[error("cannot start the thread that writes the log")]
    Thread(#[source] io::Error),
}

/// The log of this process. Dropping it writes the remaining lines, if they are read within a second.
#[derive(Debug)]
pub struct Log {
    queue: LogQueue,
    level: LogLevel,
}

/// The level of a log, which can be changed at any time. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogLevel(reload::Handle<LogFilter, Registry>);

/// Logs to standard error from now on, including panics. Logging never waits for standard error to be read.
///
/// # Errors
/// The process already has a logger, or cannot start a thread.
pub fn init_logging(format: LogFormat, level: LevelFilter) -> Result<Log, LoggingError> {
    let queue = LogQueue::start(io::stderr()).map_err(LoggingError::Thread)?;
    let writer = queue.clone();
    let (filter, level) = reload::Layer::new(filter(level));
    tracing::subscriber::set_global_default(subscriber(format, filter, move || writer.clone()))
        .map_err(LoggingError::AlreadySet)?;
    // The default hook writes to standard error directly, and would block on it.
    panic::set_hook(Box::new(|panic| tracing::error!(error = %panic, "a task panicked")));
    Ok(Log { queue, level: LogLevel(level) })
}

impl Log {
    /// Writes `text` unchanged after the lines so far, regardless of the level. For messages that end the process.
    pub fn print(&self, text: &str) {
        self.queue.clone().write_all(text.as_bytes()).expect("the queue takes or drops every line");
    }
}

impl Log {
    /// The handle that changes the level.
    pub fn level(&self) -> LogLevel {
        self.level.clone()
    }
}

impl LogLevel {
    /// Sets the level from now on.
    pub fn set(&self, level: LevelFilter) {
        // Fails only if the log has already ended.
        self.0.reload(filter(level)).ok();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.queue.flush(FLUSH_MAX);
    }
}

/// The subscriber that [`init_logging`] installs, with lines written to `writer`.
pub fn log_subscriber<W>(format: LogFormat, level: LevelFilter, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    subscriber(format, filter(level), writer)
}

fn subscriber<W, F>(format: LogFormat, filter: F, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    F: Filter<Registry> + Send + Sync + 'static,
{
    let registry = tracing_subscriber::registry();
    match format {
        LogFormat::Text => {
            let layer = fmt::layer().with_ansi(io::stderr().is_terminal());
            Box::new(registry.with(layer.with_writer(writer).with_filter(filter)))
        }
        LogFormat::Json => {
            let layer = fmt::layer().json().flatten_event(true).with_current_span(false).with_span_list(false);
            Box::new(registry.with(layer.with_writer(writer).with_filter(filter)))
        }
    }
}

/// The libraries log every frame at debug, so they only log below info if the level is trace.
fn filter(level: LevelFilter) -> LogFilter {
    let libraries = if level == LevelFilter::TRACE { level } else { level.min(LevelFilter::INFO) };
    // h2 warns each time that a client resets too many streams: any client would fill the log.
    let h2 = if level == LevelFilter::TRACE { level } else { level.min(LevelFilter::ERROR) };
    let targets = Targets::new()
        .with_default(libraries)
        .with_target("h2", h2)
        .with_target("kube_fanout", level)
        .with_target("access", level);
    LogFilter { targets, has_repetitions: level >= LevelFilter::DEBUG }
}

/// Which events become lines.
#[derive(Debug)]
struct LogFilter {
    targets: Targets,
    /// Whether events that libraries repeat for each connection are among them.
    has_repetitions: bool,
}

impl LogFilter {
    /// Whether this is kube-client's warning about an unverified server (`insecure-skip-tls-verify`), which it repeats
    /// for each connection: the only warning of that module without fields. The gateway itself logs it once.
    fn repeats(metadata: &Metadata<'_>) -> bool {
        metadata.target().split("::").take(3).eq(["kube_client", "client", "tls"])
            && *metadata.level() == Level::WARN
            && metadata.fields().len() == 1
    }

    fn leaves_out(&self, metadata: &Metadata<'_>) -> bool {
        !self.has_repetitions && Self::repeats(metadata)
    }
}

impl<S> Filter<S> for LogFilter {
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        !self.leaves_out(metadata) && Filter::enabled(&self.targets, metadata, context)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.leaves_out(metadata) {
            return Interest::never();
        }
        Filter::<S>::callsite_enabled(&self.targets, metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Filter::<S>::max_level_hint(&self.targets)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::{
        net::{IpAddr, Ipv4Addr},
        sync::{Arc, Mutex, PoisonError},
        time::Duration,
    };

    use crate::telemetry::access_log::{AccessLines, AccessRecord, Finished, Outcome, access_log};

    pub(in crate::telemetry) fn record() -> AccessRecord<'static> {
        let finished = Finished {
            verb: "list",
            resource: None,
            resource_known: false,
            outcome: Outcome::Forwarded,
            reason: None,
            status: 200,
            duration: Duration::from_micros(1_500),
            bytes: 42,
        };
        AccessRecord {
            finished,
            path: "/apis/apps/v1/deployments",
            namespace: None,
            user: None,
            address: Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))),
            audit_id: None,
            user_agent: "kubectl/v1.36.0",
        }
    }

    /// The JSON log lines that are written while `run` runs.
    pub(in crate::telemetry) fn capture(run: impl FnOnce()) -> String {
        capture_at(LevelFilter::INFO, run)
    }

    fn capture_at(level: LevelFilter, run: impl FnOnce()) -> String {
        // Whether a line is logged is remembered for all threads, and asked again while subscribers come and go.
        static ONE_BY_ONE: Mutex<()> = Mutex::new(());
        let _turn = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let writer = Lines(lines.clone());
        tracing::subscriber::with_default(log_subscriber(LogFormat::Json, level, move || writer.clone()), run);
        String::from_utf8(lines.lock().unwrap().clone()).unwrap()
    }

    #[derive(Clone)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn libraries_log_less_than_the_gateway() {
        let lines = capture_at(LevelFilter::DEBUG, || {
            tracing::debug!(target: "kube_fanout::store", "ours");
            tracing::debug!(target: "h2::codec", "theirs");
        });
        assert!(lines.contains("ours") && !lines.contains("theirs"), "{lines}");
    }

    #[test]
    fn http2_errors_of_clients_are_only_logged_at_trace() {
        let run = || {
            tracing::warn!(target: "h2::proto::streams::recv", "recv_reset; too many resets");
            tracing::error!(target: "h2::proto", "a defect");
        };
        for (level, is_told) in [(LevelFilter::INFO, false), (LevelFilter::DEBUG, false), (LevelFilter::TRACE, true)] {
            let lines = capture_at(level, run);
            assert!(lines.contains("a defect"), "{level}: {lines}");
            assert_eq!(lines.contains("too many resets"), is_told, "{level}: {lines}");
        }
    }

    #[test]
    fn lines_that_libraries_repeat_are_logged_at_debug() {
        let run = || {
            const TARGET: &str = "kube_client::client::tls::rustls_tls";
            tracing::warn!(target: TARGET, "Server cert bypassed");
            tracing::warn!(target: TARGET, path = "ca.crt", "failed to reload CA bundle");
        };
        let lines = capture(run);
        assert!(!lines.contains("bypassed") && lines.contains("failed to reload"), "{lines}");
        assert!(capture_at(LevelFilter::DEBUG, run).contains("bypassed"));
    }

    #[test]
    fn the_level_warn_disables_the_access_log() {
        let lines = capture_at(LevelFilter::WARN, || {
            access_log(&record());
            assert_eq!(AccessLines::All.logged(), AccessLines::None);
        });
        assert_eq!(lines, "");
        capture(|| assert_eq!(AccessLines::All.logged(), AccessLines::All));
    }
}
