//! The byte stream of a connection, whatever carries it.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use futures_util::TryFutureExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// A socket, or TLS on one. Boxed, so that each layer above holds a pointer rather than the kilobyte of a TLS session,
/// and the code that serves connections is compiled once.
pub type Io = Box<dyn Duplex>;

/// A byte stream that can be read and written.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<I: AsyncRead + AsyncWrite + Send + Unpin> Duplex for I {}

/// The first bytes of every HTTP/2 connection, and of no HTTP/1.1 connection (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether the client speaks HTTP/2. Reads only as far as needed to tell; the returned stream yields those bytes again.
///
/// # Errors
/// The socket failed.
pub(super) fn detect_http2(io: Io) -> impl Future<Output = io::Result<(bool, Io)>> {
    read_beginning(io, &[PREFACE]).map_ok(|stream| (stream.read == PREFACE[..], Box::new(stream) as Io))
}

/// Reads the first bytes of a stream, for as long as it may begin with one of these.
///
/// # Errors
/// The socket failed.
pub(super) async fn read_beginning<const LENGTH: usize>(
    mut io: Io,
    beginnings: &[&[u8; LENGTH]],
) -> io::Result<Rewind> {
    let mut first = [0; LENGTH];
    let mut filled = 0;
    while filled < LENGTH && beginnings.iter().any(|beginning| beginning.starts_with(&first[..filled])) {
        match io.read(&mut first[filled..]).await? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(Rewind { read: Bytes::copy_from_slice(&first[..filled]), io })
}

/// A stream that first yields bytes already read from it.
pub(super) struct Rewind {
    pub(super) read: Bytes,
    pub(super) io: Io,
}

impl AsyncRead for Rewind {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buffer);
        }
        let length = self.read.len().min(buffer.remaining());
        buffer.put_slice(&self.read[..length]);
        self.read.advance(length);
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        // Reads on in the same call: hyper doubles its buffer for a head that comes in two reads.
        match Pin::new(&mut self.io).poll_read(cx, buffer) {
            Poll::Pending => Poll::Ready(Ok(())),
            ready @ Poll::Ready(_) => ready,
        }
    }
}

impl AsyncWrite for Rewind {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncWriteExt, duplex};

    #[tokio::test]
    async fn the_first_bytes_show_the_protocol_and_are_read_again() {
        let get: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
        for (sent, is_http2) in [
            (&PREFACE[..], true),
            (b"PRI * HTTP/2.0\r\n\r\nXY\r\n\r\n", false),
            (get, false),
            (b"PRI *", false),
            (b"", false),
        ] {
            // In one piece, and byte by byte.
            for piece in [sent.len().max(1), 1] {
                let (mut client, server) = duplex(piece);
                let write = async {
                    client.write_all(sent).await.unwrap();
                    drop(client);
                };
                let read = async {
                    let (detected, mut io) = detect_http2(Box::new(server)).await.unwrap();
                    let mut read = Vec::new();
                    io.read_to_end(&mut read).await.unwrap();
                    (detected, read)
                };
                let ((), (detected, read)) = tokio::join!(write, read);
                assert_eq!((detected, &read[..]), (is_http2, sent));
            }
        }
    }

    #[tokio::test]
    async fn bytes_after_the_detected_ones_come_in_the_same_read() {
        let sent = b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nhost: h\r\n\r\n";
        let (mut client, server) = duplex(1 << 10);
        client.write_all(sent).await.unwrap();
        let (_, mut io) = detect_http2(Box::new(server)).await.unwrap();
        let mut buffer = [0; 1 << 10];
        let read = io.read(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..read], sent);
    }
}
