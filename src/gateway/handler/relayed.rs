//! The body of a forwarded answer, as it goes on to the client. When the gateway drains, a watch ends in its turn,
//! between two events, as the API server ends its own.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Response, StatusCode, header};
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::forward::ForwardedBody;
use base::{
    apimachinery::{Encoding, Representation, ResponseKind, View},
    lifecycle::Spread,
};

const JSON: &str = Representation::JSON.content_type(ResponseKind::Watch);
const PROTOBUF: &str =
    Representation { encoding: Encoding::Protobuf, view: View::Whole }.content_type(ResponseKind::Watch);
/// The length in front of each event in protobuf, big-endian.
const LENGTH_LEN: usize = 4;

/// Upstream's body.
#[derive(Debug)]
pub(super) struct Relayed {
    upstream: ForwardedBody,
    /// Only for a watch whose events can be told apart.
    drain: Option<Box<EndsAtDrain>>,
}

#[derive(Debug)]
struct EndsAtDrain {
    events: Events,
    end: End,
}

#[derive(Debug)]
enum End {
    AtDrain(Pin<Box<WaitForCancellationFutureOwned>>, Spread),
    /// The gateway drains; the watch ends when its turn comes.
    At(Pin<Box<Sleep>>),
    Now,
}

/// The client's position in the stream of events.
#[derive(Debug)]
enum Events {
    /// JSON, one event a line.
    Lines { is_between: bool },
    /// Protobuf, a length in front of each event. `head` holds the received bytes of a length, `left` counts the
    /// outstanding bytes of an event.
    Lengths { head: Vec<u8>, left: usize },
}

impl Relayed {
    /// Upstream's answer. With `draining`, a watch ends in its turn after that token is cancelled.
    pub(super) fn answer(
        answer: Response<ForwardedBody>,
        draining: Option<(&CancellationToken, &Spread)>,
    ) -> Response<Self> {
        let drain = draining.and_then(|(draining, spread)| {
            let events = Events::of(&answer)?;
            let end = End::AtDrain(Box::pin(draining.clone().cancelled_owned()), spread.clone());
            Some(Box::new(EndsAtDrain { events, end }))
        });
        answer.map(|upstream| Self { upstream, drain })
    }

    pub(super) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.drain.as_mut().is_some_and(|drain| drain.poll_end(context)) {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.upstream).poll_frame(context));
        if let Some(drain) = &mut self.drain
            && let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            drain.events.push(bytes);
        }
        Poll::Ready(frame)
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.upstream.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.upstream.size_hint()
    }
}

impl EndsAtDrain {
    fn poll_end(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            self.end = match &mut self.end {
                End::AtDrain(draining, spread) => match draining.poll_unpin(context) {
                    Poll::Ready(()) => spread.turn().map_or(End::Now, |turn| End::At(Box::pin(sleep_until(turn)))),
                    Poll::Pending => return false,
                },
                End::At(turn) => match turn.poll_unpin(context) {
                    Poll::Ready(()) => End::Now,
                    Poll::Pending => return false,
                },
                End::Now => return self.events.is_between(),
            }
        }
    }
}

impl Events {
    fn of<B>(answer: &Response<B>) -> Option<Self> {
        let headers = answer.headers();
        if answer.status() != StatusCode::OK
            || [header::CONTENT_ENCODING, header::CONTENT_LENGTH].iter().any(|name| headers.contains_key(name))
        {
            return None;
        }
        match headers.get(header::CONTENT_TYPE)?.to_str().ok()? {
            JSON => Some(Self::Lines { is_between: true }),
            PROTOBUF => Some(Self::Lengths { head: Vec::new(), left: 0 }),
            _ => None,
        }
    }

    fn push(&mut self, mut bytes: &[u8]) {
        match self {
            Self::Lines { is_between } => *is_between = bytes.last().map_or(*is_between, |last| *last == b'\n'),
            Self::Lengths { head, left } => {
                while !bytes.is_empty() {
                    let wanted = if *left > 0 { *left } else { LENGTH_LEN - head.len() };
                    let (taken, rest) = bytes.split_at(wanted.min(bytes.len()));
                    bytes = rest;
                    if *left > 0 {
                        *left -= taken.len();
                        continue;
                    }
                    head.extend_from_slice(taken);
                    if let Some(length) = head.first_chunk::<LENGTH_LEN>() {
                        *left = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
                        head.clear();
                    }
                }
            }
        }
    }

    fn is_between(&self) -> bool {
        match self {
            Self::Lines { is_between } => *is_between,
            Self::Lengths { head, left } => head.is_empty() && *left == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(content_type: &str) -> Events {
        Events::of(&Response::builder().header(header::CONTENT_TYPE, content_type).body(()).unwrap()).unwrap()
    }

    /// After each byte, and after each byte but in pieces of three.
    #[test]
    fn a_drained_stream_ends_between_events() {
        let framed = |event: &[u8]| [&u32::try_from(event.len()).unwrap().to_be_bytes(), event].concat();
        for (content_type, events) in [
            (JSON, vec![b"{}\n".to_vec(), b"{\"a\":1}\n".to_vec()]),
            (PROTOBUF, vec![framed(b"first"), framed(b""), framed(&[b'x'; 300])]),
        ] {
            let stream = events.concat();
            let ends = events.iter().scan(0, |at, event| {
                *at += event.len();
                Some(*at)
            });
            let ends = Vec::from_iter(std::iter::once(0).chain(ends));
            for piece in [1, 3, 7] {
                let mut read = of(content_type);
                let mut at = 0;
                for bytes in stream.chunks(piece) {
                    assert_eq!(read.is_between(), ends.contains(&at), "{content_type} at {at}");
                    read.push(bytes);
                    at += bytes.len();
                }
                assert!(read.is_between());
            }
        }
    }

    #[test]
    fn other_streams_than_watches_are_not_cut() {
        for (status, name, value) in
            [(200, "content-type", "text/plain"), (403, "content-type", JSON), (200, "content-encoding", "gzip")]
        {
            let answer = Response::builder().status(status).header(name, value).body(()).unwrap();
            assert!(Events::of(&answer).is_none(), "{status} {name}: {value}");
        }
    }
}
