//! An answer from memory, with everything that is held until the client has read it.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};

use super::accounting::InFlight;
use crate::serve::{self, ClientReadConcurrency};
use base::fairness::{ReservedBytes, Turn};

/// The body of an answer from memory.
pub(super) struct Served {
    body: serve::Body,
    turns: ClientReadConcurrency,
    /// The wait for the turn in which the next piece is made.
    waiting: Option<BoxFuture<'static, Turn>>,
    _in_flight: InFlight,
    _room: ReservedBytes,
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

impl Body for Served {
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
