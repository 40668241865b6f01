//! The gateway against real API servers: the same requests are sent directly and through it, and compared.
//!
//! * `reads`: the decision tables of get, list and watch, selectors, odd parameters and paths
//! * `representations`: every resource in every form, with and without gzip
//! * `tables`: what kubectl prints of custom resources, and of built-in ones in all states, cell by cell
//! * `watches`: many different watches while the same changes happen
//! * `most recent`: a watch sees what was acknowledged before it
//! * `paging`: continue tokens that move from one server to the other
//! * `informers`: kube-rs, Python and JavaScript end with the server's state
//! * `bodies`: streaming, cancelling, WebSockets
//! * `kubectl`: old and new, the same output
//! * `large`: ten thousand objects, which upstream reads once
//! * `crowd`: ten thousand connections that send nothing or read nothing
//! * `identity`: what each user may read, in every way of asking for it
//! * `hostile`: clients that use up shared resources, next to a client that must not be affected
//! * `redefined`, `restored`: a resource, or the storage, is replaced by another
//! * `own writes`: a client that writes and then reads without a version finds its write, even if upstream crashes
//! * `resumes`: watches of a quiet resource that continue from a version before the gateway's start leave upstream
//! * `before the fill`: the same of a changed resource, by more watches than their client has places upstream
//! * `verified`: a cache that has missed a change is found, and filled again
//! * `bridge`: informers of every kind, each of which lists once, however often the API server is killed
//! * `rollouts`: the same, however often the gateways are rolled or killed
//! * `failover`: the same, with two API servers of which one at a time is killed or frozen; a server of another cluster
//! * `peers`: a further replica has its state from the others, and costs the API server watches only
//! * `storm`: a thousand watchers through crashes of upstream and of the gateway
//!
//! Run by `cargo test --test conformance`, with words of scenarios as arguments to run only those. The servers come
//! from `.ci/upstreams`, or from `KUBEBUILDER_ASSETS` and `KUBE_FANOUT_CRD_ASSETS`. Expectations follow from what the
//! server supports (`Server::has_watch_list`), so `KUBEBUILDER_ASSETS` can name an old kube-apiserver or a current one:
//! 1.20 and 1.36 were tested. Scenarios name the one that they use, and `CRD` for the server of custom resources alone.

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
mod ports;
mod printed;
mod processes;
mod reads;
mod report;
mod representations;
mod resumes;
mod resuming;
mod rollouts;
mod servers;
mod storm;
mod tables;
mod verified;
mod watches;
mod wire;

use std::{cell::RefCell, future::Future, path::Path, process::ExitCode};

use anyhow::Result;
use futures_util::future;
use tokio::time::Instant;

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

/// The chosen scenarios, and their results.
#[derive(Clone, Copy)]
struct Chosen<'a> {
    report: &'a RefCell<Report>,
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

fn main() -> Result<ExitCode> {
    let wanted: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // On a signal everything is dropped, including the servers.
        let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            result = run(&wanted) => result,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
            _ = terminated.recv() => anyhow::bail!("terminated"),
        }
    })
}

