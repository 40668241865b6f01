//! The body of every response: counts the bytes sent, and finishes the request's record when it ends.

use std::{
    convert::Infallible,
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Response;
use http_body::{Frame, SizeHint};

use super::{accounting::InFlight, relayed::Relayed, request_record::RequestRecord};
use crate::serve::{self, ClientReadConcurrency};
use base::{
    fairness::{ReservedBytes, Turn},
    telemetry::Outcome,
};

/// The body that is sent to the client.
#[derive(Debug)]
pub struct Body {
    inner: Inner,
    /// Writes its line when dropped: at the end of the body, or when the client has gone.
    record: RequestRecord,
}

/// The source of a body.
#[derive(Debug)]
pub(super) enum Inner {
    Served(Served),
    Forwarded(Relayed),
    Rejected(Bytes),
}

/// The body of an answer from memory, with everything that is held until the client has read it.
pub(super) struct Served {
    body: serve::Body,
    turns: ClientReadConcurrency,
    /// The wait for the turn in which the next piece is made.
    waiting: Option<BoxFuture<'static, Turn>>,
    _in_flight: InFlight,
    _room: ReservedBytes,
}

impl Body {
    /// The answer as it goes out; `record` notes it and travels with it.
    pub(super) fn answer(
        mut record: RequestRecord,
        outcome: Outcome,
        reason: Option<&'static str>,
        answer: Response<Inner>,
    ) -> Response<Self> {
        record.answered(outcome, reason, &answer);
        answer.map(|inner| Self { inner, record })
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let frame = ready!(match &mut this.inner {
            Inner::Served(body) => Pin::new(body).poll_frame(context).map_err(|never| match never {}),
            Inner::Forwarded(body) => body.poll_frame(context).map_err(BoxError::from),
            Inner::Rejected(bytes) => {
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(std::mem::take(bytes)))))
            }
        });
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            this.record.count(bytes.len());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Served(body) => body.is_end_stream(),
            Inner::Forwarded(body) => body.is_end_stream(),
            Inner::Rejected(bytes) => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Served(body) => body.size_hint(),
            Inner::Forwarded(body) => body.size_hint(),
            Inner::Rejected(bytes) => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

impl Served {
    /// `turns` are those of the client, `room` is for the bytes that the body holds for itself.
    pub(super) fn new(
        body: serve::Body,
        turns: ClientReadConcurrency,
        in_flight: InFlight,
        room: ReservedBytes,
    ) -> Self {
        Self { body, turns, waiting: None, _in_flight: in_flight, _room: room }
    }

    /// Waits for a turn if making the next piece takes time.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Option<Turn>> {
        if !self.body.is_work() {
            return Poll::Ready(None);
        }
        let turns = &self.turns;
        let waiting = self.waiting.get_or_insert_with(|| {
            let turns = turns.clone();
            Box::pin(async move { turns.take().await })
        });
        let turn = ready!(waiting.as_mut().poll(context));
        self.waiting = None;
        Poll::Ready(Some(turn))
    }
}

impl http_body::Body for Served {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let served = self.get_mut();
        // Given back after each piece, so that a client that does not read does not keep it.
        let _turn = ready!(served.poll_turn(context));
        Pin::new(&mut served.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.body.fmt(formatter)
    }
}
