//! The body of an answer, with the connection on which it arrives.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{connection::Connection, idle::Idle};

/// Drives its connection while it is read. Dropped after its end, it returns the connection; dropped earlier, it closes
/// the connection.
pub(in crate::connector) struct ExclusiveBody {
    incoming: Incoming,
    /// Taken on drop.
    connection: Option<Box<Connection>>,
    idle: Arc<Idle>,
    /// Whether the end was read.
    ended: bool,
}

impl ExclusiveBody {
    pub(super) fn new(incoming: Incoming, connection: Box<Connection>, idle: Arc<Idle>) -> Self {
        Self { incoming, connection: Some(connection), idle, ended: false }
    }
}

impl Body for ExclusiveBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = match &mut this.connection {
            Some(connection) => connection.poll_frame(&mut this.incoming, context),
            None => Pin::new(&mut this.incoming).poll_frame(context),
        };
        this.ended |= matches!(frame, Poll::Ready(None));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for ExclusiveBody {
    fn drop(&mut self) {
        let ended = self.ended || self.incoming.is_end_stream();
        if let Some(connection) = self.connection.take()
            && ended
        {
            self.idle.put(connection);
        }
    }
}

impl fmt::Debug for ExclusiveBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ExclusiveBody").field("ended", &self.ended).finish_non_exhaustive()
    }
}
