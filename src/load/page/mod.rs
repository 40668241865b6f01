//! The report as one self-contained HTML page without scripts, fonts and requests. It opens offline and has a light and
//! a dark theme.

mod chart;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::report::{EndpointReport, Report, TimesReport, WorkloadReport};

/// The page loads nothing and runs nothing, whatever text of a server it contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
/// What latencies are measured from, and until when.
const FROM_DUE: &str = "from when a request was due to the end of its answer (of a watch: to its head)";
/// What times until back are measured from, and until when.
const FROM_CUT: &str = "from a cut, or a break, until a client had an open watch and all objects again";

/// The whole page.
pub fn page(report: &Report) -> String {
    let workloads = report.endpoints.first().map_or(0, |endpoint| endpoint.workloads.len());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "kube-fanout load: " (report.profile) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                main {
                    (head(report))
                    @if !report.assertions.is_empty() { (assertions(report)) }
                    @for index in 0..workloads { (workload(report, index)) }
                    (processes(report))
                }
            }
        }
    };
    page.into_string()
}

fn head(report: &Report) -> Markup {
    html! {
        header {
            h1 { "kube-fanout load: " (report.profile) }
            p.soft { "kube-fanout " (report.version) }
        }
        @if report.interrupted {
            p.warn { "Interrupted: all figures are of the time before." }
        }
        @if let Some(left) = &report.left {
            p.warn { (left) }
        }
        @for note in &report.notes {
            p.warn { "Note: " (note) }
        }
        table {
            thead { tr { th { "Endpoint" } th { "URL" } th.number { "ConcurrencyLimit" } th.number { "Seconds" } } }
            tbody {
                @for (side, endpoint) in report.endpoints.iter().enumerate() {
                    tr {
                        td { (name(side, endpoint)) }
                        td.text { (endpoint.url) }
                        td.number { (endpoint.turns) }
                        td.number { (format!("{:.1}", endpoint.seconds)) }
                    }
                }
            }
        }
    }
}

/// The name of the endpoint with its colour.
fn name(side: usize, endpoint: &EndpointReport) -> Markup {
    html! { span.key.(chart::class(side)) {} (endpoint.name) }
}

fn assertions(report: &Report) -> Markup {
    html! {
        h2 { "Assertions" }
        table {
            thead { tr { th { "Assertion" } th.number { "Measured" } th { "Outcome" } } }
            tbody {
                @for assertion in &report.assertions {
                    tr {
                        td.text { (assertion.assertion) }
                        td.number {
                            @match assertion.value {
                                Some(value) => { (value) " " (assertion.unit) }
                                None => "nothing"
                            }
                        }
                        @match assertion.passed {
                            None => { td.soft { "not judged" } }
                            Some(true) => { td.good { "passed" } }
                            Some(false) => { td.bad { "failed" } }
                        }
                    }
                }
            }
        }
    }
}

fn workload(report: &Report, index: usize) -> Markup {
    let sides: Vec<_> = report.endpoints.iter().map(|endpoint| (endpoint, &endpoint.workloads[index])).collect();
    let Some((_, first)) = sides.first() else { return html! {} };
    let of = |times: fn(&WorkloadReport) -> Option<&TimesReport>| -> Vec<_> {
        sides.iter().map(|(_, workload)| times(workload)).collect()
    };
    let (latency, delay) = (of(|workload| workload.latency.as_ref()), of(|workload| workload.event_delay.as_ref()));
    let (sync, back) = (of(|workload| workload.sync.as_ref()), of(|workload| workload.back.as_ref()));
    let over_time = |delay: bool| -> Vec<_> {
        let timeline = |(_, workload): &(_, &WorkloadReport)| {
            if delay { workload.event_delay_over_time.clone() } else { workload.latency_over_time.clone() }
        };
        sides.iter().map(timeline).collect()
    };
    html! {
        h2 { (first.name) " " span.soft { (first.work) } }
        p.soft { (described(first)) }
        table {
            thead {
                tr {
                    th { "Endpoint" } th.number { "Requests" } th.number { "/s" } th.number { "Events/s" }
                    th.number { "MB" } th.number { "Errors" } th.number { "Watches ended" } th.number { "Lists" }
                }
            }
            tbody {
                @for (side, (endpoint, workload)) in sides.iter().enumerate() { (counts(side, endpoint, workload)) }
            }
        }
        (times(&sides, "Latency, ms", &latency, FROM_DUE))
        (chart::charts(&latency, &over_time(false)))
        (times(&sides, "Event delay, ms", &delay, "from a write to its event at a watch"))
        (chart::charts(&delay, &over_time(true)))
        (times(&sides, "Time to sync, ms", &sync, "until the end of a watch's initial objects"))
        (times(&sides, "Time until back, ms", &back, FROM_CUT))
        (reconnects(&sides))
        (ends(&sides))
        (errors(&sides))
    }
}

fn described(workload: &WorkloadReport) -> String {
    let WorkloadReport { clients, connections, http, encoding, .. } = workload;
    let rate = workload.rate.map_or_else(String::new, |rate| format!(", {rate} a second"));
    let gzip = if workload.gzip { ", gzip" } else { "" };
    format!("{clients} clients on {connections} connections of HTTP/{http}{rate}, {encoding}{gzip}")
}

