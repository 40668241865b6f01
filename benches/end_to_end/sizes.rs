//! The sizes of a run.

use std::str::FromStr;

use anyhow::{Context, Result};

/// The sizes of a run.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// `BENCH_PODS`; all other numbers follow from it.
    pub(crate) pods: usize,
    pub(crate) namespaces: usize,
    /// The number of full lists per server and encoding. The API server, which is slower, is sent a quarter.
    pub(crate) lists: usize,
    /// The number of small requests per server.
    pub(crate) requests: usize,
    pub(crate) watchers: usize,
    /// The number of informers that start at the same time.
    pub(crate) informers: usize,
    /// The number of informers while the API server restarts.
    pub(crate) restarted: usize,
    /// The number of informers while the API server restarts without a gateway. Fewer with many pods: each list takes
    /// an API server a second of CPU and twice its bytes of memory, and all informers list at the same time.
    pub(crate) restarted_directly: usize,
    /// How often idle watchers are opened to measure their memory.
    pub(crate) batches: usize,
    /// Each turn consists of two downloads and two first syncs.
    pub(crate) sync_turns: usize,
    /// The number of watchers of one node each.
    pub(crate) node_watchers: usize,
    /// The number of changes while watchers are open.
    pub(crate) changes: usize,
    /// The number of changes per second: `BENCH_RATE`.
    pub(crate) rate: f64,
    /// The number of clients that read full lists concurrently.
    pub(crate) readers: usize,
    /// The number of seconds for which memory is measured, and for which the server is left alone beforehand.
    pub(crate) seconds: u64,
    /// Whether a real API server is started if there is one.
    pub(crate) real: bool,
}

/// The number for which the goals are set: 76 MB of JSON.
const PODS: usize = 10_000;

impl Sizes {
    /// The sizes of the goals, or those that environment variables set; tiny in a test.
    pub(crate) fn of(is_bench: bool) -> Result<Self> {
        let pods = from_environment("BENCH_PODS")?.unwrap_or(if is_bench { PODS } else { 60 });
        let share = |full: usize, least: usize| (full * pods / PODS).clamp(least, full);
        let restarted = share(1000, 20);
        Ok(Self {
            pods,
            namespaces: 10,
            lists: if pods >= PODS { 32 } else { 8 },
            requests: share(3000, 50),
            watchers: share(1000, 20),
            informers: share(100, 10),
            restarted,
            restarted_directly: if pods <= PODS / 10 { restarted } else { restarted / 40 },
            batches: share(9, 3),
            sync_turns: if is_bench { 5 } else { 1 },
            node_watchers: share(5000, 30),
            changes: share(300, 20),
            rate: from_environment("BENCH_RATE")?.unwrap_or(40.0),
            readers: share(64, 8),
            seconds: share(15, 1) as u64,
            real: is_bench,
        })
    }

    /// The number of nodes; there are two pods on each.
    pub(crate) fn nodes(&self) -> usize {
        (self.pods / 2).max(1)
    }
}

/// The value of an environment variable; `None` if it is not set.
fn from_environment<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(name: &str) -> Result<Option<T>> {
    let Some(text) = std::env::var_os(name) else { return Ok(None) };
    let text = text.to_string_lossy();
    text.parse().map(Some).with_context(|| format!("{name} is a number, not {text:?}"))
}
