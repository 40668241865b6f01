//! Answers HTTP on a listener for TLS as the API server does (Go's `net/http`), instead of closing the connection without
//! a word.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::io::Io;

/// The first bytes of requests that are recognized: as many as a TLS record has in front of its content.
const BEGINNINGS: [&[u8; 5]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];
const ANSWER: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// A socket on which TLS is expected. Nothing is written to a client that has sent HTTP: it could not read the alert.
pub(super) struct ExpectsTls {
    io: Io,
    first: [u8; BEGINNINGS[0].len()],
    seen: u8,
}

impl ExpectsTls {
    pub(super) fn new(io: Io) -> Self {
        Self { io, first: [0; BEGINNINGS[0].len()], seen: 0 }
    }

    fn is_http(&self) -> bool {
        usize::from(self.seen) == self.first.len() && BEGINNINGS.contains(&&self.first)
    }

    /// Answers the request, if it was one. The caller limits the time.
    pub(super) async fn refuse(mut self) {
        if self.is_http() && self.io.write_all(ANSWER).await.is_ok() {
            // The client may be gone already.
            self.io.shutdown().await.ok();
        }
    }

    fn note(&mut self, read: &[u8]) {
        let seen = usize::from(self.seen);
        for (place, byte) in self.first[seen..].iter_mut().zip(read) {
            *place = *byte;
            self.seen += 1;
        }
    }
}

impl AsyncRead for ExpectsTls {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        self.note(&buffer.filled()[before..]);
        read
    }
}

impl AsyncWrite for ExpectsTls {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_http() {
            return Poll::Ready(Ok(bytes.len()));
        }
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
        if self.is_http() {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, duplex};

    #[tokio::test]
    async fn what_looks_like_a_request_is_answered_and_gets_no_alert() {
        for (sent, is_http) in [
            (&b"GET /api HTTP/1.1\r\nhost: h\r\n\r\n"[..], true),
            (b"OPTIONS * HTTP/1.1\r\n\r\n", true),
            (b"GET", false),
            (b"\x16\x03\x01\x00\x05\x01", false),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false),
        ] {
            // In one piece, and byte by byte.
            for piece in [1 << 10, 1] {
                let (mut client, server) = duplex(1 << 10);
                client.write_all(sent).await.unwrap();
                let mut expects = ExpectsTls::new(Box::new(server));
                let mut buffer = [0; 1 << 10];
                let mut read = 0;
                while read < sent.len() {
                    read += expects.read(&mut buffer[..piece]).await.unwrap();
                }
                expects.write_all(b"alert").await.unwrap();
                expects.refuse().await;
                let mut answer = Vec::new();
                client.read_to_end(&mut answer).await.unwrap();
                assert_eq!(answer, if is_http { ANSWER } else { b"alert" }, "{sent:?}");
            }
        }
    }
}
