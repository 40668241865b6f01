//! The report as text.

use std::fmt::Write;

use crate::failure::plain;
use crate::report::{EndpointReport, Report, TimesReport, WorkloadReport};

/// The texts of 404 responses for paths of unknown resources. Those for objects that do not exist are different.
const NO_RESOURCE: [&str; 2] = ["404 page not found", "could not find the requested resource"];
const SPELLING: &str =
    "no such resource there? Its plural, version and group, as in kubectl api-resources: deployments.v1.apps";

/// The maximum number of characters of an error.
const WORDS_MAX: usize = 400;
/// Why figures of a process lack a turn.
const UNREAD: &str = "it could not be read, so that it has probably ended";

/// The whole report.
pub fn text(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    write(report, &mut text).unwrap_or_default();
    text
}

fn write(report: &Report, out: &mut String) -> std::fmt::Result {
    let ended = if report.interrupted { ", interrupted: what follows is of the time before" } else { "" };
    writeln!(out, "profile {}{ended}", report.profile)?;
    for EndpointReport { name, url, turns, seconds, .. } in &report.endpoints {
        writeln!(out, "  {name:<8} {url}  {seconds:.1} s in {turns} turn{}", if *turns == 1 { "" } else { "s" })?;
    }
    report.notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))?;
    write!(out, "\n{:<40}{:>10}{:>10}{:>10}{:>10}{:>10}", "requests", "number", "/s", "events/s", "MB", "errors")?;
    writeln!(out, "{:>10}", "lists")?;
    each(report, |name, workload| {
        let errors: u64 = workload.errors.iter().map(|error| error.count).sum();
        let megabytes = workload.bytes as f64 / 1e6;
        let WorkloadReport { requests, requests_per_second, events_per_second, .. } = workload;
        write!(out, "{name:<40}{requests:>10}{requests_per_second:>10.1}{events_per_second:>10.1}")?;
        writeln!(out, "{megabytes:>10.1}{errors:>10}{:>10}", workload.lists)
    })?;
    times(report, "latency, ms, from when a request was due", |workload| workload.latency.as_ref(), out)?;
    times(report, "time to sync, ms, of watches", |workload| workload.sync.as_ref(), out)?;
    times(report, "event delay, ms, from write to watch", |workload| workload.event_delay.as_ref(), out)?;
    reconnects(report, out)?;
    ends(report, out)?;
    processes(report, out)?;
    errors(report, out)?;
    if let Some(left) = &report.left {
        writeln!(out, "{left}")?;
    }
    for assertion in &report.assertions {
        let outcome = match assertion.passed {
            None => "not judged",
            Some(true) => "passed",
            Some(false) => "FAILED",
        };
        let value =
            assertion.value.map_or("nothing measured".to_owned(), |value| format!("{value} {}", assertion.unit));
        writeln!(out, "{outcome}  {}: {}", assertion.assertion, value.trim_end())?;
    }
    Ok(())
}

/// Groups the rows by workload, with one row for each endpoint.
fn each(report: &Report, mut row: impl FnMut(&str, &WorkloadReport) -> std::fmt::Result) -> std::fmt::Result {
    let workloads = report.endpoints.first().map_or(0, |endpoint| endpoint.workloads.len());
    for index in 0..workloads {
        for endpoint in &report.endpoints {
            let workload = &endpoint.workloads[index];
            let name = if report.endpoints.len() == 1 {
                format!("  {} ({})", workload.name, workload.work)
            } else {
                format!("  {} ({}), {}", workload.name, workload.work, endpoint.name)
            };
            row(&name, workload)?;
        }
    }
    Ok(())
}

