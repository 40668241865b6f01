//! How long an answer may stay unread.
//!
//! An answer that ends by itself holds memory, a stream and shares until the client has read it. As API servers end requests
//! after `--request-timeout` (60 s, read-path 6), an answer has its time from its head on; then its stream is reset, or its
//! HTTP/1.1 connection closed. Answers that last as long as the client likes ([`LongRunning`]) have none.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt, future};
use http::Response;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::activity::Activity;
use crate::telemetry;

/// The name of the limit in the metrics.
const LIMIT: &str = "answer_seconds";

/// Put into a response's extensions by a handler: the answer may last as long as the client likes.
#[derive(Clone, Copy, Debug)]
pub struct LongRunning;

/// An answer under way, from its request to the end of its body.
#[derive(Debug)]
pub(super) struct Answer {
    activity: Arc<Activity>,
    /// Set when there is a head, unless the answer is long-running.
    deadline: OnceLock<Instant>,
}

/// The answer to the request that came last on a connection. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Latest(Arc<Mutex<Weak<Answer>>>);

/// A body that tells when it ends.
///
/// On HTTP/2 the last byte of an answer is a frame of its own: what has been handed to the stream is kept until the client takes
/// it, and nothing would end a stream whose body is over. The last byte is asked for when the client has taken the others.
#[derive(Debug)]
pub struct AnswerBody<B> {
    body: B,
    /// Whether a frame that may be the last one is split.
    splits: bool,
    last: Option<Bytes>,
    _answer: Arc<Answer>,
}

/// A frame of no more bytes than this is not split.
const WHOLE: usize = 1 << 10;

impl Answer {
    pub(super) fn begin(activity: Arc<Activity>) -> Arc<Self> {
        activity.request_came();
        Arc::new(Self { activity, deadline: OnceLock::new() })
    }

    /// The answer has a head: from now on the client has `time` to read it.
    pub(super) fn respond<B>(
        self: Arc<Self>,
        mut response: Response<B>,
        time: Duration,
        is_http2: bool,
    ) -> Response<AnswerBody<B>> {
        let is_brief = response.extensions_mut().remove::<LongRunning>().is_none();
        if is_brief {
            self.deadline.get_or_init(|| Instant::now() + time);
        }
        response.map(|body| AnswerBody { body, splits: is_brief && is_http2, last: None, _answer: self })
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.activity.answer_ended();
    }
}

impl Latest {
    pub(super) fn set(&self, answer: &Arc<Answer>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(answer);
    }

    pub(super) fn get(&self) -> Option<Arc<Answer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}

/// Waits for the end of an answer's time; no timer is made for an answer that is read at once.
#[derive(Debug, Default)]
pub(super) struct Overdue(Option<Pin<Box<Sleep>>>);

impl Overdue {
    /// Ready when the time of `answer` is over. To be polled when what sends it is pending.
    pub(super) fn poll(&mut self, answer: Option<&Answer>, context: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = answer.and_then(|answer| answer.deadline.get().copied()) else { return Poll::Pending };
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        let over = timer.as_mut().poll(context);
        if over.is_ready() {
            telemetry::limit_reached(LIMIT);
        }
        over
    }
}

/// The task of an HTTP/2 stream, until its answer's time is over: it is dropped then, which resets the stream.
///
/// Two futures side by side, not an async block, which would have room for the task twice: there is one for each stream.
pub(super) fn in_time(task: impl Future<Output = ()>, answer: Option<Arc<Answer>>) -> impl Future<Output = ()> {
    let mut overdue = Overdue::default();
    let time = future::poll_fn(move |context| overdue.poll(answer.as_deref(), context).map(|()| ENDED));
    // Whichever is ready ends both; the task is polled first.
    future::try_join(task.map(|()| ENDED), time).map(|_| ())
}

/// What ends both futures of [`in_time`].
const ENDED: Result<(), ()> = Err(());

impl<B: Body<Data = Bytes> + Unpin> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if let Some(last) = this.last.take() {
            return Poll::Ready(Some(Ok(Frame::data(last))));
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        let may_be_last = || this.body.is_end_stream() || this.body.size_hint().exact().is_none();
        Poll::Ready(match frame {
            Some(Ok(frame)) if this.splits && may_be_last() => Some(Ok(match frame.into_data() {
                Ok(mut data) if data.len() > WHOLE => {
                    this.last = Some(data.split_off(data.len() - 1));
                    Frame::data(data)
                }
                Ok(data) => Frame::data(data),
                Err(frame) => frame,
            })),
            other => other,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, held) = (self.body.size_hint(), self.last.as_ref().map_or(0, Bytes::len) as u64);
        match hint.exact() {
            Some(left) => SizeHint::with_exact(left + held),
            None => hint,
        }
    }
}
