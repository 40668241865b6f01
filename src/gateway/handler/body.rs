//! The body of every response: counts the bytes sent, and finishes the request's record when it ends.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};

use super::{relayed::Relayed, request_record::RequestRecord, served::Served};
use base::telemetry::Outcome;

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
