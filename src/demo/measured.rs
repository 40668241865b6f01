//! `kube-fanout load --demo`: measures the embedded API server and the gateway.

use futures_util::future::pending;

use super::DemoError;
use base::config::{Config, MostRecentReads, Overrides};
use gateway::{
    listener,
    run::{RunError, Sockets, run},
};
use load::{LoadOptions, Report, Server};
use sim::Sim;

/// Any free port of this machine.
const LISTEN: &str = "127.0.0.1:0";

/// Fills an embedded API server with about `objects` objects, puts a gateway in front of it, and measures the gateway
/// and the server in turns. All three are one process: latencies are comparable, CPU is not.
///
/// # Errors
/// The servers cannot be started, or nothing can be measured.
pub async fn load_demo(
    objects: usize,
    options: LoadOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<Report, DemoError> {
    let overrides = Overrides { listen: Some(LISTEN.to_owned()), ..Overrides::default() };
    let mut config = Config::defaults(&overrides).map_err(DemoError::Address)?;
    config.reads.most_recent = MostRecentReads::Auto;
    let bound = listener::bind(&config.listeners[0]).await;
    let bound = bound.map_err(|error| DemoError::Gateway(RunError::Bind(error)))?;
    let sim = Sim::new();
    sim.populate(objects).map_err(DemoError::Objects)?;
    let server = sim.start().await.map_err(DemoError::Server)?;
    let upstream = kube_client::Config::new(server.url().parse().map_err(DemoError::Url)?);
    let at = |url: String| Server { url: Some(url), ..Server::default() };
    let gateway = at(format!("http://{}", bound.address()));
    let options = LoadOptions { url: gateway, against: Some(at(server.url())), ..options };
    let sockets = Sockets { upstream: None, listeners: vec![bound], admin: None };
    tokio::select! {
        ended = run(&config, &upstream, sockets, pending()) => match ended {
            Err(error) => Err(DemoError::Gateway(error)),
            // The gateway is never told to stop.
            Ok(_) => pending().await,
        },
        report = Box::pin(load::load(&options, shutdown)) => report.map_err(|error| DemoError::Load(Box::new(error))),
    }
}
