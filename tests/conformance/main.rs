//! The gateway against real API servers: the same requests are sent directly and through it, and compared.
//!
//! * `reads`: the decision tables of get, list and watch, selectors, odd parameters and paths
//! * `representations`: every resource in every form, with and without gzip
//! * `tables`: what kubectl prints of custom resources, and of built-in ones in all states, cell by cell
//! * `watches`: many different watches while the same changes happen
//! * `most recent`: a watch sees what was acknowledged before it
//! * `paging`: continue tokens that move from one server to the other
//! * `shards`: all parts of some splits, and what is not quite a selector
//! * `scopes`: gateways with a Role, and those that cache what clients ask for
//! * `informers`: kube-rs, Python and JavaScript end with the server's state
//! * `bodies`: streaming, cancelling, WebSockets
//! * `kubectl`: old and new, the same output
//! * `large`: ten thousand objects, which upstream reads once
//! * `crowd`: ten thousand connections that send nothing or read nothing
//! * `identity`: what each user may read, in every way of asking for it
//! * `hostile`: clients that use up shared resources, next to a client that must not be affected
//! * `discovery`: discovery and OpenAPI in every form, while definitions come, change and go
//! * `redefined`, `restored`: a resource, or the storage, is replaced by another
//! * `own writes`: a client that writes and then reads without a version finds its write, even if upstream crashes
//! * `resumes`: watches of a quiet resource that continue from a version before the gateway's start leave upstream
//! * `before the fill`: the same of a changed resource, by more watches than their client has places upstream
//! * `verified`: a cache that has missed a change is found, and filled again
//! * `bridge`: informers of every kind, each of which lists once, however often the API server is killed
//! * `rollouts`: the same, however often the gateways are rolled or killed
//! * `failover`: the same, with two API servers of which one at a time is killed or frozen; a server of another cluster
//! * `peers`: a further replica has its state from the others, and costs the API server watches only
//! * `persist`: informers of a gateway that keeps its states, and is killed, list once, and the gateway not at all
//! * `storm`: a thousand watchers through crashes of upstream and of the gateway
//!
//! Run by `cargo test --test conformance`, with words of scenarios as arguments to run only those. The servers come
//! from `.ci/upstreams`, or from `KUBEBUILDER_ASSETS` and `KUBE_FANOUT_CRD_ASSETS`. Expectations follow from what the
//! server supports (`Server::has_watch_list`), so `KUBEBUILDER_ASSETS` can name an old kube-apiserver or a current one:
//! 1.20 and 1.36 were tested. Scenarios name the one that they use, and `CRD` for the server of custom resources alone.
//!
//! Groups of scenarios run beside each other, each with servers and gateways of its own: most of the time, a scenario
//! waits. Chosen scenarios, and those at full size (`KUBE_FANOUT_FULL`), run one after the other: these are measured.

mod balancer;
mod before_fill;
mod bodies;
mod bridge;
mod cases;
mod certificates;
mod client;
mod compare;
mod crowd;
mod definitions;
mod discovery;
mod events;
mod failover;
mod flags;
mod foreign;
mod gateway;
mod hostile;
mod identity;
mod informers;
mod kinds;
mod kubectl;
mod large;
mod objects;
mod odd;
mod own_writes;
mod paging;
mod peers;
mod persist;
mod ports;
mod printed;
mod processes;
mod reads;
mod report;
mod representations;
mod resumes;
mod resuming;
mod rollouts;
mod scopes;
mod servers;
mod shards;
mod storm;
mod tables;
mod verified;
mod watches;
mod wire;

use std::{
    fs,
    future::Future,
    path::Path,
    process::ExitCode,
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result, anyhow};
use futures_util::future;
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    certificates::Certificates,
    gateway::Gateway,
    report::{Report, Tally},
    servers::{Assets, Server},
};

/// A server and the gateway in front of it.
pub(crate) struct Side {
    pub(crate) server: Server,
    pub(crate) gateway: Gateway,
}

