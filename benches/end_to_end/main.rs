//! The costs of the gateway, compared with the API server behind it and with the minimum that any server could need.
//!
//! Starts an API server (kube-apiserver and etcd from `KUBEBUILDER_ASSETS`, else `sim`), fills it with pods, starts the
//! gateway and a *baseline* ([`baseline`]), all with TLS, and prints for each row their costs and whether the goal is
//! reached. CPU and memory are those of the server processes, as the kernel counts them, without those of the clients.
//!
//! ```sh
//! KUBEBUILDER_ASSETS=... cargo bench --bench end_to_end                   # all rows: some ten minutes
//! KUBEBUILDER_ASSETS=... cargo bench --bench end_to_end -- list watchers  # the rows whose names have these words
//! KUBE_FANOUT_CRD_ASSETS=... cargo bench --bench end_to_end -- storm      # needs both: on a current library, too
//! BENCH_GATEWAY=... cargo bench --bench end_to_end                        # another build of the gateway
//! BENCH_PODS=1000 cargo bench --bench end_to_end                          # smaller, see [`sizes::Sizes`]
//! cargo test --bench end_to_end                                           # as a test: tiny, in front of sim
//! ```
//!
//! Results and conclusions: `kube_fanout::manual::figures`.
//!
//! # Clients
//!
//! The clients of `cold-storm` and `memory-lists` are those of `kube-fanout load` ([`generator`]). The other rows have
//! a client of their own ([`client`]) on the same connections and the same splitting of watches, because a run of
//! `load` measures something else:
//!
//! * `list-*`, `get`, `delegated`: 3,000 gets cost a server 50 ms of CPU. `load` measures CPU in hundredths of a second
//!   and counts its own request for the newest version. Here the number of requests is fixed, the first one on a
//!   connection does not count, and CPU is measured in nanoseconds ([`process`]).
//! * `most-recent`: CPU of a single list, between its first and its last byte; the servers take turns after each list.
//! * `watch-list`: one watch after the other, each until its objects have come; from version 0, where no bookmark marks
//!   the end of the objects.
//! * `watchers-*`, `latency`: the baseline answers only lists and watches of everything, so it cannot be asked for the
//!   newest version. The changes are a fixed number, of pods that existed before. `latency` watches two servers at
//!   once, not in turns.
//! * `memory-idle`, `-watcher`, `-connection`: memory after each batch of watches; those of all batches stay open.
//! * `first-sync`: a process of its own that downloads, whose memory is measured.
//! * `forward`: three servers with a request each in turn, on one connection each.
//! * `resumes`: watches from a version older than the gateway's start, until none of them is left at the API
//!   server.
//! * `restart`: informers that are in sync when each has one certain object.
//!
//! Pods are realistic ones of 7 KB ([`pods`]); those of `load` are filled up to any size. Processes are started as in
//! the conformance suite, whose own client returns every response unchanged, and whose informers are those of other
//! projects.

mod baseline;
#[path = "../../tests/conformance/certificates.rs"]
mod certificates;
mod client;
mod custom;
mod download;
#[path = "../../tests/conformance/flags.rs"]
mod flags;
mod forwarding;
mod generator;
mod latency;
mod lists;
mod memory;
mod most_recent;
mod pods;
#[path = "../../tests/conformance/ports.rs"]
mod ports;
mod process;
#[path = "../../tests/conformance/processes.rs"]
mod processes;
mod restart;
mod servers;
mod sizes;
mod storm;
mod table;
mod watches;
mod world;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::{sizes::Sizes, table::Line, world::World};

/// The allocator of the gateway, for the baseline.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The rows of the table, in order. Each is measured on its own.
const ROWS: [&str; 26] = [
    "list-json",
    "list-protobuf",
    "list-gzip",
    "watch-list",
    "list-namespace",
    "list-label",
    "list-shard",
    "list-table",
    "get",
    "most-recent",
    "delegated",
    "watchers-json",
    "watchers-protobuf",
    "watchers-by-node",
    "watchers-by-shard",
    "watchers-tables",
    "latency",
    "memory-idle",
    "memory-lists",
    "memory-watcher",
    "memory-connection",
    "first-sync",
    "forward",
    "cold-storm",
    "resumes",
    "restart",
];

