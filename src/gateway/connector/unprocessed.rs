//! Requests that upstream has certainly not processed, by its own word: each may be sent again, also a write.

use std::error::Error;

use h2::Reason;

use base::telemetry::caused_by;

/// Whether the error says so. It does if upstream ended an HTTP/2 connection gracefully, and the request's stream is
/// above the last one that it takes (RFC 9113, 6.8; streams below end with other errors), or if it refused the stream
/// (8.7).
pub(super) fn is_unprocessed(error: &(dyn Error + 'static)) -> bool {
    caused_by::<h2::Error>(error).is_some_and(|error| {
        let reason = if error.is_go_away() { Reason::NO_ERROR } else { Reason::REFUSED_STREAM };
        error.is_remote() && (error.is_go_away() || error.is_reset()) && error.reason() == Some(reason)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    };

    use http::{Method, Request, StatusCode};
    use tokio::{
        io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
        net::TcpListener,
        task::JoinSet,
    };
    use tokio_rustls::TlsAcceptor;

    use crate::connector::{Connector, RequestBody, test_authority::Authority, test_server::config};

    /// Frame types, flags and error codes of RFC 9113.
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;
    const ACK: u8 = 1;
    const END_OF_STREAM_AND_HEADERS: u8 = 5;
    const NO_ERROR: u8 = 0;
    const INTERNAL_ERROR: u8 = 2;
    const REFUSED_STREAM: u8 = 7;
    /// `:status: 200` in HPACK.
    const OK: [u8; 1] = [0x88];

    /// What the server does with the first request; it answers all others.
    #[derive(Clone, Copy, Debug)]
    enum First {
        /// Ends the connection. The first stream is the last one that it has processed, or it is not.
        GoAway {
            processed: bool,
            code: u8,
        },
        Reset {
            code: u8,
        },
        /// Closes the connection without a word.
        Close,
    }

    async fn frame(stream: &mut (impl AsyncWrite + Unpin), kind: u8, flags: u8, id: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(id.to_be_bytes());
        bytes.extend(payload);
        // A client that has gone away is not told.
        stream.write_all(&bytes).await.ok();
    }

    async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, first: First, requests: &AtomicUsize) {
        stream.read_exact(&mut [0; b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()]).await.unwrap();
        frame(&mut stream, SETTINGS, 0, 0, &[]).await;
        let mut head = [0; 9];
        while stream.read_exact(&mut head).await.is_ok() {
            let [a, b, c, kind, flags, d, e, f, g] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            stream.read_exact(&mut payload).await.unwrap();
            let id = u32::from_be_bytes([d, e, f, g]);
            if kind == SETTINGS && flags & ACK == 0 {
                frame(&mut stream, SETTINGS, ACK, 0, &[]).await;
            }
            if kind != HEADERS {
                continue;
            }
            if requests.fetch_add(1, SeqCst) > 0 {
                frame(&mut stream, HEADERS, END_OF_STREAM_AND_HEADERS, id, &OK).await;
                continue;
            }
            match first {
                First::GoAway { processed, code } => {
                    let last = if processed { id } else { 0 };
                    let payload = [last.to_be_bytes(), u32::from(code).to_be_bytes()].concat();
                    frame(&mut stream, GOAWAY, 0, 0, &payload).await;
                    stream.shutdown().await.ok();
                }
                First::Reset { code } => frame(&mut stream, RST_STREAM, 0, id, &u32::from(code).to_be_bytes()).await,
                First::Close => return,
            }
        }
    }

    /// The status that a client gets for a request without a body; `None` without an answer. And how often it was sent.
    async fn sent(method: Method, first: First) -> (Option<StatusCode>, usize) {
        let (authority, listener) = (Authority::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let mut tls = authority.server();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let address = listener.local_addr().unwrap();
        let mut config = config(address);
        config.cluster_url = format!("https://localhost:{}", address.port()).parse().unwrap();
        config.root_cert = Some(vec![authority.certificate().to_vec()]);
        let (acceptor, requests) = (TlsAcceptor::from(Arc::new(tls)), Arc::new(AtomicUsize::new(0)));
        let counted = requests.clone();
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, counted) = (acceptor.clone(), counted.clone());
                connections.spawn(async move {
                    serve(acceptor.accept(stream).await.unwrap(), first, &counted).await;
                });
            }
        });
        let request = Request::builder().method(method).uri("/api").body(RequestBody::Empty).unwrap();
        let answer = Connector::new(&config).unwrap().own_requests().send(request).await;
        (answer.ok().map(|answer| answer.status()), requests.load(SeqCst))
    }

    #[tokio::test]
    async fn a_request_is_sent_again_only_if_upstream_says_that_it_was_not_processed() {
        let go_away = |processed, code| First::GoAway { processed, code };
        for method in [Method::DELETE, Method::POST, Method::GET] {
            for first in [go_away(false, NO_ERROR), First::Reset { code: REFUSED_STREAM }] {
                assert_eq!(sent(method.clone(), first).await, (Some(StatusCode::OK), 2), "{method} {first:?}");
            }
            for first in [
                go_away(true, NO_ERROR),
                go_away(false, INTERNAL_ERROR),
                First::Reset { code: INTERNAL_ERROR },
                First::Close,
            ] {
                assert_eq!(sent(method.clone(), first).await, (None, 1), "{method} {first:?}");
            }
        }
    }
}
