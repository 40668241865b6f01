//! The resources that the measured processes use. In nanoseconds of CPU, where `kube-fanout load` has the hundredths of
//! a second that the kernel counts for a whole process: a row may cost less than that.

use std::{fs, time::Duration};

/// The CPU that a process and its children have used: the sum over their threads, without those that have ended.
pub(crate) fn cpu(id: u32) -> Duration {
    let mut processes = vec![id];
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    processes.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    let threads = processes.iter().filter_map(|id| fs::read_dir(format!("/proc/{id}/task")).ok()).flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// The current resident memory, in bytes.
pub(crate) fn resident(id: u32) -> u64 {
    status(id, "VmRSS:")
}

/// The peak of resident memory, in bytes.
pub(crate) fn resident_peak(id: u32) -> u64 {
    status(id, "VmHWM:")
}

fn status(id: u32, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse::<u64>().ok());
    value.unwrap_or_default() << 10
}
