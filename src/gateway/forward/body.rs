//! The body of a forwarded answer, which holds its client's share of the requests in flight.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::connector::ResponseBody;
use base::fairness::Share;

/// Upstream's body, unchanged. Dropping it before the end cancels the request upstream.
#[derive(Debug)]
pub struct ForwardedBody {
    received: ResponseBody,
    /// `None` if clients are not told apart, or if a tunnel holds it.
    _share: Option<Share>,
}

impl ForwardedBody {
    pub(super) fn new(received: ResponseBody, share: Option<Share>) -> Self {
        Self { received, _share: share }
    }
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.received).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.received.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.received.size_hint()
    }
}
