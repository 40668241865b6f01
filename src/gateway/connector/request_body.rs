//! The body of a request to upstream: a client's is passed on as it arrives, and never collected.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

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

impl RequestBody {
    /// The body of a client's request; an empty one becomes [`RequestBody::Empty`], so that it can be sent again.
    pub fn from_client(incoming: Incoming) -> Self {
        if incoming.is_end_stream() { Self::Empty } else { Self::Streamed(incoming) }
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
