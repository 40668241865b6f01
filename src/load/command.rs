//! The command line of `kube-fanout load`.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    pin::Pin,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use base::{
    command_line::{EXIT_INTERRUPTED, EXIT_MISUSE, EXIT_NO, EXIT_REFUSED, EXIT_UNREACHABLE, RUNTIME_END, print},
    config::UpstreamConfig,
    lifecycle::{self, OnHangup},
};

use crate::{self as load, LoadError, LoadOptions, Report};

/// The name of a file that stands for standard output.
const STANDARD_OUTPUT: &str = "-";

/// The arguments of the command.
#[allow(rustdoc::bare_urls, reason = "the texts are printed on terminals")]
#[derive(Debug, clap::Args)]
pub struct LoadArgs {
    /// The requests and their rates: a file, or one of kubelets, daemonsets, controllers, dashboards, restart-storm,
    /// burn-in.
    #[arg(long, value_name = "FILE|NAME")]
    profile: String,
    /// The server to measure, like https://api.example:6443 or http://127.0.0.1:8001. Default: the kubeconfig's.
    #[arg(long)]
    url: Option<String>,
    /// The kubeconfig with TLS settings and credentials for --url. Default: the one that kubectl would use.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. Default: its current context.
    #[arg(long)]
    context: Option<String>,
    /// Another address of the server of --url, like that of a second replica, for connections that the first refuses.
    /// Can be repeated.
    #[arg(long, value_name = "HOST:PORT")]
    fallback: Vec<load::Fallback>,
    /// Begin each connection at the next one of --url and --fallback, as a Service does.
    #[arg(long, requires = "fallback")]
    spread: bool,
    /// A second server to compare with, in turns.
    #[arg(long, value_name = "URL")]
    against: Option<String>,
    /// The kubeconfig for --against, if it differs from --kubeconfig; without --against, its server is the second one.
    #[arg(long, value_name = "FILE")]
    against_kubeconfig: Option<PathBuf>,
    /// The server to write changes to, with the kubeconfig of --url. Default: the server whose turn it is.
    #[arg(long, value_name = "URL")]
    write_url: Option<String>,
    /// How long to send requests to each server, like 30s or 1h. Default: the profile's duration.
    #[arg(long, value_parser = load::duration)]
    duration: Option<Duration>,
    /// The number of turns per server. Default: 1, or 3 if two servers are compared.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    turns: Option<u32>,
    /// Pods to create before the run and delete after it, in addition to the profile's.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = objects())]
    seed_objects: usize,
    /// A local process whose CPU and memory to report, like gateway=4711. Can be repeated.
    #[arg(long, value_name = "NAME=PID")]
    pid: Vec<load::Named<u32>>,
    /// A process whose CPU and memory to report from its metrics, like gateway=http://127.0.0.1:9090/metrics. Can be
    /// repeated.
    #[arg(long, value_name = "NAME=URL")]
    metrics: Vec<load::Named<String>>,
    /// A condition that the results of --url must meet: 'event.delay.p99<200ms', 'lists:latency.p99<1s', 'errors==0',
    /// APIResponsiveness. Can be repeated.
    #[arg(long, value_name = "CONDITION")]
    assert: Vec<load::Condition>,
    /// Write the report as JSON to this file, in addition to the text on standard output; - writes JSON to standard
    /// output instead.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the report as a self-contained HTML page with charts to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also put load on clusters that do not look like test clusters.
    #[arg(long)]
    i_know_this_is_a_test_cluster: bool,
}

/// The numbers of objects of `load`: those of a profile, and 0.
pub fn objects() -> clap::builder::RangedU64ValueParser<usize> {
    clap::builder::RangedU64ValueParser::new().range(0..=load::OBJECTS_MAX as u64)
}

/// Resolves when the run is to end, and the report to be written.
pub type Shutdown = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Puts the load on the servers, writes the report, and returns the exit code.
///
/// # Errors
/// The arguments are wrong, nothing could be measured, or a report cannot be written.
pub fn run(args: LoadArgs) -> anyhow::Result<ExitCode> {
    run_with(args, "", async |options, shutdown| Ok(load::load(&options, shutdown).await?))
}

/// Like [`run`], with another way to `measure`; the text of the report begins with `introduction`.
///
/// # Errors
/// As those of [`run`].
pub fn run_with(
    args: LoadArgs,
    introduction: &str,
    measure: impl AsyncFnOnce(LoadOptions, Shutdown) -> anyhow::Result<Report>,
) -> anyhow::Result<ExitCode> {
    let options = args.options()?;
    let is_json_shown = args.output.as_deref() == Some(Path::new(STANDARD_OUTPUT));
    let files = [args.output.filter(|_| !is_json_shown), args.html];
    let new_files = NewFiles::open(&files)?;
    // Each connection needs a file descriptor.
    lifecycle::raise_open_files()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let (shutdown, again) = two_signals()?;
        // Biased, so that the next signal is listened for before anything is done about the first.
        tokio::select! {
            biased;
            () = again => Err(LoadError::InterruptedAgain.into()),
            report = measure(options, Box::pin(shutdown)) => report,
        }
    });
    runtime.shutdown_timeout(RUNTIME_END);
    let report = report?;
    new_files.keep();
    write_report(&report, &files)?;
    if is_json_shown {
        let notes: String = report.notes.iter().map(|note| format!("note: {note}\n")).collect();
        io::stderr().write_all(notes.as_bytes()).ok();
        print(&json(&report)?)?;
    } else {
        print(&format!("{introduction}{}", load::text(&report)))?;
    }
    if report.interrupted {
        return Ok(ExitCode::from(EXIT_INTERRUPTED));
    }
    if !report.has_measured() {
        return Err(LoadError::NothingMeasured.into());
    }
    if !report.passed() {
        return Ok(ExitCode::from(EXIT_NO));
    }
    report.left.map_or(Ok(ExitCode::SUCCESS), |left| Err(anyhow::Error::msg(left)))
}

