//! `kube-fanout-sim`: the embedded API server alone, for other gateways and for measurements.

use std::net::SocketAddr;

use anyhow::Context;
use clap::Parser;
use kube_fanout_sim::{Churn, Sim};

/// Serve an API server that is kept in memory, with changing objects, until interrupted. No authentication, no TLS.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// The address to listen on.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8002")]
    listen: SocketAddr,
    /// Number of objects.
    #[arg(long, default_value_t = 3000)]
    objects: usize,
    /// Changes of objects per second.
    #[arg(long, default_value_t = 20)]
    rate: u32,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Cli { listen, objects, rate } = Cli::parse();
    let sim = Sim::new();
    sim.populate(objects)?;
    let _server = sim.start_at(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let churn = Churn::new(&sim);
    tokio::select! {
        () = churn.run(f64::from(rate)) => Ok(()),
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
    }
}
