//! `kube-fanout demo`: the embedded API server with objects that change, and the gateway before it.

use std::{io, time::Duration};

use http::uri::InvalidUri;
use tokio::time::interval;

use crate::config::{Config, MostRecentReads, Overrides, Problems};
use crate::listener;
use crate::run::{RunError, Sockets, run};
use crate::sim::{Churn, Refused, Sim, SimServer};
use crate::telemetry::{self, Exposition};

/// How often the line of counters is written anew.
const COUNTERS_EVERY: Duration = Duration::from_secs(1);

/// What the demo is started with.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Objects in the embedded API server.
    pub objects: usize,
    /// Changes a second.
    pub rate: f64,
    /// Where clients connect; as the configuration's `listeners[].address`.
    pub listen: Option<String>,
    /// Where the operator connects.
    pub admin_listen: Option<String>,
    /// The counters take one line that is written over, as a terminal can.
    pub one_line: bool,
}

/// Why the demo could not be shown.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("an address cannot be used")]
    Address(#[source] Problems),
    #[error("the embedded API server could not be filled")]
    Objects(#[source] Refused),
    #[error("the embedded API server could not listen")]
    Server(#[source] io::Error),
    #[error("the embedded API server has no address")]
    Url(#[source] InvalidUri),
    #[error("the gateway could not be started")]
    Gateway(#[source] RunError),
    #[error("nothing could be written")]
    Output(#[source] io::Error),
}

/// Shows the gateway at work until `shutdown` resolves.
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
    sim.populate(options.objects).map_err(DemoError::Objects)?;
    let server = sim.start().await.map_err(DemoError::Server)?;
    let upstream = kube_client::Config::new(server.url().parse().map_err(DemoError::Url)?);
    introduce(options, &server, (&bound.address().to_string(), &admin.address().to_string()), out)
        .map_err(DemoError::Output)?;

    let sockets = Sockets { listeners: vec![bound], admin: Some((admin, exposition.clone())) };
    tokio::select! {
        drained = run(&config, &upstream, sockets, shutdown) => drained.map(drop).map_err(DemoError::Gateway),
        () = Churn::new(&sim).run(options.rate) => Ok(()),
        shown = show_counters(&sim, &exposition, options.one_line, out) => shown.map_err(DemoError::Output),
    }
}

fn introduce(
    options: &DemoOptions,
    server: &SimServer,
    (gateway, admin): (&str, &str),
    out: &mut (dyn io::Write + Send),
) -> io::Result<()> {
    let DemoOptions { objects, rate, .. } = options;
    writeln!(
        out,
        "An embedded API server (in memory, at {}) holds {objects} objects, {rate} of which change each second.\n\
         The gateway before it listens on http://{gateway}. Try:\n\n  \
         kubectl --server=http://{gateway} get pods -A\n  \
         kubectl --server=http://{gateway} get pods -A -w -o name\n  \
         curl http://{admin}/metrics\n",
        server.url(),
    )
}

/// What has happened so far, until writing fails.
async fn show_counters(
    sim: &Sim,
    exposition: &Exposition,
    one_line: bool,
    out: &mut (dyn io::Write + Send),
) -> io::Result<()> {
    let mut ticks = interval(COUNTERS_EVERY);
    loop {
        ticks.tick().await;
        let (text, counts) = (exposition.render(), sim.counts());
        let requests = |outcome: &str| sum(&text, "kube_fanout_requests_total", &format!("outcome=\"{outcome}\""));
        let line = format!(
            "revision {} | requests: {} from memory, {} forwarded | watchers: {} here, {} at the API server | events sent: {}",
            sim.revision(),
            requests("served"),
            requests("forwarded"),
            sum(&text, "kube_fanout_watchers", ""),
            counts.all_open_watches(),
            sum(&text, "kube_fanout_watch_events_sent_total", ""),
        );
        if one_line {
            write!(out, "\r\x1b[2K{line}")?
        } else {
            writeln!(out, "{line}")?
        }
        out.flush()?;
    }
}

/// The sum of a metric's series that have `label`, from the text that Prometheus reads.
fn sum(exposition: &str, metric: &str, label: &str) -> f64 {
    let series = exposition.lines().filter_map(|line| line.strip_prefix(metric));
    let values = series.filter(|rest| rest.starts_with(['{', ' ']) && rest.contains(label));
    let values = values.filter_map(|rest| rest.rsplit_once(' ')?.1.parse::<f64>().ok());
    // The sum of nothing would be printed as -0.
    values.fold(0.0, |sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_metric_and_label() {
        let text = "# HELP a x\na{o=\"served\"} 2\na{o=\"served\",v=\"x\"} 3\na{o=\"other\"} 5\na_total 7\na 11\n";
        assert_eq!((sum(text, "a", "o=\"served\""), sum(text, "a", "")), (5.0, 21.0));
    }
}
