//! The command line: parses arguments and calls the library.

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use base::{
    command_line::{EXIT_MISUSE, EXIT_NO, EXIT_UNREACHABLE, RUNTIME_END, print, report, without_passwords},
    config::{
        self, Checked, ClientAccess, ClientAccessError, ClientsConfig, Config, ConfigFile, LoadError, LoggingConfig,
        LoggingFormat, Overrides, PemFile, Problems, UpstreamConfig, UpstreamConfigError,
    },
    lifecycle::{self, Hangups, OnHangup},
    telemetry,
};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
#[cfg(feature = "tools")]
use kube_fanout::DemoOptions;
use kube_fanout::{Reloads, StatusError, StatusOptions};
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
    #[cfg(feature = "tools")]
    Demo(DemoArgs),
    /// Print a kubeconfig with which clients connect to the gateway instead of the API server.
    Kubeconfig(KubeconfigArgs),
    /// Print the JSON schema of the configuration file.
    Schema,
    /// Show the state and the savings of a running gateway. Exits with 3 if it is not ready.
    Status(StatusArgs),
    /// Put load on an API server or a gateway, or on two in turns, and report the results. Exits with 3 if an assertion
    /// fails.
    #[cfg(feature = "tools")]
    Load(Box<LoadCommand>),
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

#[cfg(feature = "tools")]
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

#[cfg(feature = "tools")]
#[derive(Debug, Args)]
struct LoadCommand {
    #[command(flatten)]
    load: load::command::LoadArgs,
    /// Measure an embedded gateway against the embedded API server behind it, which holds this many objects.
    #[arg(long, value_name = "OBJECTS", num_args = 0..=1, default_missing_value = "3000",
          value_parser = load::command::objects(),
          conflicts_with_all = ["url", "fallback", "against", "write_url", "kubeconfig", "against_kubeconfig",
                                "context"])]
    demo: Option<usize>,
}

/// The name by which kubectl finds the binary, and the one by which it is called then.
const KUBECTL_PLUGIN: &str = "kubectl-fanout";
const CALLED_BY_KUBECTL: &str = "kubectl fanout";
#[cfg(feature = "tools")]
const DEMO_ENDPOINTS: &str =
    "\"url\" is the gateway, \"against\" the embedded API server; both run in this process and share its CPU\n\n";
/// The maximum of changes per second in the demo.
#[cfg(feature = "tools")]
const CHANGES_MAX: f64 = 100_000.0;
/// The number of tasks that a thread polls before it looks for what has arrived from the network. Tokio's default of 61
/// is for tasks that take microseconds: where many requests of one client take a hundred each, all others wait for
/// milliseconds until they are noticed.
const TASKS_BETWEEN_EVENTS: u32 = 8;
fn main() -> ExitCode {
    let cli = parsed(std::env::args_os()).unwrap_or_else(|error| refuse(error));
    execute(cli.command).unwrap_or_else(|error| {
        // Standard error may be closed; there is no other place for it.
        io::stderr().write_all(report(&error).as_bytes()).ok();
        exit_code(&error)
    })
}

#[cfg(feature = "tools")]
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
    #[cfg(feature = "tools")]
    if let Some(code) = load::command::exit_code(cause) {
        return Some(code);
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
    let is_misuse = cause.is::<Problems>() || cause.is::<LoadError>() || cause.is::<UpstreamConfigError>();
    is_misuse.then_some(EXIT_MISUSE)
}

fn execute(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => run(args),
        #[cfg(feature = "tools")]
        Command::Demo(args) => show_demo(args),
        Command::Kubeconfig(args) => print_kubeconfig(args),
        Command::Schema => print(&format!("{:#}\n", config::schema())),
        Command::Status(args) => show_status(args),
        #[cfg(feature = "tools")]
        Command::Load(args) => put_load(*args),
        Command::Check { config, online } => check(&config, online),
    }
}

fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let RunArgs { config, kubeconfig, context, listen, admin_listen } = args;
    let overrides = Overrides { kubeconfig, context, listen, admin_listen, memory: config::memory_limit() };
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

#[cfg(feature = "tools")]
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

#[cfg(feature = "tools")]
fn put_load(args: LoadCommand) -> anyhow::Result<ExitCode> {
    let Some(objects) = args.demo else { return load::command::run(args.load) };
    load::command::run_with(args.load, DEMO_ENDPOINTS, async |options, shutdown| {
        Ok(kube_fanout::load_demo(objects, options, shutdown).await?)
    })
}

fn show_status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let StatusArgs { admin, certificate_authority, token_file, watch } = args;
    let clears = io::stdout().is_terminal();
    let options = StatusOptions { admin, certificate_authority, token_file, watch, clears };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let is_ready = runtime.block_on(kube_fanout::show_status(&options, &mut io::stdout()))?;
    Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) })
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
