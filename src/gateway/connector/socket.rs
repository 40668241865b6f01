//! The sockets of connections to the API server: TCP, unless an embedder opens them.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower::{ServiceExt, util::BoxCloneSyncService};

use super::BoxError;

/// Opens a socket to the host and port of an address.
pub type SocketOpener = BoxCloneSyncService<Uri, Socket, BoxError>;

/// Quiet HTTP/1.1 connections (long watches, tunnels) are probed, so that a dead peer is noticed.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// A connection ends when sent bytes stay unacknowledged for this long.
#[cfg(target_os = "linux")]
const TCP_UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(45);

/// A connected byte stream, below TLS.
pub struct Socket(Box<dyn Duplex>);

trait Duplex: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<I: AsyncRead + AsyncWrite + Send + Sync + Unpin> Duplex for I {}

/// Opens TCP connections.
pub(super) fn tcp() -> SocketOpener {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(TCP_KEEPALIVE));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(TCP_UNACKNOWLEDGED_MAX));
    let sockets = connector.map_response(|stream| Socket::new(stream.into_inner()));
    BoxCloneSyncService::new(sockets.map_err(BoxError::from))
}

impl Socket {
    pub fn new(stream: impl AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static) -> Self {
        Self(Box::new(stream))
    }
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Socket").finish_non_exhaustive()
    }
}
