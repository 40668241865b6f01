//! Gateways, as hosts of the simulated network.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
};

use futures_util::TryFutureExt;
use http::Uri;
use kube_fanout::{
    Sockets,
    config::Config,
    connector::{Socket, SocketOpener},
    listener::{Accepted, Bound},
    run,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tower::service_fn;
use turmoil::net::{TcpListener, TcpStream};

use crate::{
    api_server,
    balancing::{Balancing, to_server},
    connection::Connection,
    open::Open,
    world::{API_SERVERS, GATEWAY_PORT, GATEWAYS, gateway},
};

const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// Connections that a gateway has not taken yet.
const ACCEPTED_MAX: usize = 128;

/// A host that runs a gateway.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) number: usize,
    pub(crate) config: Config,
    pub(crate) balancing: Balancing,
    pub(crate) open: Open,
}

/// A gateway in front of all API servers. It is drained and started again whenever it is rolled.
pub(crate) async fn front(host: Host, mut rolled: watch::Receiver<u32>) -> turmoil::Result {
    host.open.start(host.number);
    rolled.mark_unchanged();
    loop {
        let listener = TcpListener::bind((ANY, GATEWAY_PORT)).await?;
        let (sender, connections) = mpsc::channel(ACCEPTED_MAX);
        let accepting = tokio::task::spawn_local(accept(listener, sender));
        serve_until_rolled(&host, connections, &mut rolled).await?;
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

/// The port of the address behind which all gateways are, as a Service would be.
const PEERS_PORT: u16 = 8000;
/// For `cache.peers`.
pub(crate) const PEERS: &str = "http://127.0.0.1:8000";

/// The address of one API server, for `upstream.servers`.
pub(crate) fn server_address(number: usize) -> String {
    format!("127.0.0.1:{}", usize::from(api_server::PORT) + number)
}

/// Connects to what the address means: one API server, a gateway, or any API server.
async fn connect(address: Uri, balancing: Balancing, from: usize, open: Open) -> io::Result<Socket> {
    let port = address.port_u16();
    if port == Some(PEERS_PORT) {
        let any = gateway(fastrand::usize(..GATEWAYS));
        return Ok(Socket::new(TcpStream::connect((any, GATEWAY_PORT)).await?));
    }
    let (stream, breaks) = match port.and_then(|port| port.checked_sub(api_server::PORT)).map(usize::from) {
        Some(number @ ..API_SERVERS) => (to_server(number).await?, CancellationToken::new()),
        _ => balancing.connect().await?,
    };
    Ok(Socket::new(Connection::new(stream, breaks, open.connected(from))))
}

async fn serve_until_rolled(
    host: &Host,
    connections: mpsc::Receiver<Accepted>,
    rolled: &mut watch::Receiver<u32>,
) -> turmoil::Result {
    let (config, balancing) = (&host.config, host.balancing.clone());
    let (number, open) = (host.number, host.open.clone());
    let connect = move |address| connect(address, balancing.clone(), number, open.clone()).map_err(Into::into);
    let opener = SocketOpener::new(service_fn(connect));
    let listeners = vec![Bound::embedded(&config.listeners[0], connections)];
    let sockets = Sockets { upstream: Some(opener), listeners, admin: None };
    let mut upstream = kube_client::Config::new("http://127.0.0.1".parse()?);
    // The name by which other gateways know it.
    upstream.auth_info.token = Some(gateway(host.number).into());
    run(config, &upstream, sockets, async { rolled.changed().await.unwrap() }).await?;
    Ok(())
}
