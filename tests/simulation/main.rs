//! A whole cluster in one thread: API servers on one storage, gateways, and informers, on a network in memory with a
//! clock of its own. A seed decides everything: the order of tasks, latencies, crashes, what is written, and the random
//! numbers of the gateway itself. So a seed that fails fails again, in the same way.
//!
//! The rules, and the bugs that were planted to see whether it finds them, stand in README.md.
//!
//! `cargo test --test simulation` plays a fixed set, the first seed twice: both runs must be the same.
//! `-- --seeds 100..200` plays others, and `-- --seed 7` one, in this process; `--bytes 100000` gives all gateways too
//! little memory, and `--nodes 1` puts another gateway in front of them.
//!
//! Each run of a set is a process of its own: the random numbers and clocks of the operating system are replaced once
//! ([`mad_turmoil`]), and what is global in the gateway (its metrics) begins anew. This is also why this is no test of
//! Rust's own harness, whose main thread would spin: its waits end at once.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests, without Rust's harness")]

mod api_server;
mod balancing;
mod clients;
mod connection;
mod conversation;
#[path = "../it/harness/delegated.rs"]
mod delegated;
mod faults;
mod gateway;
#[allow(dead_code, reason = "the other tests use all of it")]
#[path = "../it/harness/informer.rs"]
mod informer;
mod open;
mod phase;
mod play;
mod probe;
mod reader;
mod record;
#[allow(dead_code, reason = "the other tests use all of it")]
#[path = "../it/harness/selection.rs"]
mod selection;
mod settings;
#[path = "../it/harness/upstream.rs"]
mod upstream;
mod world;
mod writer;

use std::{
    fs,
    io::stderr,
    ops::Range,
    process::{Child, Command, ExitCode, Stdio},
};

use clap::{Args, Parser};
use clients::{Client, Watch, within};
use play::play;
use tracing::level_filters::LevelFilter;

/// Plays seeds.
#[derive(Debug, Parser)]
struct Options {
    /// Plays one seed in this process.
    #[arg(long)]
    seed: Option<u64>,
    /// Writes the gateways' log to standard error, with this level.
    #[arg(long, requires = "seed")]
    log: Option<LevelFilter>,
    /// Plays these seeds.
    #[arg(long, value_parser = range, default_value = "1..4")]
    seeds: Range<u64>,
    #[command(flatten)]
    given: Given,
    /// The words of a filter for other tests; nothing is played.
    filters: Vec<String>,
}

/// What holds whatever the seed says.
#[derive(Clone, Copy, Debug, Args)]
struct Given {
    /// Gives every gateway this `cache.bytes`.
    #[arg(long)]
    bytes: Option<u64>,
    /// Puts so many gateways in front of the other gateways.
    #[arg(long)]
    nodes: Option<usize>,
}

impl Given {
    fn arguments(self) -> impl Iterator<Item = String> {
        let bytes = self.bytes.map(|bytes| format!("--bytes={bytes}"));
        bytes.into_iter().chain(self.nodes.map(|nodes| format!("--nodes={nodes}")))
    }
}

#[expect(clippy::print_stdout, reason = "the result of a run")]
fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(seed) = options.seed {
        if let Some(level) = options.log {
            tracing_subscriber::fmt().with_max_level(level).with_writer(stderr).without_time().init();
        }
        println!("{}", play(seed, options.given));
        return ExitCode::SUCCESS;
    }
    if !options.filters.is_empty() {
        return ExitCode::SUCCESS;
    }
    if play_all(options.seeds, options.given) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays the seeds, and the first one again. Whether all were right, and the first one the same.
#[expect(clippy::print_stdout, reason = "the results of the runs")]
fn play_all(seeds: Range<u64>, given: Given) -> bool {
    let began = uptime();
    let (first, count) = (seeds.start, seeds.end - seeds.start);
    let seeds: Vec<u64> = seeds.chain([first]).collect();
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let mut results = Vec::new();
    for some in seeds.chunks(at_once) {
        let arguments =
            some.iter().map(|seed| [format!("--seed={seed}")].into_iter().chain(given.arguments()).collect::<Vec<_>>());
        let started: Vec<_> = arguments.map(|arguments| (start(&arguments), arguments)).collect();
        results.extend(started.into_iter().map(|(run, arguments)| result(&arguments.join(" "), run)));
    }
    let again = results.pop().flatten();
    let is_repeated = results[0] == again;
    if !is_repeated {
        println!("seed {first} does not repeat its run: {again:?}");
    }
    let failed = results.iter().filter(|result| result.is_none()).count();
    println!("{count} seeds and one again in {:.0} s, {failed} failed", uptime() - began);
    is_repeated && failed == 0
}

fn start(arguments: &[String]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What happened in a run; `None` if it failed.
#[expect(clippy::print_stdout, reason = "the result of a run")]
fn result(arguments: &str, run: Child) -> Option<String> {
    let output = run.wait_with_output().unwrap();
    let [said, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).trim().to_owned());
    if output.status.success() {
        println!("{arguments}: {said}");
        return Some(said);
    }
    println!("FAILED; repeat it with: cargo test --test simulation -- {arguments}\n{said}\n{errors}");
    None
}

/// Seconds since the machine started: the clocks of this process do not run.
fn uptime() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split(' ').next().and_then(|seconds| seconds.parse().ok()).unwrap_or_default()
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let ends = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    ends.filter(|range| !range.is_empty()).ok_or_else(|| format!("{text} is not FIRST..END"))
}
