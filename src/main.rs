//! The command line: parses arguments and calls the library.

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use kube_fanout::config::{
    self, Checked, ClientAccess, ClientAccessError, ClientsConfig, Config, ConfigFile, LoadError, LoggingConfig,
    LoggingFormat, Overrides, PemFile, Problems, Redacted, UpstreamConfig, UpstreamConfigError,
};
use kube_fanout::{
    DemoOptions, Reloads, StatusError, StatusOptions, lifecycle,
    lifecycle::{Hangups, OnHangup},
    load::{self, LoadOptions},
    telemetry,
};
use tracing::level_filters::LevelFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A watch cache and fan-out gateway in front of a Kubernetes API server.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway. Without --config it uses kubectl's current cluster and listens on 127.0.0.1:8001.
    Run(RunArgs),
    /// Run the gateway in front of an embedded API server with changing objects and simulated clients.
    Demo(DemoArgs),
    /// Print a kubeconfig with which clients connect to the gateway instead of the API server.
    Kubeconfig(KubeconfigArgs),
    /// Print the JSON schema of the configuration file.
    Schema,
    /// Show the state and the savings of a running gateway. Exits with 3 if it is not ready.
    Status(StatusArgs),
    /// Put load on an API server or a gateway, or on two in turns, and report the results. Exits with 3 if an assertion
    /// fails.
    Load(Box<LoadArgs>),
    /// Check a configuration and the files that it names, and list all problems.
    Check {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Also ask the API servers, as the gateway would, whether they answer, have the resources of cache.prewarm and
        /// cache.exclude, and grant the rights that the gateway needs.
        #[arg(long)]
        online: bool,
    },
}

#[derive(Debug, Args)]
struct RunArgs {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The kubeconfig of the API server. Default: the one that kubectl would use.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. Default: its current context.
    #[arg(long)]
    context: Option<String>,
    /// The address to listen on in plain HTTP, like 127.0.0.1:8001 or unix:/run/gateway; replaces the configuration's
    /// listeners.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The address to serve health, metrics and the status page on. Default: the configuration's, or 127.0.0.1:9090.
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
}

#[derive(Debug, Args)]
struct DemoArgs {
    /// Number of objects in the embedded API server.
    #[arg(long, default_value_t = 3000)]
    objects: usize,
    /// Changes of objects per second.
    #[arg(long, default_value_t = 20.0, value_parser = changes_per_second)]
    rate: f64,
    /// Number of watches of the simulated clients; 0 for no clients.
    #[arg(long, default_value_t = 300)]
    watches: usize,
    /// The address of the embedded API server, for other gateways and for measurements. Default: a free port.
    #[arg(long, value_name = "IP:PORT")]
    api_listen: Option<std::net::SocketAddr>,
    /// The address on which the gateway serves clients. Default: 127.0.0.1:8001.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The address to serve health, metrics and the status page on. Default: 127.0.0.1:9090.
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
}

#[derive(Debug, Args)]
struct KubeconfigArgs {
    /// The gateway's URL. With https, the user and the namespace of a kubeconfig are included. Default: the listener of
    /// --config, or http://127.0.0.1:8001.
    #[arg(long, value_name = "URL")]
    server: Option<http::Uri>,
    /// The certificate authority of the gateway, in PEM. Default: those that the clients' systems trust.
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// The configuration file of the gateway, for the address to connect to. With `clients.mode: trusted` in it, no
    /// user is included.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The kubeconfig whose user is included. Default: the one that kubectl would use.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. Default: its current context.
    #[arg(long)]
    context: Option<String>,
}

#[derive(Debug, Args)]
struct StatusArgs {
    /// The gateway's admin port: a URL, HOST:PORT, a port of this machine, or unix:/PATH.
    #[arg(long, value_name = "ADDRESS", default_value = "http://127.0.0.1:9090")]
    admin: String,
    /// The certificate authority of the admin port, in PEM. Default: those that the system trusts.
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// A file with a bearer token; needed if the gateway has admin.metricsAuthorization: delegated.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Repeat every two seconds until interrupted.
    #[arg(long, short)]
    watch: bool,
}

