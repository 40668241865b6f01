//! `kube-fanout demo`: an embedded API server with changing objects, the gateway in front of it, and its clients.

mod clients;
mod measured;

use std::{io, net::SocketAddr, time::Duration};

use futures_util::{FutureExt, future::pending};
use http::uri::InvalidUri;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use base::config::{Config, MostRecentReads, Overrides, Problems};
use base::telemetry::{self, Exposition};
use gateway::listener;
use gateway::run::{RunError, Sockets, run};
use gateway::status::{self, Savings};
use sim::{Churn, Refused, Sim, SimServer};

use clients::Clients;
pub use measured::load_demo;

/// How often the savings are printed: over the same line on a terminal, as a further line elsewhere.
const LINE_EVERY: Duration = Duration::from_secs(1);
const LINES_EVERY: Duration = Duration::from_secs(10);
/// Begins the line of a terminal anew.
const CLEAR_LINE: &str = "\r\x1b[2K";
/// When the embedded API server is first restarted, and how often after that.
const RESTART_AFTER: Duration = Duration::from_secs(30);
const RESTART_EVERY: Duration = Duration::from_secs(300);
/// How long it stays down.
const RESTART_TAKES: Duration = Duration::from_secs(1);
/// How long before that it is announced, so that this is read before the gateway's warnings.
const RESTART_ANNOUNCED: Duration = Duration::from_secs(1);
/// The maximum number of notices that wait to be printed.
const NOTICES: usize = 2;
/// What the address of a Unix socket begins with.
const SOCKET: &str = "unix:";
const RESTARTS: &str =
    "The embedded API server restarts now, as planned: its connections break, and the gateway warns of it.";
const RESTARTED: &str = "The embedded API server is back.";