impl LoadArgs {
    fn options(&self) -> anyhow::Result<LoadOptions> {
        let server = |url: Option<String>| {
            let access = UpstreamConfig { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() };
            load::Server { url, access, ..load::Server::default() }
        };
        let against = match (self.against.clone(), self.against_kubeconfig.clone()) {
            (None, None) => None,
            (url, None) => Some(server(url)),
            (url, kubeconfig) => {
                let access = UpstreamConfig { kubeconfig, context: None };
                Some(load::Server { url, access, ..load::Server::default() })
            }
        };
        Ok(LoadOptions {
            profile: load::Profile::load(&self.profile)?.lasting(self.duration),
            url: load::Server { fallbacks: self.fallback.clone(), is_spread: self.spread, ..server(self.url.clone()) },
            against,
            writes: self.write_url.clone().map(|url| server(Some(url))),
            turns: self.turns.and_then(|turns| usize::try_from(turns).ok()),
            seed_objects: self.seed_objects,
            processes: self.pid.clone(),
            metrics: self.metrics.clone(),
            assertions: self.assert.clone(),
            any_cluster: self.i_know_this_is_a_test_cluster,
        })
    }
}

/// The exit code for an error of this tool; `None` for other errors, and for those without a code of their own.
pub fn exit_code(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if cause.is::<load::ProfileError>() {
        return Some(EXIT_MISUSE);
    }
    let boxed = cause.downcast_ref::<Box<LoadError>>().map(|boxed| &**boxed);
    match cause.downcast_ref::<LoadError>().or(boxed)? {
        LoadError::NotForTests(..) => Some(EXIT_REFUSED),
        LoadError::Unreachable(..)
        | LoadError::Refused(..)
        | LoadError::Foreign(..)
        | LoadError::NothingMeasured
        | LoadError::Seed { has_answer: false, .. } => Some(EXIT_UNREACHABLE),
        LoadError::InterruptedAgain => Some(EXIT_INTERRUPTED),
        LoadError::Seed { has_answer: true, .. } => None,
        LoadError::Access(..)
        | LoadError::NoKubeconfig(..)
        | LoadError::OtherCluster(..)
        | LoadError::Endpoint(_)
        | LoadError::NoUsage(_)
        | LoadError::SameProcess(_)
        | LoadError::NoCalls
        | LoadError::NoWorkload(..) => Some(EXIT_MISUSE),
    }
}

/// Empty files for a report, which are removed unless there is one.
struct NewFiles(Vec<PathBuf>);

impl NewFiles {
    /// Opens all files, so that an unwritable one is reported before the run, not after it. An existing report is kept
    /// until there is a new one.
    fn open(files: &[Option<PathBuf>]) -> anyhow::Result<Self> {
        let mut created = Self(Vec::new());
        for path in files.iter().flatten() {
            // A link counts as a file, even if it leads to none.
            let is_new = path.symlink_metadata().is_err();
            let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
            opened.with_context(|| format!("cannot write the report to {}", path.display()))?;
            created.0.extend(is_new.then(|| path.clone()));
        }
        Ok(created)
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            // If this fails, the reason of the missing report matters more.
            std::fs::remove_file(path).ok();
        }
    }
}

/// Futures that resolve at the first signal, which asks for the report so far, and at the next one: a server that does
/// not answer can hold up the deletion of objects for minutes.
fn two_signals() -> io::Result<(impl Future<Output = ()>, impl Future<Output = ()>)> {
    let first = lifecycle::shutdown_signal(OnHangup::Stop)?;
    let (came, first_came) = tokio::sync::oneshot::channel();
    let first = async move {
        first.await;
        came.send(()).ok();
    };
    let second = async move {
        // A handler sees only the signals after it.
        match first_came.await.map(|()| lifecycle::shutdown_signal(OnHangup::Stop)) {
            Ok(Ok(second)) => second.await,
            Ok(Err(_)) | Err(_) => std::future::pending().await,
        }
    };
    Ok((first, second))
}

/// Writes the files that are asked for: JSON and page. They come first, since standard output may be closed.
fn write_report(report: &Report, [output, page]: &[Option<PathBuf>; 2]) -> anyhow::Result<()> {
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).with_context(|| format!("cannot write the report to {}", path.display()))
    };
    if let Some(path) = output {
        write(path, json(report)?)?;
    }
    if let Some(path) = page {
        write(path, load::page(report))?;
    }
    Ok(())
}

fn json(report: &Report) -> anyhow::Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(report)?))
}
