//! The body of an answer from upstream: passed on as it arrives; only refusals of the gateway's own requests are
//! collected.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;

use super::{exclusive::ExclusiveBody, slot::Slot};

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
