//! The resources used by the process itself, under the names that Prometheus' client libraries use.
//!
//! Rendered here instead of by the recorder, whose counters hold integers only, while the CPU time has a fraction.

use std::{
    fmt::Write,
    fs,
    sync::OnceLock,
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::{
    param::page_size,
    time::{ClockId, clock_gettime},
};

use crate::telemetry::metrics::{ALL, Kind, PROCESS_CPU, PROCESS_MEMORY, PROCESS_START};

/// The kernel's statistics of this process; the second number is the resident memory in pages. Only exists on Linux.
const STATM: &str = "/proc/self/statm";

/// Appends the process metrics to a text of metrics.
pub(super) fn render(text: &mut String) {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    add(text, PROCESS_CPU, cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9);
    if let Some(pages) = resident_pages() {
        add(text, PROCESS_MEMORY, pages as f64 * page_size() as f64);
    }
    add(text, PROCESS_START, started());
}

fn add(text: &mut String, name: &str, value: f64) {
    let Some(metric) = ALL.iter().find(|metric| metric.name == name) else { return };
    let kind = if metric.kind == Kind::Counter { "counter" } else { "gauge" };
    writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}\n{name} {value}\n", metric.help)
        .expect("a string takes everything");
}

/// The time of the first call, in seconds since 1970. This is the start of the process, since the installation of the
/// recorder calls it.
pub(super) fn started() -> f64 {
    static STARTED: OnceLock<f64> = OnceLock::new();
    *STARTED.get_or_init(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
}

fn resident_pages() -> Option<u64> {
    fs::read_to_string(STATM).ok()?.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Readings;

    #[test]
    fn the_process_takes_time_and_memory() {
        let mut text = String::new();
        render(&mut text);
        assert!(text.contains("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total "), "{text}");
        let readings = Readings::parse(&text);
        assert!(readings.cpu_seconds > 0.0 && readings.memory_bytes > 1 << 20 && readings.started > 1e9, "{text}");
    }
}