/// The rows that are measured on custom resources, too.
const STORMS: [&str; 2] = ["cold-storm", "resumes"];

fn main() -> Result<ExitCode> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        // Roles in which this program starts itself as a process of its own, so that the role can be measured.
        ["serve-baseline", arguments @ ..] => runtime.block_on(baseline::serve(arguments))?,
        ["serve-sim", port] => runtime.block_on(servers::serve_sim(port.parse()?))?,
        ["download", arguments @ ..] => runtime.block_on(download::download(arguments))?,
        words => {
            // `cargo bench` passes `--bench`; without it, this program is a test that everything works.
            let sizes = Sizes::of(words.contains(&"--bench"))?;
            let wanted: Vec<_> = words.iter().copied().filter(|word| !word.starts_with('-')).collect();
            return runtime.block_on(run(&wanted, sizes));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn run(wanted: &[&str], sizes: Sizes) -> Result<ExitCode> {
    lifecycle_limit()?;
    let rows: Vec<_> =
        ROWS.into_iter().filter(|row| wanted.is_empty() || wanted.iter().any(|word| row.contains(word))).collect();
    if rows.is_empty() {
        bail!("no row has {wanted:?} in its name; there are {ROWS:?}");
    }
    let world = World::start(sizes).await?;
    table::say(&world.description());
    table::say(table::HEAD);
    let (storms, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| STORMS.contains(row));
    for row in others {
        say(measure(&world, row).await?);
    }
    for row in &storms {
        say(measure_storm(&storm::Scene::pods(&world), row).await?);
    }
    if !storms.is_empty()
        && let Some(upstream) = custom::start(&world).await?
    {
        for row in &storms {
            say(measure_storm(&custom::scene(&world, &upstream), row).await?);
        }
    }
    table::say(&format!("\nload average at the end: {}", world::load_average()));
    Ok(ExitCode::SUCCESS)
}

fn say(lines: Vec<Line>) {
    for line in lines {
        table::say(&line.to_string());
    }
}

/// Measures a row on pods, and on custom resources where there is a server of them.
async fn measure_storm(scene: &storm::Scene<'_>, row: &str) -> Result<Vec<Line>> {
    match row {
        "cold-storm" => Box::pin(storm::cold(scene)).await,
        "resumes" => Box::pin(storm::resumes(scene)).await,
        other => bail!("{other} is not a storm"),
    }
}

async fn measure(world: &World, row: &str) -> Result<Vec<Line>> {
    match row {
        "list-json" => lists::json(world).await,
        "list-protobuf" => lists::protobuf(world).await,
        "list-gzip" => lists::gzip(world).await,
        "watch-list" => watches::watch_list(world).await,
        "list-namespace" => lists::namespace(world).await,
        "list-label" => lists::label(world).await,
        "list-shard" => lists::shard(world).await,
        "list-table" => lists::table(world).await,
        "get" => lists::get(world).await,
        "most-recent" => most_recent::lists(world).await,
        "delegated" => lists::delegated(world).await,
        "watchers-json" => watches::json(world).await,
        "watchers-protobuf" => watches::protobuf(world).await,
        "watchers-by-node" => watches::by_node(world).await,
        "watchers-by-shard" => watches::by_shard(world).await,
        "watchers-tables" => watches::tables(world).await,
        "latency" => latency::added(world).await,
        "memory-idle" => memory::idle(world).await,
        "memory-lists" => memory::lists(world).await,
        "memory-watcher" => memory::watcher(world).await,
        "memory-connection" => memory::connection(world).await,
        "first-sync" => download::first_sync(world).await,
        "restart" => restart::under_informers(world).await,
        "forward" => forwarding::added(world).await,
        other => bail!("{other} is not a row"),
    }
}

/// Thousands of watches need as many open files, here and in the servers, which inherit the limit.
fn lifecycle_limit() -> Result<()> {
    kube_fanout::lifecycle::raise_open_files()?;
    Ok(())
}