#[derive(Debug, Args)]
struct LoadArgs {
    /// The requests and their rates: a file, or one of kubelets, daemonsets, controllers, dashboards, restart-storm,
    /// burn-in.
    #[arg(long, value_name = "FILE|NAME")]
    profile: String,
    /// Measure an embedded gateway against the embedded API server behind it, which holds this many objects.
    #[arg(long, value_name = "OBJECTS", num_args = 0..=1, default_missing_value = "3000", value_parser = objects(),
          conflicts_with_all = ["url", "fallback", "against", "write_url", "kubeconfig", "against_kubeconfig",
                                "context"])]
    demo: Option<usize>,
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

/// The name by which kubectl finds the binary, and the one by which it is called then.
const KUBECTL_PLUGIN: &str = "kubectl-fanout";
const CALLED_BY_KUBECTL: &str = "kubectl fanout";
/// The name of a file that stands for standard output.
const STANDARD_OUTPUT: &str = "-";
const DEMO_ENDPOINTS: &str =
    "\"url\" is the gateway, \"against\" the embedded API server; both run in this process and share its CPU";
/// The maximum of changes per second in the demo.
const CHANGES_MAX: f64 = 100_000.0;
/// The exit codes, the same for all subcommands, as the manual's chapter `operations` describes them. Arguments, a
/// configuration or a profile are wrong; also the code of clap.
const EXIT_MISUSE: u8 = 2;
/// The answer is no: an assertion of `load` fails, or the gateway of `status` is not ready.
const EXIT_NO: u8 = 3;
/// `load` may not be put on the cluster.
const EXIT_REFUSED: u8 = 4;
/// No server, or no gateway, answers.
const EXIT_UNREACHABLE: u8 = 5;
/// `load` was interrupted: as the shell counts a SIGINT.
const EXIT_INTERRUPTED: u8 = 130;
/// The number of tasks that a thread polls before it looks for what has arrived from the network. Tokio's default of 61
/// is for tasks that take microseconds: where many requests of one client take a hundred each, all others wait for
/// milliseconds until they are noticed.
const TASKS_BETWEEN_EVENTS: u32 = 8;
/// The maximum time for blocking calls at the end, so that a resolver that does not answer does not keep the process
/// alive.
const RUNTIME_END: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = parsed(std::env::args_os()).unwrap_or_else(|error| refuse(error));
    execute(cli.command).unwrap_or_else(|error| {
        // Standard error may be closed; there is no other place for it.
        io::stderr().write_all(report(&error).as_bytes()).ok();
        exit_code(&error)
    })
}

/// The numbers of objects of `load`: those of a profile, and 0.
fn objects() -> clap::builder::RangedU64ValueParser<usize> {
    clap::builder::RangedU64ValueParser::new().range(0..=load::OBJECTS_MAX as u64)
}

fn changes_per_second(text: &str) -> Result<f64, &'static str> {
    let rate = text.parse().ok().filter(|rate| (0.0..=CHANGES_MAX).contains(rate));
    rate.ok_or("allowed: a number from 0 to 100000")
}

/// The command line. As a plug-in of kubectl the binary has another name, and is called by another one.
fn parsed(arguments: std::env::ArgsOs) -> Result<Cli, clap::Error> {
    let arguments: Vec<_> = arguments.collect();
    let name = arguments.first().and_then(|path| Path::new(path).file_stem());
    let command = if name.is_some_and(|name| name == KUBECTL_PLUGIN) {
        Cli::command().name(CALLED_BY_KUBECTL).bin_name(CALLED_BY_KUBECTL)
    } else {
        Cli::command()
    };
    let matches = command.clone().try_get_matches_from(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command.clone()))
}

/// A text without the passwords of URLs among the arguments, which many errors quote: as the name of a file, for
/// example.
fn without_passwords(text: String) -> String {
    let arguments = std::env::args_os().filter_map(|argument| argument.into_string().ok());
    arguments.fold(text, |text, argument| {
        let values = [Some(argument.as_str()), argument.split_once('=').map(|(_, value)| value)];
        values
            .into_iter()
            .flatten()
            .filter(|value| may_have_password(value))
            .fold(text, |text, value| text.replace(value, &Redacted::text(value).to_string()))
    })
}

