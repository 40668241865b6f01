//! One connection, driven by the task that waits for data on it.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1},
};

use super::gate::Gate;
use crate::connector::{RequestBody, connection_closer::Breaks, dialer::UpstreamStream};

/// A connection that is assumed to be open.
pub(super) struct Connection {
    sender: http1::SendRequest<RequestBody>,
    /// `None` after it has ended. Dropping it completes pending requests with the outcome.
    driver: Option<http1::Connection<UpstreamStream, RequestBody>>,
    gate: Gate,
    /// Tells that it is not to be used any more.
    breaks: Breaks,
}

/// An answer whose body has not arrived, and its connection; or an error, with the request if nothing of it was sent.
type Sent = Result<(Response<Incoming>, Box<Connection>), TrySendError<Request<RequestBody>>>;

impl Connection {
    pub(super) fn new(
        sender: http1::SendRequest<RequestBody>,
        driver: http1::Connection<UpstreamStream, RequestBody>,
        breaks: Breaks,
    ) -> Self {
        Self { sender, driver: Some(driver), gate: Gate::new(), breaks }
    }

    /// Whether no other request is to be sent on it.
    pub(super) fn is_left(&self) -> bool {
        self.breaks.is_left()
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(mut self: Box<Self>, request: Request<RequestBody>) -> Sent {
        let mut answer = pin!(self.sender.try_send_request(request));
        let answer = poll_fn(|context| self.poll_for(context, |noop| answer.as_mut().poll(noop))).await?;
        Ok((answer, self))
    }

    /// The next frame of an answer on this connection.
    pub(super) fn poll_frame(
        &mut self,
        incoming: &mut Incoming,
        context: &Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.poll_for(context, |noop| Pin::new(&mut *incoming).poll_frame(noop))
    }

    /// Drives the connection until `ready` is. Only the connection makes it ready, so it needs no separate
    /// waker.
    fn poll_for<T>(&mut self, context: &Context<'_>, mut ready: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let noop = &mut Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(result) = ready(noop) {
                return Poll::Ready(result);
            }
            self.drive();
            if let Poll::Ready(result) = ready(noop) {
                return Poll::Ready(result);
            }
            if self.gate.sleep(context) {
                return Poll::Pending;
            }
        }
    }

    /// Stays open without a request: the task of `context` is woken when something happens on it. False if it cannot
    /// send another request.
    pub(super) fn rest(&mut self, context: &Context<'_>) -> bool {
        loop {
            self.drive();
            if self.driver.is_none() || !self.sender.is_ready() {
                return false;
            }
            if self.gate.sleep(context) {
                return true;
            }
        }
    }

    /// Whether something has happened on it since it rests.
    pub(super) fn is_called(&self) -> bool {
        self.gate.is_called()
    }

    /// Begins to be used again: what happens on it no longer wakes the task of [`Self::rest`].
    pub(super) fn rouse(&self) {
        self.gate.rouse();
    }

    /// Reads and writes as much as it can without waiting.
    fn drive(&mut self) {
        let mut context = self.gate.open();
        if let Some(driver) = &mut self.driver
            && Pin::new(driver).poll(&mut context).is_ready()
        {
            self.driver = None;
        }
    }
}