fn times(
    report: &Report,
    title: &str,
    of: impl Fn(&WorkloadReport) -> Option<&TimesReport>,
    out: &mut String,
) -> std::fmt::Result {
    let mut rows = String::new();
    each(report, |name, workload| {
        let Some(TimesReport { count, p50, p90, p99, p99_9, max, .. }) = of(workload) else { return Ok(()) };
        writeln!(rows, "{name:<40}{count:>10}{p50:>10.2}{p90:>10.2}{p99:>10.2}{p99_9:>10.2}{max:>10.2}")
    })?;
    if rows.is_empty() {
        return Ok(());
    }
    write!(out, "\n{title:<40}{:>10}", "number")?;
    writeln!(out, "{:>10}{:>10}{:>10}{:>10}{:>10}", "p50", "p90", "p99", "p99.9", "max")?;
    out.push_str(&rows);
    Ok(())
}

fn reconnects(report: &Report, out: &mut String) -> std::fmt::Result {
    times(report, "time until back, ms, from a cut or break", |workload| workload.back.as_ref(), out)?;
    let mut rows = String::new();
    each(report, |name, workload| {
        let WorkloadReport { cuts, back, relists, .. } = workload;
        if !workload.has_losses() {
            return Ok(());
        }
        writeln!(rows, "{name:<40}{cuts:>10}{:>10}{relists:>10}", back.as_ref().map_or(0, |back| back.count))
    })?;
    if !rows.is_empty() {
        writeln!(out, "\n{:<40}{:>10}{:>10}{:>10}", "lost connections of clients", "cuts", "back", "relists")?;
        out.push_str(&rows);
    }
    Ok(())
}

fn ends(report: &Report, out: &mut String) -> std::fmt::Result {
    let mut rows = String::new();
    each(report, |name, workload| {
        workload.ends.iter().try_for_each(|end| writeln!(rows, "{name:<40}{:>10}  {}", end.count, end.kind))
    })?;
    if !rows.is_empty() {
        writeln!(out, "\n{:<40}{:>10}  what ended them", "slow responses", "number")?;
        out.push_str(&rows);
    }
    Ok(())
}

fn processes(report: &Report, out: &mut String) -> std::fmt::Result {
    if report.endpoints.iter().all(|endpoint| endpoint.processes.is_empty()) {
        return Ok(());
    }
    writeln!(out, "\n{:<40}{:>10}{:>10}{:>10}", "processes", "CPU s", "cores", "MiB")?;
    for endpoint in &report.endpoints {
        for process in &endpoint.processes {
            let name = format!("  {}, {}", process.name, endpoint.name);
            let cores = if endpoint.seconds > 0.0 { process.cpu_seconds / endpoint.seconds } else { 0.0 };
            let mebibytes = process.resident_bytes >> 20;
            writeln!(out, "{name:<40}{:>10.2}{cores:>10.3}{mebibytes:>10}", process.cpu_seconds)?;
            if process.unread_turns > 0 {
                writeln!(out, "    without {} of {} turns: {UNREAD}", process.unread_turns, endpoint.turns)?;
            }
        }
    }
    Ok(())
}

fn errors(report: &Report, out: &mut String) -> std::fmt::Result {
    let mut rows = String::new();
    each(report, |name, workload| {
        for error in &workload.errors {
            // Not all of it, since the text may be a whole page.
            let first: String = error.first.lines().next().unwrap_or_default().chars().take(WORDS_MAX).collect();
            let first = plain(&first);
            writeln!(rows, "{name:<40}{:>10}  {}: {first}", error.count, error.kind)?;
            if workload.work == "watch" && error.kind == "status_422" {
                writeln!(rows, "{:<52}a server without watch-list (before Kubernetes 1.32)? Use start: any", "")?;
            }
            if error.kind == "status_404" && NO_RESOURCE.iter().any(|text| error.first.contains(text)) {
                writeln!(rows, "{:<52}{SPELLING}", "")?;
            }
        }
        Ok(())
    })?;
    if !rows.is_empty() {
        writeln!(out, "\n{:<40}{:>10}  kind, and what the first one said", "errors", "number")?;
        out.push_str(&rows);
    }
    out.push('\n');
    Ok(())
}
