//! Gateways, as hosts of the simulated network.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use futures_util::TryFutureExt;
use kube_fanout::{
    Sockets,
    config::Config,
    connector::{Socket, SocketOpener},
    listener::{Accepted, Bound},
    run,
};
use tokio::sync::{mpsc, watch};
use tower::service_fn;
use turmoil::net::{TcpListener, TcpStream};

use crate::{
    api_server,
    world::{API_SERVERS, GATEWAY_PORT, api_server},
};

const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// Connections that a gateway has not taken yet.
const ACCEPTED_MAX: usize = 128;

/// A gateway in front of all API servers. It is drained and started again whenever it is rolled.
pub(crate) async fn front(config: Config, balancing: Balancing, mut rolled: watch::Receiver<u32>) -> turmoil::Result {
    rolled.mark_unchanged();
    loop {
        let listener = TcpListener::bind((ANY, GATEWAY_PORT)).await?;
        let (sender, connections) = mpsc::channel(ACCEPTED_MAX);
        let accepting = tokio::task::spawn_local(accept(listener, sender));
        serve_until_rolled(&config, balancing.clone(), connections, &mut rolled).await?;
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

/// Which API server a gateway's next connection goes to.
#[derive(Clone, Debug)]
pub(crate) enum Balancing {
    /// To any, as over HTTP/1.1.
    EachConnection,
    /// To the same as the last one, as all requests over HTTP/2 do, until that cannot be reached.
    Sticky(Arc<AtomicUsize>),
}

async fn connect(balancing: Balancing) -> io::Result<Socket> {
    let any = fastrand::usize(..API_SERVERS);
    let number = match &balancing {
        Balancing::EachConnection => any,
        Balancing::Sticky(number) => number.load(Relaxed),
    };
    let connected = TcpStream::connect((api_server(number), api_server::PORT)).await;
    if let (Balancing::Sticky(number), Err(_)) = (&balancing, &connected) {
        number.store(any, Relaxed);
    }
    Ok(Socket::new(connected?))
}

async fn serve_until_rolled(
    config: &Config,
    balancing: Balancing,
    connections: mpsc::Receiver<Accepted>,
    rolled: &mut watch::Receiver<u32>,
) -> turmoil::Result {
    let opener = SocketOpener::new(service_fn(move |_| connect(balancing.clone()).map_err(Into::into)));
    let listeners = vec![Bound::embedded(&config.listeners[0], connections)];
    let sockets = Sockets { upstream: Some(opener), listeners, admin: None };
    let upstream = kube_client::Config::new("http://127.0.0.1".parse()?);
    run(config, &upstream, sockets, async { rolled.changed().await.unwrap() }).await?;
    Ok(())
}
