//! Sockets, TLS, connection limits and draining; passes requests to a [`Handler`].
//!
//! Invariants: a connection is counted and limited from its acceptance to its end. A client that stalls (in a
//! handshake, in a request head, or by not reading an answer) does not hold a connection for ever, nor keep others from
//! being served. When the drain begins, no more connections are accepted; open ones are told so (`GOAWAY`, `Connection:
//! close`) and end with their last response.

mod accept;
mod activity;
mod answer_timeout;
mod bind;
mod client_auth;
mod connection;
mod in_flight;
mod io;
mod plain_http;
mod protocol;
mod requests;
mod tls;
mod turns;
mod well_formed;

use std::{error::Error, future::Future, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

pub use accept::{Limits, Places, serve};
pub use activity::GivesWay;
pub use answer_timeout::{AnswerBody, LongRunning};
pub use bind::{Accepted, BindError, Bound, bind};
pub use connection::{ConnectionContext, serve_connection};
pub use io::{Duplex, Io};
pub use protocol::Protocol;
pub use tls::TlsError;
pub use well_formed::{Malformed, check_well_formed, hosts};

/// Answers requests.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Response body. An error in it ends an HTTP/1.1 connection, or resets the HTTP/2 stream.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static;

    /// Answers one request. The future is dropped if the client disconnects before there is a response.
    fn handle(
        &self,
        request: Request<Incoming>,
        connection: &Connection,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// Makes a handler cheap to clone for each connection.
impl<H: Handler> Handler for Arc<H> {
    type Body = H::Body;

    async fn handle(&self, request: Request<Incoming>, connection: &Connection) -> Response<H::Body> {
        (**self).handle(request, connection).await
    }
}

/// What a handler may know about the connection of a request.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Distinguishes it from all others that are open: those of a Unix socket have no address.
    pub number: u32,
    /// The client's address. `None` for a Unix socket.
    pub peer: Option<SocketAddr>,
    pub tls: bool,
    /// The certificate that the client presented and holds the key of. `None` without TLS, or if it presented none.
    pub client_certificate: Option<Arc<ClientCertificate>>,
    /// Cancelled when the drain begins. Each connection has its own token, so that waiting on it costs other
    /// connections nothing.
    pub draining: CancellationToken,
}

/// A certificate whose key the client has proven to hold. It is not verified against any authority yet:
/// [`crate::authn`] does that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The client's certificate, followed by any others it sent; never empty.
    pub chain: Vec<CertificateDer<'static>>,
    /// SHA-256 over the whole chain.
    pub fingerprint: [u8; 32],
}

#[cfg(test)]
impl ClientCertificate {
    /// That of a client that presents the certificate alone.
    pub(crate) fn of(issued: &base::test_certificates::Issued) -> Self {
        let fingerprint = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &issued.der());
        Self { chain: vec![issued.der()], fingerprint: fingerprint.as_ref().try_into().unwrap() }
    }
}