/// Options of the demo.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Objects in the embedded API server.
    pub objects: usize,
    /// Changes per second.
    pub rate: f64,
    /// Watches of the demo's own clients. With 0 there are no clients, and the embedded API server is not restarted.
    pub watches: usize,
    /// Where the embedded API server listens, for other gateways and for measurements; `None`: on any free port.
    pub api_listen: Option<SocketAddr>,
    /// Where clients connect, as in the configuration's `listeners[].address`.
    pub listen: Option<String>,
    /// Where the operator connects.
    pub admin_listen: Option<String>,
    /// Whether the savings are printed over the same line, as a terminal allows.
    pub one_line: bool,
}

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("invalid address")]
    Address(#[source] Problems),
    #[error("cannot create the objects of the embedded API server")]
    Objects(#[source] Refused),
    #[error("cannot start the embedded API server")]
    Server(#[source] io::Error),
    #[error("the embedded API server or the gateway has no usable address")]
    Url(#[source] InvalidUri),
    #[error("cannot start the gateway")]
    Gateway(#[source] RunError),
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    #[error("cannot run the load")]
    Load(#[source] Box<load::LoadError>),
}

/// Runs the demo until `shutdown` resolves.
///
/// # Errors
/// An address is taken, or `out` cannot be written to.
pub async fn demo(
    options: &DemoOptions,
    out: &mut (dyn io::Write + Send),
    shutdown: impl Future<Output = ()>,
) -> Result<(), DemoError> {
    let overrides = Overrides {
        listen: options.listen.clone(),
        admin_listen: options.admin_listen.clone(),
        ..Overrides::default()
    };
    let mut config = Config::defaults(&overrides).map_err(DemoError::Address)?;
    config.reads.most_recent = MostRecentReads::Auto;
    let exposition = telemetry::install().map_err(|error| DemoError::Gateway(RunError::Metrics(error)))?;
    let (gateway, admin) = (&config.listeners[0], config.admin.listener());
    let bound = listener::bind(gateway).await.map_err(|error| DemoError::Gateway(RunError::Bind(error)))?;
    let admin = listener::bind(&admin).await.map_err(|error| DemoError::Gateway(RunError::Bind(error)))?;

    let sim = Sim::new();
    let nodes = sim.populate(options.objects).map_err(DemoError::Objects)?;
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut server = sim.start_at(options.api_listen.unwrap_or(any)).await.map_err(DemoError::Server)?;
    let upstream = kube_client::Config::new(server.url().parse().map_err(DemoError::Url)?);
    let (gateway, admin_address) = (bound.address().to_string(), admin.address().to_string());
    introduce(options, &gateway, &admin_address, out).map_err(DemoError::Output)?;
    // The demo's clients do not use Unix sockets.
    let watches = if gateway.starts_with(SOCKET) { 0 } else { options.watches };
    let url = if watches == 0 { server.url() } else { format!("http://{gateway}") };
    let clients = Clients::new(&url, watches, nodes).map_err(DemoError::Url)?;

    let sockets = Sockets { upstream: None, listeners: vec![bound], admin: Some((admin, exposition.clone())) };
    let (notices, announced) = mpsc::channel(NOTICES);
    // The demo's clients go first: none is left that connects again while the gateway drains.
    let stopping = CancellationToken::new();
    let clients = stopping.clone().run_until_cancelled_owned(clients.run()).then(|_| pending());
    let shutdown = async move {
        shutdown.await;
        stopping.cancel();
    };
    tokio::select! {
        drained = run(&config, &upstream, sockets, shutdown) => drained.map(drop).map_err(DemoError::Gateway),
        () = Churn::new(&sim).run(options.rate) => Ok(()),
        () = clients => Ok(()),
        restarted = restart(&mut server, watches > 0, &notices) => restarted.map_err(DemoError::Server),
        shown = show(&exposition, options.one_line, announced, out) => shown.map_err(DemoError::Output),
    }
}

fn introduce(options: &DemoOptions, gateway: &str, admin: &str, out: &mut (dyn io::Write + Send)) -> io::Result<()> {
    let DemoOptions { objects, rate, watches, .. } = options;
    writeln!(
        out,
        "An embedded API server holds {objects} objects; {rate} of them change each second.\n\
         kube-fanout runs in front of it (with reads.mostRecent: auto), for clients with {watches} watches. At times \
         all of them list again, or the API server restarts.\n",
    )?;
    if admin.starts_with(SOCKET) {
        writeln!(out, "  kube-fanout status --watch --admin {admin}    shows the savings")?;
    } else {
        let or = format!("kube-fanout status --watch --admin http://{admin}");
        writeln!(out, "  http://{admin}/    shows the savings; or: {or}")?;
    }
    match gateway.strip_prefix(SOCKET) {
        // kubectl connects to no sockets.
        Some(path) => writeln!(
            out,
            "  {gateway}    serves clients:\n      \
             curl --unix-socket {path} 'http://localhost/api/v1/pods?resourceVersion=0'\n"
        ),
        None => writeln!(
            out,
            "  http://{gateway}/    serves clients:\n      \
             kubectl --server=http://{gateway} get pods -A\n      \
             kubectl --server=http://{gateway} get pods -A -w -o name\n",
        ),
    }
}

/// Restarts the embedded API server at intervals, which breaks all its connections.
async fn restart(server: &mut SimServer, restarts: bool, notices: &Sender<&'static str>) -> io::Result<()> {
    if !restarts {
        return pending().await;
    }
    let mut pause = RESTART_AFTER;
    loop {
        sleep(pause).await;
        // Sent in vain only when the demo ends.
        notices.send(RESTARTS).await.ok();
        sleep(RESTART_ANNOUNCED).await;
        server.kill().await;
        sleep(RESTART_TAKES).await;
        server.start_again().await?;
        notices.send(RESTARTED).await.ok();
        pause = RESTART_EVERY;
    }
}

/// Prints the savings so far, and the notices as lines that stay, until writing fails.
async fn show(
    exposition: &Exposition,
    one_line: bool,
    mut notices: Receiver<&'static str>,
    out: &mut (dyn io::Write + Send),
) -> io::Result<()> {
    let mut ticks = interval(if one_line { LINE_EVERY } else { LINES_EVERY });
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let clear = if one_line { CLEAR_LINE } else { "" };
        tokio::select! {
            Some(notice) = notices.recv() => writeln!(out, "{clear}{notice}")?,
            _ = ticks.tick() => {
                let line = line(&status::savings(&exposition.read()));
                write!(out, "{clear}{line}{}", if one_line { "" } else { "\n" })?;
            }
        }
        out.flush()?;
    }
}

fn line(savings: &Savings) -> String {
    let Savings { watchers, upstream_watches, gets, lists, events_sent, .. } = savings;
    let reads = gets + lists;
    let seconds = savings.estimated_api_server_cpu_seconds;
    format!(
        "{watchers} watches here, {upstream_watches} at the API server; {reads} reads from memory, {events_sent} \
         events; about {seconds:.1} s of its CPU saved"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_restart_is_announced_on_lines_that_stay() {
        let mut server = Sim::new().start().await.unwrap();
        let (exposition, (notices, announced)) = (telemetry::install().unwrap(), mpsc::channel(NOTICES));
        let mut out = Vec::new();
        let seen = async {
            let (before, after) = (RESTART_AFTER + RESTART_ANNOUNCED, RESTART_TAKES + LINE_EVERY);
            tokio::select! {
                restarted = restart(&mut server, true, &notices) => restarted,
                () = sleep(before + after) => Ok(()),
            }
        };
        tokio::select! {
            shown = show(&exposition, true, announced, &mut out) => shown.unwrap(),
            seen = seen => seen.unwrap(),
        }
        let text = String::from_utf8(out).unwrap();
        let [restarts, restarted] = [RESTARTS, RESTARTED].map(|notice| text.find(&format!("{CLEAR_LINE}{notice}\n")));
        assert!(restarts.is_some() && restarts < restarted, "{text}");
    }

    #[test]
    fn what_is_told_to_be_typed_works_with_the_addresses() {
        let options = DemoOptions {
            objects: 1,
            rate: 1.0,
            watches: 1,
            api_listen: None,
            listen: None,
            admin_listen: None,
            one_line: true,
        };
        let told = |gateway, admin| {
            let mut out = Vec::new();
            introduce(&options, gateway, admin, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let text = told("127.0.0.1:8001", "127.0.0.1:9090");
        assert!(
            text.contains("\n  http://127.0.0.1:9090/    shows") && text.contains("--admin http://127.0.0.1:9090\n"),
            "{text}"
        );
        assert!(text.contains("\n      kubectl --server=http://127.0.0.1:8001 get pods -A\n"), "{text}");
        let text = told("unix:/run/gateway", "unix:/run/admin");
        assert!(!text.contains("http://unix") && !text.contains("kubectl"), "{text}");
        assert!(
            text.contains("--admin unix:/run/admin ") && text.contains("curl --unix-socket /run/gateway '"),
            "{text}"
        );
    }

    #[test]
    fn the_line_shows_the_savings() {
        let savings = Savings {
            watchers: 300,
            upstream_watches: 5,
            gets: 2,
            lists: 40,
            events_sent: 1_000,
            estimated_api_server_cpu_seconds: 12.34,
            ..Savings::default()
        };
        let expected =
            "300 watches here, 5 at the API server; 42 reads from memory, 1000 events; about 12.3 s of its CPU saved";
        assert_eq!(line(&savings), expected);
    }
}
