//! The report as PerfData, the format that Kubernetes' performance tests exchange and perfdash shows
//! (`test/e2e/perftype` of kubernetes/kubernetes).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::report::{EndpointReport, Report, WorkloadReport};

/// The `version` of the format.
const VERSION: &str = "v1";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PerfData {
    version: &'static str,
    data_items: Vec<DataItem>,
    /// The labels of all items.
    labels: BTreeMap<&'static str, String>,
}

#[derive(Debug, Serialize)]
struct DataItem {
    /// The values by the names of their buckets.
    data: BTreeMap<&'static str, f64>,
    unit: &'static str,
    labels: BTreeMap<&'static str, String>,
}

/// The percentiles, rates and processes of the report as PerfData in JSON.
///
/// # Errors
/// Never fails: every value of a report can be serialized.
pub fn perf_data(report: &Report) -> serde_json::Result<String> {
    let mut data_items = Vec::new();
    for endpoint in &report.endpoints {
        endpoint.workloads.iter().for_each(|workload| of_workload(endpoint, workload, &mut data_items));
        for process in &endpoint.processes {
            let mut labels = labels(endpoint, "process");
            labels.insert("Process", process.name.clone());
            let cpu = BTreeMap::from([("cpuSeconds", process.cpu_seconds)]);
            data_items.push(DataItem { data: cpu, unit: "s", labels: labels.clone() });
            let memory = BTreeMap::from([("residentBytes", process.resident_bytes as f64)]);
            data_items.push(DataItem { data: memory, unit: "B", labels });
        }
    }
    let labels = BTreeMap::from([("Profile", report.profile.clone()), ("Version", report.version.to_owned())]);
    serde_json::to_string_pretty(&PerfData { version: VERSION, data_items, labels })
}

fn of_workload(endpoint: &EndpointReport, workload: &WorkloadReport, items: &mut Vec<DataItem>) {
    let labels = |metric| {
        let mut labels = labels(endpoint, metric);
        labels.insert("Workload", workload.name.clone());
        labels
    };
    for (metric, times) in [
        ("latency", &workload.latency),
        ("firstByte", &workload.first_byte),
        ("sync", &workload.sync),
        ("eventDelay", &workload.event_delay),
        ("back", &workload.back),
    ] {
        let Some(times) = times else { continue };
        let data = BTreeMap::from([("Perc50", times.p50), ("Perc90", times.p90), ("Perc99", times.p99)]);
        items.push(DataItem { data, unit: "ms", labels: labels(metric) });
    }
    let errors: u64 = workload.errors.iter().map(|error| error.count).sum();
    for (metric, value, unit) in [
        ("requests", workload.requests_per_second, "1/s"),
        ("events", workload.events_per_second, "1/s"),
        ("errors", errors as f64, ""),
    ] {
        items.push(DataItem { data: BTreeMap::from([(metric, value)]), unit, labels: labels(metric) });
    }
}

fn labels(endpoint: &EndpointReport, metric: &str) -> BTreeMap<&'static str, String> {
    BTreeMap::from([("Endpoint", endpoint.name.to_owned()), ("Metric", metric.to_owned())])
}
