//! Gateways, as hosts of the simulated network: replicas in front of API servers, and nodes in front of replicas.

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
    balancing::{Balancing, Connected, Upstream},
    connection::Connection,
    conversation::Conversation,
    open::Open,
    world::{CutOff, Forwarded, GATEWAY_PORT, REPLICAS, gateway, is_node},
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
    /// See [`World`](crate::world::World).
    pub(crate) forwarded: Forwarded,
    pub(crate) cut_off: CutOff,
    pub(crate) open: Open,
    pub(crate) gateways: usize,
}

/// A gateway in front of all API servers, or of all replicas. It is drained and started again whenever it is rolled.
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

/// The port of the address behind which all gateways of the same kind are, as a Service would be.
const PEERS_PORT: u16 = 8000;
/// For `cache.peers`.
pub(crate) const PEERS: &str = "http://127.0.0.1:8000";

/// The address of one API server, or of one replica, for `upstream.servers`.
pub(crate) fn server_address(number: usize) -> String {
    format!("127.0.0.1:{}", usize::from(api_server::PORT) + number)
}

impl Host {
    /// Connects to what the address means: a gateway of the same kind, one server, or any server.
    async fn connect(self, address: Uri) -> io::Result<Socket> {
        let Self { number, balancing, forwarded, cut_off, open, gateways, .. } = self;
        let upstream = Upstream::of(number);
        let port = address.port_u16();
        if port == Some(PEERS_PORT) {
            let peers = if is_node(number) { REPLICAS..gateways } else { 0..REPLICAS };
            let any = gateway(fastrand::usize(peers));
            return Ok(Socket::new(TcpStream::connect((any, GATEWAY_PORT)).await?));
        }
        // API servers refuse replicas that are cut off.
        if is_node(number) && cut_off.borrow()[number] {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let Connected { stream, to, breaks } = match port.and_then(|port| upstream.at_port(port)) {
            Some(to) => upstream.connect(to, CancellationToken::new()).await?,
            None => balancing.connect(upstream).await?,
        };
        let counted = open.connected(number);
        if !is_node(number) {
            return Ok(Socket::new(Connection::new(stream, breaks.cancelled_owned(), counted)));
        }
        let mut cut_off = cut_off.subscribe();
        let broken = async move {
            tokio::select! {
                () = breaks.cancelled() => {}
                _ = cut_off.wait_for(|cut_off| cut_off[number]) => {}
            }
        };
        let connection = Connection::new(stream, broken, counted);
        Ok(Socket::new(connection.of_node(Conversation::new(forwarded, open, number, to))))
    }
}

async fn serve_until_rolled(
    host: &Host,
    connections: mpsc::Receiver<Accepted>,
    rolled: &mut watch::Receiver<u32>,
) -> turmoil::Result {
    let (config, connecting) = (&host.config, host.clone());
    let connect = move |address| connecting.clone().connect(address).map_err(Into::into);
    let opener = SocketOpener::new(service_fn(connect));
    let listeners = vec![Bound::embedded(&config.listeners[0], connections)];
    let sockets = Sockets { upstream: Some(opener), listeners, admin: None };
    let mut upstream = kube_client::Config::new("http://127.0.0.1".parse()?);
    // The name by which other gateways know it.
    upstream.auth_info.token = Some(gateway(host.number).into());
    run(config, &upstream, sockets, async { rolled.changed().await.unwrap() }).await?;
    Ok(())
}
