//! The resource usage of the processes under load, by their ids on this machine or by their own metrics.

use std::{fs, str::FromStr, sync::Arc, time::Duration};

use crate::{channel::Channel, endpoint::Endpoint, endpoint::RequestSpec, profile::HttpVersion};

/// The maximum time for reading metrics.
const METRICS_MAX: Duration = Duration::from_secs(10);

/// `NAME=VALUE` on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<T> {
    pub name: String,
    pub value: T,
}

/// The text is not `NAME=VALUE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("allowed: NAME=VALUE, with a name for the report, as in gateway=4711")]
pub struct NotNamed;

/// A process whose usage is measured.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Id(u32),
    /// The server of its metrics, and their path.
    Metrics(Channel, String),
}

/// The resources that a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: u64,
}

impl Usage {
    /// The CPU time since then. A process that has used less was restarted: what it has used since is a lower bound.
    pub(super) fn cpu_since(&self, before: &Self) -> f64 {
        let is_new = self.cpu_seconds < before.cpu_seconds;
        if is_new { self.cpu_seconds } else { self.cpu_seconds - before.cpu_seconds }
    }
}

impl Process {
    pub(super) fn of_id(named: &Named<u32>) -> Self {
        Self { name: named.name.clone(), way: Way::Id(named.value) }
    }

    /// `path` is the path of the metrics.
    pub(super) fn of_metrics(name: &str, endpoint: Arc<Endpoint>, path: &str) -> Self {
        Self { name: name.to_owned(), way: Way::Metrics(Channel::new(endpoint, HttpVersion::Http1), path.to_owned()) }
    }

    /// `None` if the usage cannot be determined.
    pub(super) async fn usage(&self) -> Option<Usage> {
        match &self.way {
            Way::Id(id) => of_process(*id),
            Way::Metrics(channel, path) => {
                let ask = RequestSpec { accept: "text/plain", ..RequestSpec::get(path) };
                let text = channel.within(METRICS_MAX, &ask).await.ok()?;
                of_metrics(&String::from_utf8_lossy(&text))
            }
        }
    }
}

/// Includes the CPU time of threads that have ended, but not of child processes. `None` for a process that has ended,
/// also if its parent has not noticed yet.
fn of_process(id: u32) -> Option<Usage> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name is in parentheses and may contain any character.
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(fields.first(), None | Some(&("Z" | "X"))) {
        return None;
    }
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = number(11)? + number(12)?;
    let resident_bytes = number(21)? * rustix::param::page_size() as u64;
    Some(Usage { cpu_seconds: ticks as f64 / rustix::param::clock_ticks_per_second() as f64, resident_bytes })
}

fn of_metrics(text: &str) -> Option<Usage> {
    let value = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.split_whitespace().next()?.parse::<f64>().ok()
    };
    let resident = value("process_resident_memory_bytes").unwrap_or_default().max(0.0);
    #[expect(clippy::cast_possible_truncation, reason = "bytes of memory are far below 2^53")]
    #[expect(clippy::cast_sign_loss, reason = "not below 0")]
    let resident_bytes = resident as u64;
    Some(Usage { cpu_seconds: value("process_cpu_seconds_total")?, resident_bytes })
}

impl<T: FromStr> FromStr for Named<T> {
    type Err = NotNamed;

    fn from_str(text: &str) -> Result<Self, NotNamed> {
        let (name, value) = text.split_once('=').ok_or(NotNamed)?;
        let value = value.parse().map_err(|_| NotNamed)?;
        if name.is_empty() { Err(NotNamed) } else { Ok(Self { name: name.to_owned(), value }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProcessReport;

    #[test]
    fn a_restarted_process_begins_anew_and_one_that_ended_is_not_one_without_usage() {
        let used = |cpu_seconds| Some(Usage { cpu_seconds, resident_bytes: 1 << 20 });
        let mut report = ProcessReport::new("gateway");
        report.add(&[used(1.0), used(1.5), used(4.5)]);
        report.add(&[used(4.5), used(5.0), used(2.0)]);
        report.add(&[used(2.0), used(3.0), None]);
        let ProcessReport { cpu_seconds, opening_cpu_seconds, unread_turns, .. } = report;
        assert_eq!((opening_cpu_seconds, cpu_seconds, unread_turns), (1.0, 5.0, 1));
    }

    #[test]
    fn a_killed_process_has_no_usage_before_its_parent_waits_for_it() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        assert!(of_process(child.id()).is_some());
        child.kill().unwrap();
        let id = rustix::process::Pid::from_child(&child);
        let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(id), options).unwrap();
        assert_eq!(of_process(child.id()), None);
        child.wait().unwrap();
    }

    #[test]
    fn usage_is_read_from_metrics_and_from_processes() {
        let text = "# HELP process_cpu_seconds_total x\nprocess_cpu_seconds_total 12.5\n\
                    process_resident_memory_bytes 1.5e+06\n";
        assert_eq!(of_metrics(text), Some(Usage { cpu_seconds: 12.5, resident_bytes: 1_500_000 }));
        assert_eq!(of_metrics("up 1\n"), None);
        let own = of_process(std::process::id()).unwrap();
        assert!(own.resident_bytes > 1 << 20, "{own:?}");
        assert_eq!(of_process(u32::MAX), None);
        assert_eq!("a=5".parse(), Ok(Named { name: "a".to_owned(), value: 5_u32 }));
        for text in ["5", "=5", "a=b"] {
            assert_eq!(text.parse::<Named<u32>>(), Err(NotNamed), "{text}");
        }
    }
}