fn may_have_password(text: &str) -> bool {
    text.rsplit_once('@').is_some_and(|(before, _)| before.contains(':'))
}

/// Says what is wrong with the arguments, and ends the process. clap quotes what it cannot use.
fn refuse(error: clap::Error) -> ! {
    let said = error.render().to_string();
    let bare = without_passwords(said.clone());
    if bare == said {
        error.exit();
    }
    io::stderr().write_all(bare.as_bytes()).ok();
    std::process::exit(error.exit_code());
}

/// The exit code for an error, by the first of its causes that has one.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    error.chain().find_map(code_of).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn code_of(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    let boxed = cause.downcast_ref::<Box<load::LoadError>>().map(|boxed| &**boxed);
    if let Some(error) = cause.downcast_ref::<load::LoadError>().or(boxed) {
        return match error {
            load::LoadError::NotForTests(..) => Some(EXIT_REFUSED),
            load::LoadError::Unreachable(..)
            | load::LoadError::Refused(..)
            | load::LoadError::Foreign(..)
            | load::LoadError::NothingMeasured
            | load::LoadError::Seed { has_answer: false, .. } => Some(EXIT_UNREACHABLE),
            load::LoadError::InterruptedAgain => Some(EXIT_INTERRUPTED),
            load::LoadError::Seed { has_answer: true, .. } => None,
            load::LoadError::Access(..)
            | load::LoadError::NoKubeconfig(..)
            | load::LoadError::OtherCluster(..)
            | load::LoadError::Endpoint(_)
            | load::LoadError::NoUsage(_)
            | load::LoadError::SameProcess(_)
            | load::LoadError::NoCalls
            | load::LoadError::NoWorkload(..) => Some(EXIT_MISUSE),
        };
    }
    if let Some(error) = cause.downcast_ref::<StatusError>() {
        return match error {
            StatusError::Unreachable(..)
            | StatusError::Tls(..)
            | StatusError::NeedsTls(_)
            | StatusError::TimedOut(..) => Some(EXIT_UNREACHABLE),
            StatusError::Address(..)
            | StatusError::UserInfo(_)
            | StatusError::ReadAuthority(_)
            | StatusError::Authority(_)
            | StatusError::NoAuthorities(..)
            | StatusError::Connection(_)
            | StatusError::Token(_) => Some(EXIT_MISUSE),
            StatusError::Refused(..)
            | StatusError::NotFound(..)
            | StatusError::NotStatus(..)
            | StatusError::Output(_) => None,
        };
    }
    if let Some(error) = cause.downcast_ref::<ClientAccessError>() {
        return (!matches!(error, ClientAccessError::Write(_))).then_some(EXIT_MISUSE);
    }
    let is_misuse = cause.is::<Problems>()
        || cause.is::<LoadError>()
        || cause.is::<UpstreamConfigError>()
        || cause.is::<load::ProfileError>();
    is_misuse.then_some(EXIT_MISUSE)
}

/// An error with its causes, without the backtrace that anyhow adds: it is about a configuration or a machine.
fn report(error: &anyhow::Error) -> String {
    let causes: Vec<_> = error.chain().skip(1).map(|cause| cause.to_string().replace('\n', "\n    ")).collect();
    without_passwords(match &causes[..] {
        [] => format!("Error: {error}\n"),
        causes => format!("Error: {error}\n\nCaused by:\n    {}\n", causes.join("\n    ")),
    })
}

fn execute(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => run(args),
        Command::Demo(args) => show_demo(args),
        Command::Kubeconfig(args) => print_kubeconfig(args),
        Command::Schema => print(&format!("{:#}\n", config::schema())),
        Command::Status(args) => show_status(args),
        Command::Load(args) => put_load(*args),
        Command::Check { config, online } => check(&config, online),
    }
}

fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let RunArgs { config, kubeconfig, context, listen, admin_listen } = args;
    let overrides = Overrides { kubeconfig, context, listen, admin_listen };
    let (file, config) = match config {
        Some(path) => ConfigFile::load(path, overrides).map(|(file, config)| (Some(file), config))?,
        None => (None, Config::defaults(&overrides).map_err(LoadError::Invalid)?),
    };
    let log = init_logging(config.logging)?;
    let served = serve(&config, file, log.level());
    Ok(told(&log, served))
}

fn serve(config: &Config, file: Option<ConfigFile>, level: telemetry::LogLevel) -> anyhow::Result<()> {
    let open_files = lifecycle::raise_open_files()?;
    tracing::debug!(open_files, "raised the limit of open files");
    run_to_end(async {
        let shutdown = lifecycle::shutdown_signal(if file.is_some() { OnHangup::Reload } else { OnHangup::Stop })?;
        let reloads = match file {
            Some(file) => Some(Reloads { file, hangups: Hangups::listen()?, level }),
            None => None,
        };
        kube_fanout::run_config(config, reloads, shutdown).await?;
        Ok(())
    })
}

fn show_demo(args: DemoArgs) -> anyhow::Result<ExitCode> {
    let DemoArgs { objects, rate, watches, api_listen, listen, admin_listen } = args;
    let one_line = io::stdout().is_terminal();
    let options = DemoOptions { objects, rate, watches, api_listen, listen, admin_listen, one_line };
    let log = telemetry::init_logging(telemetry::LogFormat::Text, LevelFilter::WARN)?;
    // Each watch of the demo's clients needs two file descriptors.
    lifecycle::raise_open_files()?;
    let shown = run_to_end(async {
        let shutdown = lifecycle::shutdown_signal(OnHangup::Stop)?;
        kube_fanout::demo(&options, &mut io::stdout(), shutdown).await?;
        Ok(())
    });
    Ok(told(&log, shown))
}

fn show_status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let StatusArgs { admin, certificate_authority, token_file, watch } = args;
    let clears = io::stdout().is_terminal();
    let options = StatusOptions { admin, certificate_authority, token_file, watch, clears };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let is_ready = runtime.block_on(kube_fanout::show_status(&options, &mut io::stdout()))?;
    Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) })
}

fn put_load(args: LoadArgs) -> anyhow::Result<ExitCode> {
    let server = |url: Option<String>| {
        let access = UpstreamConfig { kubeconfig: args.kubeconfig.clone(), context: args.context.clone() };
        load::Server { url, access, fallbacks: Vec::new() }
    };
    let against = match (args.against.clone(), args.against_kubeconfig.clone()) {
        (None, None) => None,
        (url, None) => Some(server(url)),
        (url, kubeconfig) => {
            Some(load::Server { url, access: UpstreamConfig { kubeconfig, context: None }, fallbacks: Vec::new() })
        }
    };
    let options = LoadOptions {
        profile: load::Profile::load(&args.profile)?.lasting(args.duration),
        url: load::Server { fallbacks: args.fallback, ..server(args.url.clone()) },
        against,
        writes: args.write_url.clone().map(|url| server(Some(url))),
        turns: args.turns.and_then(|turns| usize::try_from(turns).ok()),
        seed_objects: args.seed_objects,
        processes: args.pid,
        metrics: args.metrics,
        assertions: args.assert,
        any_cluster: args.i_know_this_is_a_test_cluster,
    };
    let is_json_shown = args.output.as_deref() == Some(Path::new(STANDARD_OUTPUT));
    let files = [args.output.filter(|_| !is_json_shown), args.html];
    let new_files = NewFiles::open(&files)?;
    // Each connection needs a file descriptor.
    lifecycle::raise_open_files()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let (shutdown, again) = two_signals()?;
        let measured = async {
            anyhow::Ok(match args.demo {
                Some(objects) => kube_fanout::load_demo(objects, options, shutdown).await?,
                None => load::load(&options, shutdown).await?,
            })
        };
        // Biased, so that the next signal is listened for before anything is done about the first.
        tokio::select! {
            biased;
            () = again => Err(load::LoadError::InterruptedAgain.into()),
            report = measured => report,
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
        let text = load::text(&report);
        print(&if args.demo.is_some() { format!("{DEMO_ENDPOINTS}\n\n{text}") } else { text })?;
    }
    if report.interrupted {
        return Ok(ExitCode::from(EXIT_INTERRUPTED));
    }
    if !report.has_measured() {
        return Err(load::LoadError::NothingMeasured.into());
    }
    if !report.passed() {
        return Ok(ExitCode::from(EXIT_NO));
    }
    report.left.map_or(Ok(ExitCode::SUCCESS), |left| Err(anyhow::Error::msg(left)))
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

/// Writes the files that are asked for: JSON, page. They come first, since standard output may be closed.
fn write_report(report: &load::Report, [output, page]: &[Option<PathBuf>; 2]) -> anyhow::Result<()> {
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

fn json(report: &load::Report) -> anyhow::Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(report)?))
}

