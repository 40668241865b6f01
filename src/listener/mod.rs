//! Sockets, TLS, connection limits, draining. Hands requests to a handler it is given.
//!
//! Invariants: a connection is counted and limited from its acceptance to its end; nothing that a client leaves undone
//! (a handshake, a head, an answer that is not read) holds a connection for ever, nor keeps others from being served; when the drain begins, no connection is accepted any more, and
//! those that are open are told so (`GOAWAY`, `Connection: close`) and end with their last response.

mod accept;
mod activity;
mod answer;
mod bind;
mod client_auth;
mod connection;
mod form;
mod io;
mod protocol;
mod requests;
mod tls;

use std::{error::Error, future::Future, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

pub use accept::{Limits, Places, serve};
pub use activity::GivesWay;
pub use answer::{AnswerBody, LongRunning};
pub use bind::{BindError, Bound, bind};
pub use connection::{Tie, serve_connection};
pub use form::{Malformed, check_form, hosts};
pub use io::{Duplex, Io};
pub use protocol::Protocol;
pub use tls::TlsError;

/// What answers requests.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Bodies of responses. An error in it ends an HTTP/1.1 connection, or resets the HTTP/2 stream.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static;

    /// Dropped when the client goes before there is a response.
    fn handle(
        &self,
        request: Request<Incoming>,
        connection: &Connection,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// Shared, it is a pointer to each connection.
impl<H: Handler> Handler for Arc<H> {
    type Body = H::Body;

    async fn handle(&self, request: Request<Incoming>, connection: &Connection) -> Response<H::Body> {
        (**self).handle(request, connection).await
    }
}

/// What a handler may know of the connection that a request came on.
#[derive(Clone, Debug)]
pub struct Connection {
    /// None for a Unix socket.
    pub peer: Option<SocketAddr>,
    pub tls: bool,
    /// What the client has shown, and has the key of. None without TLS, and if it showed none.
    pub client_certificate: Option<Arc<ClientCertificate>>,
    /// Cancelled when the drain begins. The connection's own: waiting on it costs other connections nothing.
    pub draining: CancellationToken,
}

/// A certificate whose key the client has proven to hold. Nobody has vouched for it yet: that is for [`crate::authn`] to
/// say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The client's own, then what it sent along: at least one.
    pub chain: Vec<CertificateDer<'static>>,
    /// SHA-256 over the whole chain.
    pub fingerprint: [u8; 32],
}
