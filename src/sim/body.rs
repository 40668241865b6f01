//! Response bodies.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};

use crate::watch::{Cut, WatchStream};

/// The body of every response: complete, or a watch.
pub type Body = UnsyncBoxBody<Bytes, Cut>;

pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

pub(crate) fn watch(stream: Box<WatchStream>) -> Body {
    let frames = stream::unfold(stream, |mut stream| async move {
        let bytes = stream.next().await?;
        Some((bytes.map(Frame::data), stream))
    });
    BodyExt::boxed_unsync(StreamBody::new(frames))
}
