//! Which API server the connections of a gateway with one address go to.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tokio_util::sync::CancellationToken;
use turmoil::net::TcpStream;

use crate::{
    api_server,
    world::{API_SERVERS, api_server},
};

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

impl Balancing {
    /// Connects to an API server. The connection breaks with the token: when the gateway goes to another one.
    pub(crate) async fn connect(&self) -> io::Result<(TcpStream, CancellationToken)> {
        let any = Current { number: fastrand::usize(..API_SERVERS), left: CancellationToken::new() };
        let Self::Sticky(sticky) = self else { return any.connect().await };
        let current = sticky.0.lock().unwrap().clone();
        let connected = current.connect().await;
        if connected.is_err() {
            sticky.leave(&current, any);
        }
        connected
    }
}

impl Sticky {
    /// Goes to another API server, unless the gateway has done so already, and breaks the connections to the last one.
    fn leave(&self, last: &Current, next: Current) {
        let mut current = self.0.lock().unwrap();
        if !last.left.is_cancelled() {
            *current = next;
            last.left.cancel();
        }
    }
}

impl Current {
    async fn connect(&self) -> io::Result<(TcpStream, CancellationToken)> {
        Ok((to_server(self.number).await?, self.left.clone()))
    }
}

/// In a task of its own, so that a connection that is given up at the moment at which the API server accepts it is
/// closed, as by a kernel: turmoil drops only its own end, and the API server would wait for a request for ever.
#[expect(clippy::disallowed_methods, reason = "it ends by itself, as connecting by a kernel does")]
pub(crate) async fn to_server(number: usize) -> io::Result<TcpStream> {
    tokio::spawn(TcpStream::connect((api_server(number), api_server::PORT))).await?
}
