//! Answers HTTP on a listener for TLS as the API server does (Go's `net/http`), instead of closing the connection
//! without a word.

use std::io;

use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::io::{Io, Rewind, read_beginning};

/// The first bytes of requests that are recognized: as many as a TLS record has in front of its content.
const BEGINNINGS: [&[u8; 5]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];
const ANSWER: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
/// The part of a request that is read after its beginning, if it has arrived.
const REST: usize = 4 << 10;

/// The stream from its first byte on, on which TLS is expected. The caller limits the time.
///
/// # Errors
/// The socket failed, or the client has sent HTTP. This is answered; there is no alert, which it could not read.
pub(super) async fn expect_tls(io: Io) -> io::Result<Rewind> {
    let mut stream = read_beginning(io, &BEGINNINGS).await?;
    if !BEGINNINGS.iter().any(|beginning| stream.read == beginning[..]) {
        return Ok(stream);
    }
    // A socket that is closed with bytes unread is reset, and the client may lose the answer.
    drop(stream.io.read(&mut [0; REST]).now_or_never());
    if stream.write_all(ANSWER).await.is_ok() {
        // The client may be gone already.
        stream.shutdown().await.ok();
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the client has sent HTTP without TLS"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{duplex, split};

    #[tokio::test]
    async fn what_looks_like_a_request_is_answered_and_all_else_is_left_to_tls() {
        for (sent, is_http) in [
            (&b"GET /api HTTP/1.1\r\nhost: h\r\n\r\n"[..], true),
            (b"OPTIONS * HTTP/1.1\r\n\r\n", true),
            (b"GET", false),
            (b"\x16\x03\x01\x00\x05\x01", false),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false),
        ] {
            // In one piece, and byte by byte.
            for capacity in [1 << 10, 1] {
                let (client, server) = duplex(capacity);
                let (mut receiver, mut sender) = split(client);
                let seen = async {
                    let Ok(mut stream) = expect_tls(Box::new(server)).await else { return None };
                    let mut seen = Vec::new();
                    stream.read_to_end(&mut seen).await.unwrap();
                    stream.write_all(b"alert").await.unwrap();
                    Some(seen)
                };
                // The server does not read all of a request.
                let sent_all = async { sender.write_all(sent).await.and(sender.shutdown().await).is_ok() };
                let answer = async {
                    let mut answer = Vec::new();
                    receiver.read_to_end(&mut answer).await.map(|_| answer)
                };
                let (seen, sent_all, answer) = tokio::join!(seen, sent_all, answer);
                assert!(sent_all || is_http, "{sent:?}");
                let (expected, left) = if is_http { (ANSWER, None) } else { (&b"alert"[..], Some(sent)) };
                assert_eq!((answer.unwrap().as_slice(), seen.as_deref()), (expected, left), "{sent:?}");
            }
        }
    }
}
