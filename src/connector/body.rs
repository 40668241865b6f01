//! The two bodies of a request to upstream: what is sent and what comes back. Both stream; neither buffers, except
//! refusals of the gateway's own requests.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;

use super::{exclusive::ExclusiveBody, slot::Slot};

/// The body of a request to upstream.
#[derive(Debug, Default)]
pub enum RequestBody {
    #[default]
    Empty,
    /// Sent in one piece with its length.
    Full(Bytes),
    /// A client's body, passed on as it arrives, including its trailers.
    Streamed(Incoming),
}

/// The body of an answer from upstream, as it arrives.
///
/// Holds the request's place on its connection. Dropping it before the end cancels the request upstream.
#[derive(Debug)]
pub struct ResponseBody {
    received: Received,
    slot: Option<Slot>,
}

/// The body of an answer, by the kind of its connection.
#[derive(Debug)]
pub(super) enum Received {
    /// The connection may carry other requests too.
    Shared(Incoming),
    Exclusive(ExclusiveBody),
    /// It has already been read.
    Read(Full<Bytes>),
}

impl RequestBody {
    /// The body of a client's request; an empty one becomes [`RequestBody::Empty`], so that it can be sent again.
    pub fn from_client(incoming: Incoming) -> Self {
        if incoming.is_end_stream() { Self::Empty } else { Self::Streamed(incoming) }
    }
}

impl ResponseBody {
    pub(super) fn new(received: Received, slot: Slot) -> Self {
        Self { received, slot: Some(slot) }
    }

    /// A body that has already been read.
    pub(super) fn read(bytes: Bytes) -> Self {
        Self { received: Received::Read(Full::new(bytes)), slot: None }
    }

    /// The request's place, for a tunnel that outlives the body of its 101 answer.
    pub fn take_slot(&mut self) -> Option<Slot> {
        self.slot.take()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let body = self.get_mut();
        match body {
            Self::Empty => Poll::Ready(None),
            Self::Full(_) => {
                let Self::Full(bytes) = std::mem::take(body) else { return Poll::Ready(None) };
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Self::Streamed(incoming) => Pin::new(incoming).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(bytes) => bytes.is_empty(),
            Self::Streamed(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Streamed(incoming) => incoming.size_hint(),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.received {
            Received::Shared(incoming) => Pin::new(incoming).poll_frame(context),
            Received::Exclusive(body) => Pin::new(body).poll_frame(context),
            Received::Read(body) => Pin::new(body).poll_frame(context).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.received {
            Received::Shared(incoming) => incoming.is_end_stream(),
            Received::Exclusive(body) => body.is_end_stream(),
            Received::Read(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.received {
            Received::Shared(incoming) => incoming.size_hint(),
            Received::Exclusive(body) => body.size_hint(),
            Received::Read(body) => body.size_hint(),
        }
    }
}

impl From<Incoming> for Received {
    fn from(incoming: Incoming) -> Self {
        Self::Shared(incoming)
    }
}

impl From<ExclusiveBody> for Received {
    fn from(body: ExclusiveBody) -> Self {
        Self::Exclusive(body)
    }
}