fn counts(side: usize, endpoint: &EndpointReport, workload: &WorkloadReport) -> Markup {
    let errors: u64 = workload.errors.iter().map(|error| error.count).sum();
    html! {
        tr {
            td { (name(side, endpoint)) }
            td.number { (workload.requests) }
            td.number { (format!("{:.1}", workload.requests_per_second)) }
            td.number { (format!("{:.1}", workload.events_per_second)) }
            td.number { (format!("{:.1}", workload.bytes as f64 / 1e6)) }
            td.number.bad[errors > 0] { (errors) }
            td.number { (workload.watches_ended) }
            td.number { (workload.lists) }
        }
    }
}

/// A table of percentiles with a row for each endpoint, and how the first one compares with the second.
fn times(
    sides: &[(&EndpointReport, &WorkloadReport)],
    title: &str,
    times: &[Option<&TimesReport>],
    meaning: &str,
) -> Markup {
    if times.iter().all(Option::is_none) {
        return html! {};
    }
    let values = |times: &TimesReport| [times.mean, times.p50, times.p90, times.p99, times.p99_9, times.max];
    html! {
        h3 { (title) " " span.soft { (meaning) } }
        table {
            thead {
                tr {
                    th { "Endpoint" } th.number { "Number" } th.number { "Mean" } th.number { "p50" }
                    th.number { "p90" } th.number { "p99" } th.number { "p99.9" } th.number { "Max" }
                }
            }
            tbody {
                @for (side, ((endpoint, _), times)) in sides.iter().zip(times).enumerate() {
                    @if let Some(times) = times {
                        tr {
                            td { (name(side, endpoint)) }
                            td.number { (times.count) }
                            @for value in values(times) { td.number { (format!("{value:.2}")) } }
                        }
                    }
                }
                @if let [Some(url), Some(against)] = times {
                    tr.soft {
                        td { "url / against" }
                        td {}
                        @for (value, of) in values(url).into_iter().zip(values(against)) {
                            td.number { (ratio(value, of)) }
                        }
                    }
                }
            }
        }
    }
}

fn ratio(value: f64, of: f64) -> String {
    if of > 0.0 { format!("{:.2} ×", value / of) } else { String::new() }
}

fn reconnects(sides: &[(&EndpointReport, &WorkloadReport)]) -> Markup {
    if !sides.iter().any(|(_, workload)| workload.has_losses()) {
        return html! {};
    }
    html! {
        h3 { "Lost connections of clients" }
        table {
            thead { tr { th { "Endpoint" } th.number { "Cuts" } th.number { "Back" } th.number { "Relists" } } }
            tbody {
                @for (side, (endpoint, workload)) in sides.iter().enumerate() {
                    tr {
                        td { (name(side, endpoint)) }
                        td.number { (workload.cuts) }
                        td.number { (workload.back.as_ref().map_or(0, |back| back.count)) }
                        td.number { (workload.relists) }
                    }
                }
            }
        }
    }
}

fn ends(sides: &[(&EndpointReport, &WorkloadReport)]) -> Markup {
    if sides.iter().all(|(_, workload)| workload.ends.is_empty()) {
        return html! {};
    }
    html! {
        h3 { "What ended slow responses" }
        table {
            thead { tr { th { "Endpoint" } th { "Kind" } th.number { "Number" } } }
            tbody {
                @for (side, (endpoint, workload)) in sides.iter().enumerate() {
                    @for end in &workload.ends {
                        tr { td { (name(side, endpoint)) } td.text { (end.kind) } td.number { (end.count) } }
                    }
                }
            }
        }
    }
}

fn errors(sides: &[(&EndpointReport, &WorkloadReport)]) -> Markup {
    if sides.iter().all(|(_, workload)| workload.errors.is_empty()) {
        return html! {};
    }
    html! {
        h3 { "Errors" }
        table {
            thead { tr { th { "Endpoint" } th { "Kind" } th.number { "Number" } th { "What the first one said" } } }
            tbody {
                @for (side, (endpoint, workload)) in sides.iter().enumerate() {
                    @for error in &workload.errors {
                        tr {
                            td { (name(side, endpoint)) }
                            td.text { (error.kind) }
                            td.number.bad { (error.count) }
                            td.text { (error.first) }
                        }
                    }
                }
            }
        }
    }
}

fn processes(report: &Report) -> Markup {
    if report.endpoints.iter().all(|endpoint| endpoint.processes.is_empty()) {
        return html! {};
    }
    html! {
        h2 { "Processes" }
        table {
            thead {
                tr {
                    th { "Process" } th { "Load on" } th.number { "CPU s" } th.number { "Cores" }
                    th.number { "CPU s to open watches" } th.number { "MiB" }
                }
            }
            tbody {
                @for (side, endpoint) in report.endpoints.iter().enumerate() {
                    @for process in &endpoint.processes {
                        tr {
                            td.text {
                                (process.name)
                                @if process.unread_turns > 0 {
                                    span.bad {
                                        " without " (process.unread_turns) " turns, in which it could not be read"
                                    }
                                }
                            }
                            td { (name(side, endpoint)) }
                            td.number { (format!("{:.2}", process.cpu_seconds)) }
                            td.number { (format!("{:.3}", process.cpu_seconds / endpoint.seconds.max(f64::EPSILON))) }
                            td.number { (format!("{:.2}", process.opening_cpu_seconds)) }
                            td.number { (process.resident_bytes >> 20) }
                        }
                    }
                }
            }
        }
    }
}
