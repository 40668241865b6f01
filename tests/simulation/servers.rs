//! API servers and gateways, as hosts of the simulated network.

use std::net::{IpAddr, Ipv4Addr};

use kube_fanout::{
    Sockets,
    config::{Address, Config, ListenerConfig, MostRecentReads, Overrides},
    connector::{Socket, SocketOpener},
    listener::{Accepted, Bound},
    run,
    sim::Sim,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tower::service_fn;
use turmoil::net::{TcpListener, TcpStream};

pub(crate) const GATEWAY_PORT: u16 = 8001;
const API_SERVER_PORT: u16 = 6443;
const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// Connections that a gateway has not taken yet.
const ACCEPTED_MAX: usize = 128;

pub(crate) fn gateway(number: usize) -> String {
    format!("gateway-{number}")
}

pub(crate) fn api_server(number: usize) -> String {
    format!("api-server-{number}")
}

/// Serves connections whenever `is_up`; going down breaks them, as a crash would. It is not a host that crashes: the
/// storage keeps times of one clock.
pub(crate) async fn serve(sim: Sim, number: usize, mut is_up: watch::Receiver<bool>) -> turmoil::Result {
    loop {
        is_up.wait_for(|is_up| *is_up).await?;
        let listener = TcpListener::bind((ANY, API_SERVER_PORT)).await?;
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let sim = sim.clone();
                    let (stream, _) = accepted?;
                    connections.spawn(async move { sim.serve_connection(stream, number).await });
                }
                Some(_) = connections.join_next() => {}
                down = is_up.wait_for(|is_up| !is_up) => {
                    down?;
                    break;
                }
            }
        }
    }
}

/// A gateway in front of this many API servers: each connection goes to one that chance picks. It is drained and started
/// again whenever it is rolled.
pub(crate) async fn front(
    api_servers: usize,
    reads: MostRecentReads,
    mut rolled: watch::Receiver<u32>,
) -> turmoil::Result {
    rolled.mark_unchanged();
    loop {
        let listener = TcpListener::bind((ANY, GATEWAY_PORT)).await?;
        let (sender, connections) = mpsc::channel(ACCEPTED_MAX);
        let accepting = tokio::task::spawn_local(accept(listener, sender));
        serve_until_rolled(api_servers, reads, connections, &mut rolled).await?;
        accepting.abort();
        accepting.await.ok();
    }
}

async fn accept(listener: TcpListener, accepted: mpsc::Sender<Accepted>) {
    while let Ok((stream, peer)) = listener.accept().await {
        if accepted.send(Accepted { stream: Box::new(stream), peer: Some(peer) }).await.is_err() {
            return;
        }
    }
}

async fn serve_until_rolled(
    api_servers: usize,
    reads: MostRecentReads,
    connections: mpsc::Receiver<Accepted>,
    rolled: &mut watch::Receiver<u32>,
) -> turmoil::Result {
    let config = config(reads);
    let opener = SocketOpener::new(service_fn(move |_| async move {
        let name = api_server(fastrand::usize(..api_servers));
        Ok(Socket::new(TcpStream::connect((name, API_SERVER_PORT)).await?))
    }));
    let listeners = vec![Bound::embedded(&config.listeners[0], connections)];
    let sockets = Sockets { upstream: Some(opener), listeners, admin: None };
    let upstream = kube_client::Config::new("http://api-servers".parse()?);
    run(&config, &upstream, sockets, async { rolled.changed().await.unwrap() }).await?;
    Ok(())
}

fn config(reads: MostRecentReads) -> Config {
    let mut config = Config::defaults(&Overrides::default()).unwrap();
    let address = Address::Tcp(([127, 0, 0, 1], GATEWAY_PORT).into());
    config.listeners = vec![ListenerConfig::plain(address)];
    // Small, so that the history loses changes that a slow watcher has not read.
    config.cache.history.bytes = 1;
    config.reads.most_recent = reads;
    config
}