impl Side {
    /// The name of the server of custom resources in the names of scenarios.
    fn name(&self) -> String {
        format!("CRD {}", self.server.version)
    }
}

/// Scenarios that use the same servers, in the order in which they run. Those that change the state of the servers come
/// last.
#[derive(Clone, Copy, Debug)]
enum Group {
    /// Both sides are asked the same.
    Compared,
    /// Hostile clients; then scenarios that need a quiet server, or kill it while it serves few clients.
    Quiet,
    /// Servers and gateways are killed under many informers.
    Killed,
}

const GROUPS: [Group; 3] = [Group::Compared, Group::Quiet, Group::Killed];

/// The chosen scenarios, and their results.
#[derive(Clone, Copy)]
struct Chosen<'a> {
    report: &'a Mutex<Report>,
    /// Words of their names; all are wanted if there is none.
    words: &'a [String],
}

/// Everything that the scenarios use.
struct World {
    certificates: Certificates,
    full: Side,
    /// `None` where its server has not been built.
    crd: Option<Side>,
}

#[expect(clippy::print_stdout, reason = "says loudly what was left out")]
fn main() -> Result<ExitCode> {
    let words: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let assets = Assets::find()?;
    if assets.crd.is_none() {
        println!(
            "{0}\nNO CURRENT API SERVER: the scenarios of 1.36 ARE LEFT OUT; \
             run .ci/upstreams or set KUBE_FANOUT_CRD_ASSETS\n{0}",
            "!".repeat(100)
        );
    }
    let folder = tempfile::Builder::new().prefix("conformance").tempdir()?;
    let (report, started) = (Mutex::default(), Instant::now());
    let chosen = Chosen { report: &report, words: &words };
    let one_by_one = [&GROUPS[..]];
    let beside = GROUPS.each_ref().map(std::slice::from_ref);
    let is_measured = !words.is_empty() || resuming::is_full();
    run(chosen, if is_measured { &one_by_one } else { &beside }, &assets, folder.path())?;
    let is_equal = report.into_inner().unwrap_or_else(PoisonError::into_inner).print();
    if !is_equal {
        // The logs show what happened.
        println!("logs: {}", folder.keep().display());
    }
    println!("{:.0} s in all", started.elapsed().as_secs_f64());
    Ok(if is_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs these groups, those of one item one after the other with the same servers, and the items beside each other:
/// each in a thread of its own, so that none waits while another one compares large responses.
#[expect(clippy::print_stdout, reason = "explains a part of the time")]
fn run(chosen: Chosen<'_>, groups: &[&[Group]], assets: &Assets, folder: &Path) -> Result<()> {
    let runtime = Runtime::new()?;
    // On a signal everything is dropped, including the servers.
    let interrupted = CancellationToken::new();
    runtime.spawn(interrupt(interrupted.clone()));
    let part = |number: usize, groups: &[Group]| {
        let folder = folder.join(number.to_string());
        let scenarios = async {
            fs::create_dir(&folder)?;
            let started = Instant::now();
            let mut world = start(assets, &folder).await?;
            println!("servers and gateways of {groups:?} are up after {:.1} s", started.elapsed().as_secs_f64());
            for group in groups {
                Box::pin(chosen.scenarios(*group, &mut world, assets)).await;
            }
            anyhow::Ok(())
        };
        let interrupted = interrupted.run_until_cancelled(Box::pin(scenarios));
        runtime.block_on(interrupted).context("interrupted")?
    };
    let part = &part;
    thread::scope(|scope| {
        let threads: Vec<_> =
            groups.iter().enumerate().map(|(number, groups)| scope.spawn(move || part(number, groups))).collect();
        let ended =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a group panicked"))));
        // All of them are waited for.
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Cancels when the process is asked to end.
async fn interrupt(interrupted: CancellationToken) -> Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result?,
        _ = terminated.recv() => {}
    }
    interrupted.cancel();
    Ok(())
}

impl Chosen<'_> {
    /// Runs the selected scenarios of a group.
    async fn scenarios(self, group: Group, world: &mut World, assets: &Assets) {
        match group {
            Group::Compared => self.compared(world, assets).await,
            Group::Quiet => self.quiet(world).await,
            Group::Killed => self.killed(world).await,
        }
    }

    async fn compared(self, World { certificates, full, crd }: &mut World, assets: &Assets) {
        let custom = crd.as_ref().map(Side::name).unwrap_or_default();
        if let Some(crd) = crd {
            // Uses the roles of the other server, where they change soon.
            self.run(format!("identity, matrix {custom}"), identity::custom(full, crd, certificates)).await;
        }
        let on_crd = async {
            if let Some(crd) = crd {
                self.on_crd(crd, certificates).await;
            }
        };
        Box::pin(future::join(self.on_full(full, &custom, certificates, assets), on_crd)).await;
    }

    async fn on_full(self, full: &Side, custom: &str, certificates: &Certificates, assets: &Assets) {
        let builtin = &full.server.version;
        self.run(format!("identity, matrix {builtin}"), identity::matrix(full, certificates)).await;
        self.run(format!("identity, forgeries {builtin}"), identity::forgeries(full, certificates)).await;
        self.run(format!("identity, reviews {builtin}"), identity::reviews(full, certificates)).await;
        self.run(format!("identity, rotation {builtin}"), identity::rotation(full, certificates)).await;
        self.run(format!("identity, misplaced {builtin}"), identity::misplaced(full, certificates)).await;
        self.run(format!("reads {builtin}"), reads::builtin(full)).await;
        self.run(format!("watches {builtin}"), watches::builtin(full)).await;
        if full.server.has_watch_list {
            self.run(format!("most recent {builtin}"), watches::most_recent(full)).await;
        }
        self.run(format!("paging {builtin}"), paging::run(full)).await;
        self.run(format!("shards {builtin}"), shards::builtin(full)).await;
        self.run(format!("scopes {builtin}"), scopes::run(full, certificates)).await;
        self.run(format!("scopes, requested {builtin}"), scopes::requested(full, certificates, true)).await;
        self.run(format!("informers {builtin}"), Box::pin(informers::builtin(full))).await;
        self.run(format!("bodies {builtin}"), bodies::run(full)).await;
        self.run(format!("representations {builtin}"), representations::builtin(full)).await;
        self.run(format!("tables {builtin}"), printed::run(full)).await;
        self.run(format!("kubectl, {builtin}"), kubectl::run(full, &assets.full.join("kubectl"))).await;
        if let Some(assets) = &assets.crd {
            self.run(format!("kubectl of {custom}, {builtin}"), kubectl::run(full, &assets.join("kubectl"))).await;
        }
        self.run(format!("discovery {builtin}"), discovery::run(full)).await;
        // Its objects remain.
        let kubectls: Vec<_> =
            [&assets.full].into_iter().chain(&assets.crd).map(|folder| folder.join("kubectl")).collect();
        self.run(format!("large {builtin}"), large::run(full, certificates, &kubectls)).await;
        self.run(format!("crowd {builtin}"), crowd::run(full)).await;
    }

    async fn on_crd(self, crd: &mut Side, certificates: &Certificates) {
        let custom = crd.name();
        self.run(format!("reads {custom}"), reads::custom(crd)).await;
        self.run(format!("scopes, requested {custom}"), scopes::requested(crd, certificates, false)).await;
        self.run(format!("watches {custom}"), watches::custom(crd)).await;
        self.run(format!("most recent {custom}"), watches::most_recent(crd)).await;
        self.run(format!("paging {custom}"), paging::run(crd)).await;
        self.run(format!("shards {custom}"), shards::custom(crd)).await;
        self.run(format!("informers {custom}"), informers::custom(crd)).await;
        self.run(format!("representations {custom}"), representations::custom(crd)).await;
        self.run(format!("tables {custom}"), tables::run(crd)).await;
        self.run(format!("discovery {custom}"), discovery::run(crd)).await;
        self.run(format!("redefined {custom}"), definitions::redefined(crd)).await;
        self.run(format!("restored {custom}"), definitions::restored(crd)).await;
    }

    /// The server of custom resources delegates authentication to the other one.
    async fn quiet(self, World { certificates, full, crd }: &mut World) {
        let builtin = full.server.version.clone();
        let custom = crd.as_ref().map(Side::name).unwrap_or_default();
        self.run(format!("hostile {builtin}"), hostile::run(full, certificates)).await;
        self.run(format!("own writes {builtin}"), own_writes::builtin(full, certificates)).await;
        if let Some(crd) = crd {
            self.run(format!("own writes {custom}"), own_writes::custom(crd, certificates)).await;
        }
        self.run(format!("resumes {builtin}"), resumes::builtin(full, certificates)).await;
        self.run(format!("before the fill {builtin}"), before_fill::run(full, certificates)).await;
        if let Some(crd) = crd {
            self.run(format!("resumes {custom}"), resumes::custom(crd, certificates)).await;
        }
        self.run(format!("verified {builtin}"), verified::run(full, certificates)).await;
        // Needs watch-list.
        if full.server.has_watch_list {
            self.run(format!("peers {builtin}"), peers::run(full, certificates)).await;
        }
    }

    async fn killed(self, World { certificates, full, crd }: &mut World) {
        let builtin = full.server.version.clone();
        self.run(format!("bridge {builtin}"), bridge::builtin(full, certificates)).await;
        if let Some(crd) = crd {
            let custom = crd.name();
            self.run(format!("bridge {custom}"), bridge::custom(crd, certificates)).await;
            self.run(format!("rollouts {custom}"), rollouts::custom(crd, certificates)).await;
        }
        self.run(format!("rollouts {builtin}"), rollouts::builtin(full, certificates)).await;
        // States are checked by watch-list, and belong to a cluster; the server of custom resources does not tell its.
        if full.server.has_watch_list {
            self.run(format!("persist {builtin}"), persist::run(full, certificates)).await;
        }
        self.run(format!("failover {builtin}"), Box::pin(failover::run(full, certificates))).await;
        self.run(format!("storm {builtin}"), storm::run(full)).await;
    }

    /// Runs a scenario if it is wanted.
    async fn run(self, name: String, scenario: impl Future<Output = Result<Tally>>) {
        if !self.words.is_empty() && !self.words.iter().any(|word| name.contains(word.as_str())) {
            return;
        }
        let started = Instant::now();
        let tally = scenario.await.unwrap_or_else(|error| Tally::failed(&error));
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.add(&name, tally, started.elapsed().as_secs_f64());
    }
}

/// Nothing is requested of the servers but what scenarios cause, so that these can count it. Without this the gateways
/// read each collection that they cache once more after five minutes (`verified` has a gateway of its own).
const NO_VERIFICATION: &str = "cache: {verifyInterval: 0}";

/// Starts the servers with objects in them, and a gateway in front of each.
async fn start(assets: &Assets, folder: &Path) -> Result<World> {
    let certificates = Certificates::make(folder)?;
    let mut full = Server::full(&assets.full, &certificates, folder)?;
    full.ready().await?;
    let crd = match &assets.crd {
        Some(assets) => Some(Server::crd(assets, &full, &certificates, folder)?),
        None => None,
    };
    objects::define(&full.endpoint, full.has_watch_list).await?;
    objects::seed_builtin(&full.endpoint).await?;
    objects::seed_custom(&full.endpoint).await?;
    identity::grant(&full.endpoint).await?;
    let gateway = Gateway::start_with("gateway-full", NO_VERIFICATION, &full, &certificates, folder).await?;
    let full = Side { server: full, gateway };
    let Some(mut crd) = crd else { return Ok(World { certificates, full, crd: None }) };
    crd.ready().await?;
    objects::define(&crd.endpoint, true).await?;
    objects::seed_custom(&crd.endpoint).await?;
    let gateway = Gateway::start_with("gateway-crd", NO_VERIFICATION, &crd, &certificates, folder).await?;
    Ok(World { certificates, full, crd: Some(Side { server: crd, gateway }) })
}
