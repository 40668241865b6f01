//! How much of everything there is.

use std::str::FromStr;

use anyhow::{Context, Result};

/// Sizes of a run.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// `BENCH_PODS`; everything else follows from it.
    pub(crate) pods: usize,
    pub(crate) namespaces: usize,
    /// Full lists for each server and form; of the API server, which takes its time, a quarter.
    pub(crate) lists: usize,
    /// Small requests for each server.
    pub(crate) requests: usize,
    pub(crate) watchers: usize,
    /// Informers that come at once.
    pub(crate) informers: usize,
    /// How often as many idle watchers are opened, to see what they hold.
    pub(crate) batches: usize,
    /// Two downloads and two first syncs each.
    pub(crate) sync_turns: usize,
    /// Watchers of one node each.
    pub(crate) node_watchers: usize,
    /// Changes while watchers watch.
    pub(crate) changes: usize,
    /// Changes a second: `BENCH_RATE`.
    pub(crate) rate: f64,
    /// Clients that read full lists at once.
    pub(crate) readers: usize,
    /// Seconds that memory is looked at, and that it is left alone before.
    pub(crate) seconds: u64,
    /// A real API server is started if there is one.
    pub(crate) real: bool,
}

/// What the goals are set for: 76 MB of JSON.
const PODS: usize = 10_000;

impl Sizes {
    /// As the goals have it, or as the environment does; tiny in a test.
    pub(crate) fn of(is_bench: bool) -> Result<Self> {
        let pods = from_environment("BENCH_PODS")?.unwrap_or(if is_bench { PODS } else { 60 });
        let share = |full: usize, least: usize| (full * pods / PODS).clamp(least, full);
        Ok(Self {
            pods,
            namespaces: 10,
            lists: if pods >= PODS { 32 } else { 8 },
            requests: share(3000, 50),
            watchers: share(1000, 20),
            informers: share(100, 10),
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

    /// Nodes that the pods lie on, two on each.
    pub(crate) fn nodes(&self) -> usize {
        (self.pods / 2).max(1)
    }
}

/// What a variable says, if it is set.
fn from_environment<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(name: &str) -> Result<Option<T>> {
    let Some(text) = std::env::var_os(name) else { return Ok(None) };
    let text = text.to_string_lossy();
    text.parse().map(Some).with_context(|| format!("{name} is a number, not {text:?}"))
}
