//! An answer from memory, with everything that is held until the client has read it.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::account::InFlight;
use crate::{fairness::Room, serve};

/// The body of an answer from memory.
#[derive(Debug)]
pub(super) struct Served {
    body: serve::Body,
    _in_flight: InFlight,
    _room: Room,
}

impl Served {
    /// `room` is for the bytes that the body holds for itself.
    pub(super) fn new(body: serve::Body, in_flight: InFlight, room: Room) -> Self {
        Self { body, _in_flight: in_flight, _room: room }
    }
}

impl Body for Served {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