#[expect(clippy::print_stdout, reason = "says loudly what was left out")]
async fn run(wanted: &[String]) -> Result<ExitCode> {
    let assets = Assets::find()?;
    if assets.crd.is_none() {
        println!(
            "{0}\nNO CURRENT API SERVER: the scenarios of 1.36 ARE LEFT OUT; \
             run .ci/upstreams or set KUBE_FANOUT_CRD_ASSETS\n{0}",
            "!".repeat(100)
        );
    }
    let folder = tempfile::Builder::new().prefix("conformance").tempdir()?;
    let report = RefCell::new(Report::default());
    let started = Instant::now();
    let world = start(&assets, folder.path()).await?;
    println!("servers and gateways are up after {:.1} s", started.elapsed().as_secs_f64());

    Box::pin(scenarios(Chosen { report: &report, words: wanted }, world, &assets)).await;
    let is_equal = report.borrow().print();
    if !is_equal {
        // The logs show what happened.
        println!("logs: {}", folder.keep().display());
    }
    println!("{:.0} s in all", started.elapsed().as_secs_f64());
    Ok(if is_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the selected scenarios. Those that change the state of the servers come last.
async fn scenarios(chosen: Chosen<'_>, mut world: World, assets: &Assets) {
    let World { certificates, full, crd } = &mut world;
    // In the names of their scenarios: server and version.
    let builtin = full.server.version.clone();
    let custom = crd.as_ref().map(Side::name).unwrap_or_default();
    if let Some(crd) = crd {
        // Uses the roles of the other server, where they change soon.
        chosen.run(format!("identity, matrix {custom}"), identity::custom(full, crd, certificates)).await;
    }
    let on_full = async {
        chosen.run(format!("identity, matrix {builtin}"), identity::matrix(full, certificates)).await;
        chosen.run(format!("identity, forgeries {builtin}"), identity::forgeries(full, certificates)).await;
        chosen.run(format!("identity, reviews {builtin}"), identity::reviews(full, certificates)).await;
        chosen.run(format!("identity, rotation {builtin}"), identity::rotation(full, certificates)).await;
        chosen.run(format!("identity, misplaced {builtin}"), identity::misplaced(full, certificates)).await;
        chosen.run(format!("reads {builtin}"), reads::builtin(full)).await;
        chosen.run(format!("watches {builtin}"), watches::builtin(full)).await;
        if full.server.has_watch_list {
            chosen.run(format!("most recent {builtin}"), watches::most_recent(full)).await;
        }
        chosen.run(format!("paging {builtin}"), paging::run(full)).await;
        chosen.run(format!("informers {builtin}"), Box::pin(informers::builtin(full))).await;
        chosen.run(format!("bodies {builtin}"), bodies::run(full)).await;
        chosen.run(format!("representations {builtin}"), representations::builtin(full)).await;
        chosen.run(format!("tables {builtin}"), printed::run(full)).await;
        chosen.run(format!("kubectl, {builtin}"), kubectl::run(full, &assets.full.join("kubectl"))).await;
        if let Some(assets) = &assets.crd {
            chosen.run(format!("kubectl of {custom}, {builtin}"), kubectl::run(full, &assets.join("kubectl"))).await;
        }
        // Its objects remain.
        let kubectls: Vec<_> =
            [&assets.full].into_iter().chain(&assets.crd).map(|folder| folder.join("kubectl")).collect();
        chosen.run(format!("large {builtin}"), large::run(full, certificates, &kubectls)).await;
        chosen.run(format!("crowd {builtin}"), crowd::run(full)).await;
        chosen.run(format!("hostile {builtin}"), hostile::run(full, certificates)).await;
    };
    let on_crd = async {
        let Some(crd) = crd else { return };
        chosen.run(format!("reads {custom}"), reads::custom(crd)).await;
        chosen.run(format!("watches {custom}"), watches::custom(crd)).await;
        chosen.run(format!("most recent {custom}"), watches::most_recent(crd)).await;
        chosen.run(format!("paging {custom}"), paging::run(crd)).await;
        chosen.run(format!("informers {custom}"), informers::custom(crd)).await;
        chosen.run(format!("representations {custom}"), representations::custom(crd)).await;
        chosen.run(format!("tables {custom}"), tables::run(crd)).await;
        chosen.run(format!("redefined {custom}"), definitions::redefined(crd)).await;
        chosen.run(format!("restored {custom}"), definitions::restored(crd)).await;
    };
    Box::pin(future::join(on_full, on_crd)).await;
    Box::pin(one_by_one(chosen, world)).await;
}

/// The scenarios that kill a server, or need a quiet one. The server of custom resources delegates authentication to
/// the other one.
async fn one_by_one(chosen: Chosen<'_>, mut world: World) {
    let World { certificates, full, crd } = &mut world;
    let builtin = full.server.version.clone();
    let custom = crd.as_ref().map(Side::name).unwrap_or_default();
    chosen.run(format!("own writes {builtin}"), own_writes::builtin(full, certificates)).await;
    if let Some(crd) = crd {
        chosen.run(format!("own writes {custom}"), own_writes::custom(crd, certificates)).await;
    }
    chosen.run(format!("resumes {builtin}"), resumes::builtin(full, certificates)).await;
    chosen.run(format!("before the fill {builtin}"), before_fill::run(full, certificates)).await;
    if let Some(crd) = crd {
        chosen.run(format!("resumes {custom}"), resumes::custom(crd, certificates)).await;
    }
    chosen.run(format!("verified {builtin}"), verified::run(full, certificates)).await;
    // Needs watch-list.
    if full.server.has_watch_list {
        chosen.run(format!("peers {builtin}"), peers::run(full, certificates)).await;
    }
    chosen.run(format!("bridge {builtin}"), bridge::builtin(full, certificates)).await;
    if let Some(crd) = crd {
        chosen.run(format!("bridge {custom}"), bridge::custom(crd, certificates)).await;
        chosen.run(format!("rollouts {custom}"), rollouts::custom(crd, certificates)).await;
    }
    chosen.run(format!("rollouts {builtin}"), rollouts::builtin(full, certificates)).await;
    chosen.run(format!("failover {builtin}"), failover::run(full, certificates)).await;
    chosen.run(format!("storm {builtin}"), storm::run(full)).await;
}

impl Chosen<'_> {
    /// Runs a scenario if it is wanted.
    async fn run(self, name: String, scenario: impl Future<Output = Result<Tally>>) {
        if !self.words.is_empty() && !self.words.iter().any(|word| name.contains(word.as_str())) {
            return;
        }
        let started = Instant::now();
        let tally = scenario.await.unwrap_or_else(|error| Tally::failed(&error));
        self.report.borrow_mut().add(&name, tally, started.elapsed().as_secs_f64());
    }
}

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
    let gateway = Gateway::start("gateway-full", &full, &certificates, folder).await?;
    let full = Side { server: full, gateway };
    let Some(mut crd) = crd else { return Ok(World { certificates, full, crd: None }) };
    crd.ready().await?;
    objects::define(&crd.endpoint, true).await?;
    objects::seed_custom(&crd.endpoint).await?;
    let gateway = Gateway::start("gateway-crd", &crd, &certificates, folder).await?;
    Ok(World { certificates, full, crd: Some(Side { server: crd, gateway }) })
}
