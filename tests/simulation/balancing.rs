//! Where the connections of a gateway go: to which API server, or, from a node, to which replica.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tokio_util::sync::CancellationToken;
use turmoil::net::TcpStream;

use crate::{
    api_server,
    world::{API_SERVERS, GATEWAY_PORT, REPLICAS, api_server, gateway, is_node},
};

/// What a gateway is in front of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upstream {
    ApiServers,
    Replicas,
}

/// How a gateway's connections are balanced.
#[derive(Clone, Debug)]
pub(crate) enum Balancing {
    /// Each to any, as over HTTP/1.1.
    EachConnection,
    /// All to one, as all requests over HTTP/2 go, until that cannot be reached.
    Sticky(Sticky),
}

/// Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sticky(Arc<Mutex<Current>>);

#[derive(Clone, Debug, Default)]
struct Current {
    number: usize,
    /// Cancelled when the gateway goes to another one.
    left: CancellationToken,
}

/// A new connection.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) stream: TcpStream,
    /// The API server or the replica.
    pub(crate) to: usize,
    /// The connection breaks with it: when the gateway goes to another one.
    pub(crate) breaks: CancellationToken,
}

impl Upstream {
    pub(crate) fn of(gateway: usize) -> Self {
        if is_node(gateway) { Self::Replicas } else { Self::ApiServers }
    }

    fn count(self) -> usize {
        match self {
            Self::ApiServers => API_SERVERS,
            Self::Replicas => REPLICAS,
        }
    }

    /// The server that an address of `upstream.servers` means.
    pub(crate) fn at_port(self, port: u16) -> Option<usize> {
        port.checked_sub(api_server::PORT).map(usize::from).filter(|number| *number < self.count())
    }

    /// Connects in a task of its own, so that a connection that is given up at the moment at which the server accepts
    /// it is closed, as by a kernel: turmoil drops only its own end, and the server would wait for a request for ever.
    #[expect(clippy::disallowed_methods, reason = "it ends by itself, as connecting by a kernel does")]
    pub(crate) async fn connect(self, to: usize, breaks: CancellationToken) -> io::Result<Connected> {
        let address = match self {
            Self::ApiServers => (api_server(to), api_server::PORT),
            Self::Replicas => (gateway(to), GATEWAY_PORT),
        };
        let stream = tokio::spawn(TcpStream::connect(address)).await??;
        Ok(Connected { stream, to, breaks })
    }
}

impl Balancing {
    pub(crate) async fn connect(&self, upstream: Upstream) -> io::Result<Connected> {
        let any = Current { number: fastrand::usize(..upstream.count()), left: CancellationToken::new() };
        let Self::Sticky(sticky) = self else { return any.connect(upstream).await };
        let current = sticky.0.lock().unwrap().clone();
        let connected = current.connect(upstream).await;
        if connected.is_err() {
            sticky.leave(&current, any);
        }
        connected
    }
}

impl Sticky {
    /// Goes to another server, unless the gateway has done so already, and breaks the connections to the last one.
    fn leave(&self, last: &Current, next: Current) {
        let mut current = self.0.lock().unwrap();
        if !last.left.is_cancelled() {
            *current = next;
            last.left.cancel();
        }
    }
}

impl Current {
    async fn connect(&self, upstream: Upstream) -> io::Result<Connected> {
        upstream.connect(self.number, self.left.clone()).await
    }
}