fn run_to_end(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.enable_all().event_interval(TASKS_BETWEEN_EVENTS).build()?;
    let ended = runtime.block_on(work);
    runtime.shutdown_timeout(RUNTIME_END);
    ended
}

/// Reports through the log why the process ends: writing to standard error directly may block on a pipe that is not
/// read.
fn told(log: &telemetry::Log, ended: anyhow::Result<()>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log.print(&report(&error));
            exit_code(&error)
        }
    }
}

fn init_logging(config: LoggingConfig) -> anyhow::Result<telemetry::Log> {
    let format = match config.format {
        LoggingFormat::Text => telemetry::LogFormat::Text,
        LoggingFormat::Json => telemetry::LogFormat::Json,
    };
    Ok(telemetry::init_logging(format, config.level)?)
}

fn print_kubeconfig(args: KubeconfigArgs) -> anyhow::Result<ExitCode> {
    let KubeconfigArgs { server, certificate_authority, config, kubeconfig, context } = args;
    let certificate_authority = certificate_authority.map(PemFile);
    let config = match config {
        None => None,
        Some(path) => Some(ConfigFile::load(path, Overrides::default())?.1),
    };
    let is_trusted = config.as_ref().map(|config| matches!(config.clients, ClientsConfig::Trusted(_)));
    let server = match (server, config) {
        (Some(server), _) => server,
        (None, Some(config)) => config.client_url()?,
        (None, None) => Config::defaults(&Overrides::default()).map_err(LoadError::Invalid)?.client_url()?,
    };
    let user_of = UpstreamConfig { kubeconfig, context };
    let access = ClientAccess { server, certificate_authority, is_trusted, user_of };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    print(&runtime.block_on(access.kubeconfig())?)
}

/// Prints to standard output, whose reader may have closed it.
fn print(text: &str) -> anyhow::Result<ExitCode> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn check(path: &Path, online: bool) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let file = without_passwords(path.display().to_string());
    let (problems, notes) = match runtime.block_on(checked(path, online))? {
        Ok(checked) => (checked.problems(), checked.notes()),
        Err(LoadError::Invalid(Problems(problems))) => (problems, Vec::new()),
        Err(unread @ LoadError::Read { .. }) => return Err(unread.into()),
    };
    let notes: String = notes.iter().map(|note| format!("{file}: note: {note}\n")).collect();
    if problems.is_empty() {
        return print(&format!("{notes}{file}: no problems\n"));
    }
    print(&notes)?;
    for problem in problems {
        writeln!(io::stderr(), "{file}: {problem}")?;
    }
    Ok(ExitCode::from(EXIT_MISUSE))
}

async fn checked(path: &Path, online: bool) -> anyhow::Result<Result<Checked, LoadError>> {
    let mut checked = match Config::check(path).await {
        Ok(checked) if online && checked.problems().is_empty() => checked,
        checked => return Ok(checked),
    };
    let kube_fanout::LookedUp { problems, notes } = kube_fanout::look_up(&checked.config).await?;
    checked.add(problems, notes);
    Ok(Ok(checked))
}
