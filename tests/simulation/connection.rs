//! The connections of gateways to what they are in front of.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net::TcpStream;

use crate::{conversation::Conversation, open::Counted};

/// A connection that is counted as long as it is held, and breaks when a future resolves.
pub(crate) struct Connection {
    stream: TcpStream,
    broken: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    /// Of a node.
    conversation: Option<Conversation>,
    _counted: Counted,
}

impl Connection {
    pub(crate) fn new(
        stream: TcpStream,
        broken: impl Future<Output = ()> + Send + Sync + 'static,
        counted: Counted,
    ) -> Self {
        Self { stream, broken: Box::pin(broken), conversation: None, _counted: counted }
    }

    /// As a node has it, to a replica.
    pub(crate) fn of_node(self, conversation: Conversation) -> Self {
        Self { conversation: Some(conversation), ..self }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.broken.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Some(conversation) = &mut self.conversation {
            conversation.receive(&buffer.filled()[before..]);
        }
        polled
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(conversation) = &mut self.conversation else {
            return Pin::new(&mut self.stream).poll_write(cx, bytes);
        };
        let written = conversation.renamed(bytes);
        let polled = Pin::new(&mut self.stream).poll_write(cx, &written);
        if let Poll::Ready(Ok(length)) = polled {
            // All at once, or nothing: so no name is written in two parts.
            assert_eq!(length, bytes.len());
            self.conversation.as_mut().unwrap().send(&written);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
