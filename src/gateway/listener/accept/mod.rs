//! Accepts connections, within the limits, until the drain begins.

mod places;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio_rustls::{TlsAcceptor, server::TlsStream};

pub use places::{Limits, Places};

use self::places::Place;
use crate::listener::bind::{Accepted, Bound, Socket};
use crate::listener::client_auth::client_certificate;
use crate::listener::connection::{ConnectionContext, serve_connection};
use crate::listener::io::{Io, Rewind};
use crate::listener::plain_http::expect_tls;
use crate::listener::protocol::Protocol;
use crate::listener::tls::{ALPN_HTTP2, Tls};
use crate::listener::turns::Turns;
use crate::listener::{Connection, Handler};
use base::fairness::Share;
use base::lifecycle::Tasks;
use base::telemetry::{self, ConnectionError, ConnectionGuard};

/// Time limit for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept: the process is out of file descriptors or memory, and goes on with what it has.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Starts to serve all listeners, until `tasks` are drained.
pub fn serve<H: Handler>(listeners: Vec<Bound>, places: &Places, handler: &H, tasks: &Tasks) {
    let handler = Arc::new(handler.clone());
    for bound in listeners {
        let tls = bound.tls.as_ref().map(Tls::acceptor);
        if let Some(tls) = bound.tls {
            let draining = tasks.token().clone();
            tasks.spawn("certificate reload", async move {
                tokio::select! {
                    () = draining.cancelled() => {}
                    () = tls.reload() => {}
                }
            });
        }
        let accept = Accept {
            socket: bound.socket,
            tls,
            max_connection_age: bound.max_connection_age,
            places: places.clone(),
            handler: handler.clone(),
            tasks: tasks.clone(),
        };
        tasks.spawn("accept", accept.run());
    }
}

/// The accept loop of one listener.
struct Accept<H> {
    socket: Socket,
    tls: Option<TlsAcceptor>,
    max_connection_age: Option<Duration>,
    places: Places,
    handler: H,
    tasks: Tasks,
}

impl<H: Handler> Accept<H> {
    async fn run(self) {
        let draining = self.tasks.token().clone();
        loop {
            let (Accepted { stream, peer }, open) = tokio::select! {
                () = draining.cancelled() => return,
                accepted = self.accept() => accepted,
            };
            self.start(Box::new(Turns::new(stream, open)), peer);
        }
    }

    async fn accept(&self) -> (Accepted, Open) {
        loop {
            match self.socket.accept().await {
                Ok(accepted) => {
                    // A connection beyond the address's share is closed at once: waiting would keep out other
                    // addresses.
                    if let Some(share) = self.places.share(accepted.peer) {
                        let place = self.places.place().await;
                        let count = telemetry::connection_accepted();
                        return (accepted, Open { _count: count, _share: share, _place: place });
                    }
                }
                // Caused by that client alone; the next connection need not wait.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
                    telemetry::connection_failed(ConnectionError::Accept);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    telemetry::connection_failed(ConnectionError::Accept);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn start(&self, io: Io, peer: Option<SocketAddr>) {
        static ACCEPTED: AtomicU32 = AtomicU32::new(0);
        let connection = Connection {
            number: ACCEPTED.fetch_add(1, Relaxed),
            peer,
            tls: self.tls.is_some(),
            client_certificate: None,
            draining: self.tasks.token().child_token(),
        };
        let entry = self.places.connections.enter(self.places.addresses.of(peer));
        let (tls, tasks, handler) = (self.tls.clone(), self.tasks.clone(), self.handler.clone());
        let (answer_timeout, max_age) = (self.places.answer_timeout(), self.max_connection_age.map(around));
        self.tasks.spawn("connection", async move {
            // The entry is kept until the connection has ended.
            let shared = ConnectionContext { activity: entry.activity.clone(), answer_timeout, max_age };
            serve_socket(io, tls, connection, handler, shared, &tasks).await;
        });
    }
}

/// Varies the age by up to a tenth, so that connections opened together do not end together.
fn around(age: Duration) -> Duration {
    age.mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// What an open connection holds: its count in the metrics, its address's share and its place.
struct Open {
    _count: ConnectionGuard,
    _share: Option<Share>,
    _place: Place,
}

/// Performs the TLS handshake, if any, then serves HTTP.
async fn serve_socket<H: Handler>(
    io: Io,
    tls: Option<TlsAcceptor>,
    mut connection: Connection,
    handler: H,
    shared: ConnectionContext,
    tasks: &Tasks,
) {
    let activity = shared.activity.clone();
    let (io, protocol) = match tls {
        None => (io, Protocol::Any),
        Some(tls) => {
            let secured = tokio::select! {
                () = activity.gives_way() => None,
                // Boxed, and freed when HTTP begins: the future has room for several sessions.
                secured = Box::pin(handshake(io, tls, &mut connection)) => secured,
            };
            let Some(secured) = secured else { return };
            secured
        }
    };
    serve_connection(io, protocol, connection, handler, shared, tasks).await;
}

/// Performs the handshake. Returns the TLS stream and the protocol chosen by ALPN, or `None` if it failed or the drain
/// began.
async fn handshake(io: Io, tls: TlsAcceptor, connection: &mut Connection) -> Option<(Io, Protocol)> {
    let handshake = tokio::select! {
        () = connection.draining.cancelled() => return None,
        handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, accept_tls(io, &tls)) => handshake,
    };
    let error = match handshake {
        Ok(Ok(stream)) => {
            let session = stream.get_ref().1;
            connection.client_certificate = client_certificate(session.peer_certificates());
            let is_http2 = session.alpn_protocol() == Some(ALPN_HTTP2);
            let protocol = if is_http2 { Protocol::Http2 } else { Protocol::Http1 };
            return Some((Box::new(stream), protocol));
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, peer = ?connection.peer, "handshake failed");
            ConnectionError::Handshake
        }
        Err(_) => ConnectionError::HandshakeTimeout,
    };
    telemetry::connection_failed(error);
    None
}

/// The TLS session. A client that has sent plain HTTP instead gets an answer that says so.
async fn accept_tls(io: Io, tls: &TlsAcceptor) -> io::Result<TlsStream<Rewind>> {
    tls.accept(expect_tls(io).await?).await
}

#[cfg(test)]
mod tests;
