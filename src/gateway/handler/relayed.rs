//! The body of a forwarded answer, as it goes on to the client. A watch ends between two events, as the API server ends
//! its own: in its turn when the gateway drains, and when the client can resume it from memory.

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

use super::{
    kept_discovery::{AskedDiscovery, KeepingDiscovery},
    resumption::Resumption,
};
use crate::{forward::ForwardedBody, serve::RelayedPosition};
use base::{
    apimachinery::{Encoding, Representation, ResponseKind, View},
    lifecycle::Spread,
};

/// Upstream's body.
#[derive(Debug)]
pub(super) struct Relayed {
    upstream: ForwardedBody,
    /// Only for a watch whose events can be told apart.
    watch: Option<Box<Watch>>,
    /// Only for discovery.
    kept: Option<Box<KeepingDiscovery>>,
}

/// A watch that is relayed.
#[derive(Debug)]
struct Watch {
    position: RelayedPosition,
    drain: Drain,
    /// `None` if memory will not answer the watch later either.
    resumption: Option<Resumption>,
    /// Whether it ends as soon as no event is relayed only in part.
    is_over: bool,
}

#[derive(Debug)]
enum Drain {
    Awaited(Pin<Box<WaitForCancellationFutureOwned>>, Spread),
    /// The gateway drains; the watch ends when its turn comes.
    Turn(Pin<Box<Sleep>>),
}

impl Relayed {
    /// Upstream's answer, as it is. That to a question of discovery is kept.
    pub(super) fn whole(answer: Response<ForwardedBody>, asked: Option<AskedDiscovery>) -> Response<Self> {
        let kept = asked.and_then(|asked| asked.keep(&answer)).map(Box::new);
        answer.map(|upstream| Self { upstream, watch: None, kept })
    }

    /// Upstream's answer to a watch, which ends in its turn after `draining` is cancelled, or when there is a
    /// `resumption`.
    pub(super) fn watch(
        answer: Response<ForwardedBody>,
        draining: &CancellationToken,
        spread: &Spread,
        resumption: Option<Resumption>,
    ) -> Response<Self> {
        let watch = encoding(&answer).map(|encoding| {
            let position = RelayedPosition::new(encoding);
            let position = match &resumption {
                Some(resumption) => resumption.followed(position),
                None => position,
            };
            let drain = Drain::Awaited(Box::pin(draining.clone().cancelled_owned()), spread.clone());
            Box::new(Watch { position, drain, resumption, is_over: false })
        });
        answer.map(|upstream| Self { upstream, watch, kept: None })
    }

    pub(super) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.watch.as_mut().is_some_and(|watch| watch.ends(context)) {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.upstream).poll_frame(context));
        if let Some(watch) = &mut self.watch
            && let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            watch.position.push(bytes);
        }
        self.keep(frame.as_ref());
        Poll::Ready(frame)
    }

    /// Keeps the bytes of a frame. One that is the last is often not followed by a question for the next.
    fn keep(&mut self, frame: Option<&Result<Frame<Bytes>, hyper::Error>>) {
        let Some(mut kept) = self.kept.take() else { return };
        let bytes = match frame {
            Some(Ok(frame)) => frame.data_ref(),
            Some(Err(_)) => return,
            None => None,
        };
        if bytes.is_some_and(|bytes| !kept.push(bytes)) {
            return;
        }
        match frame.is_none() || self.upstream.is_end_stream() {
            true => kept.end(),
            false => self.kept = Some(kept),
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.upstream.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.upstream.size_hint()
    }
}

impl Watch {
    /// Whether the watch ends here.
    fn ends(&mut self, context: &mut Context<'_>) -> bool {
        let version = self.position.version();
        self.is_over = self.is_over
            || self.drain.poll(context).is_ready()
            || self.resumption.as_mut().is_some_and(|resumption| resumption.poll(context, version).is_ready());
        self.is_over && self.position.is_between_events()
    }
}

impl Drain {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match self {
                Self::Awaited(draining, spread) => {
                    ready!(draining.poll_unpin(context));
                    let Some(turn) = spread.turn() else { return Poll::Ready(()) };
                    *self = Self::Turn(Box::pin(sleep_until(turn)));
                }
                Self::Turn(turn) => return turn.poll_unpin(context),
            }
        }
    }
}

/// The encoding of a stream of events; `None` if they cannot be told apart.
fn encoding<B>(answer: &Response<B>) -> Option<Encoding> {
    let headers = answer.headers();
    if answer.status() != StatusCode::OK
        || [header::CONTENT_ENCODING, header::CONTENT_LENGTH].iter().any(|name| headers.contains_key(name))
    {
        return None;
    }
    let content_type = headers.get(header::CONTENT_TYPE)?;
    let is_of = |encoding: &Encoding| {
        content_type == Representation { encoding: *encoding, view: View::Whole }.content_type(ResponseKind::Watch)
    };
    Encoding::ALL.into_iter().find(is_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_streams_than_watches_are_not_cut() {
        let found = |status: u16, name: &str, value: &str| {
            let answer = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
            let mut answer = answer.body(()).unwrap();
            let name = header::HeaderName::try_from(name).unwrap();
            answer.headers_mut().insert(name, value.parse().unwrap());
            encoding(&answer)
        };
        assert_eq!(found(200, "audit-id", "1"), Some(Encoding::Json));
        let protobuf = "application/vnd.kubernetes.protobuf;stream=watch";
        assert_eq!(found(200, "content-type", protobuf), Some(Encoding::Protobuf));
        for (status, name, value) in
            [(200, "content-type", "text/plain"), (403, "audit-id", "1"), (200, "content-encoding", "gzip")]
        {
            assert_eq!(found(status, name, value), None, "{status} {name}: {value}");
        }
    }
}
