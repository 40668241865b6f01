//! Limits how long an answer may stay unread.
//!
//! A finite answer holds memory, a stream and shares until the client has read it. API servers end requests after
//! `--request-timeout` (60 s, read-path 6); likewise an answer has a time limit, counted from its head. After it, the
//! answer's HTTP/2 stream is reset or its HTTP/1.1 connection closed. Answers that last as long as the client likes
//! ([`LongRunning`]) have no such limit, but may have one on how long the client takes nothing.

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt, future};
use http::{Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::{activity::Activity, in_flight::AnswerPlace};
use base::telemetry;

/// The metrics' name for the limit on finite answers.
const BRIEF_LIMIT: &str = "answer_seconds";
/// The metrics' name for the limit on long-running answers.
const UNREAD_LIMIT: &str = "unread_watch_seconds";

/// Response extension set by a handler: the answer may last as long as the client likes.
#[derive(Clone, Copy, Debug)]
pub struct LongRunning {
    /// How long the client may take nothing while data is waiting; `None` for no limit. It may take up to twice as long
    /// until that is noticed.
    pub unread_max: Option<Duration>,
}

/// An answer in flight, from its request to the end of its body.
#[derive(Debug)]
pub(super) struct Answer {
    activity: Arc<Activity>,
    /// Set with the response head. Stays empty for a long-running answer without a limit.
    time: OnceLock<Time>,
    /// Twice the number of frames handed over, plus one while the body has no further frame ready. Written by the body
    /// only.
    frames: AtomicU32,
}

/// The time limit of an answer.
#[derive(Clone, Copy, Debug)]
enum Time {
    Until(Instant),
    /// For each frame of a long-running answer.
    Each(Duration),
}

/// The answer to the latest request on a connection. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Latest(Arc<Mutex<Weak<Answer>>>);

/// A response body that tracks how far the client has taken it.
///
/// On HTTP/2 the last byte of a finite answer is sent as its own frame: a stream keeps what was handed to it until
/// the client takes it, and nothing would end a stream whose body is over. The last byte is asked for only when the
/// client has taken the others.
#[derive(Debug)]
pub struct AnswerBody<B> {
    /// `None` for an answer without a body, by which the listener itself refuses a request.
    body: Option<B>,
    /// Whether the last byte is split off.
    splits: bool,
    /// The place among those of its address. `None` if the answer does not count.
    place: Option<AnswerPlace>,
    /// Whether an empty frame is to be sent, which holds the place of an answer without a body until its head has left.
    is_bare: bool,
    last: Option<Bytes>,
    answer: Arc<Answer>,
}

/// An answer that is sent over HTTP/2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Http2 {
    /// Whether only the head was asked for.
    pub(super) is_head: bool,
}

/// Size in bytes up to which a frame is not split: about the memory that a stream itself takes. A second frame costs a
/// TLS record and a system call, which shows in gets of objects of ordinary size.
const WHOLE: usize = 8 << 10;

impl Answer {
    pub(super) fn begin(activity: Arc<Activity>) -> Arc<Self> {
        activity.request_came();
        Arc::new(Self { activity, time: OnceLock::new(), frames: AtomicU32::new(0) })
    }

    /// Called when there is a response head: from now on the client has `time` to read the answer.
    pub(super) fn respond<B>(
        self: Arc<Self>,
        mut response: Response<B>,
        place: AnswerPlace,
        time: Duration,
        http2: Option<Http2>,
    ) -> Response<AnswerBody<B>>
    where
        B: Body,
    {
        let long_running = response.extensions_mut().remove::<LongRunning>();
        let time = match long_running {
            None => Some(Time::Until(Instant::now() + time)),
            Some(LongRunning { unread_max }) => unread_max.map(Time::Each),
        };
        if let Some(time) = time {
            self.time.get_or_init(|| time);
        }
        let place = Some(place).filter(|_| long_running.is_none());
        let splits = long_running.is_none() && http2.is_some();
        // Where a length is announced that no bytes follow, as with 304, an empty frame is an error.
        let announces = response.headers().contains_key(header::CONTENT_LENGTH);
        let may_be_bare = splits && (!announces || http2.is_some_and(|http2| http2.is_head));
        response.map(|body| {
            let is_bare = may_be_bare && body.is_end_stream();
            AnswerBody { body: Some(body), splits, place, is_bare, last: None, answer: self }
        })
    }

    /// The answer to a request that is not passed on. It has no body: a client that does not read cannot hold it.
    /// A place, which only one over HTTP/2 may have, is held until the head has left.
    pub(super) fn refuse<B>(
        self: Arc<Self>,
        status: StatusCode,
        place: Option<AnswerPlace>,
    ) -> Response<AnswerBody<B>> {
        let is_bare = place.is_some();
        let body = AnswerBody { body: None, splits: false, place, is_bare, last: None, answer: self };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        response
    }

    fn handed_over(&self) {
        self.frames.store((self.frames.load(Relaxed) | 1).wrapping_add(1), Relaxed);
    }

    fn all_taken(&self) {
        self.frames.store(self.frames.load(Relaxed) | 1, Relaxed);
    }

    /// The frame count if the last frame waits for the client; `None` if all have been taken.
    fn unread(&self) -> Option<u32> {
        Some(self.frames.load(Relaxed)).filter(|frames| frames % 2 == 0)
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

/// Watches the time limit of an answer. An answer that is read at once needs no timer.
#[derive(Debug, Default)]
pub(super) struct Overdue {
    timer: Option<Pin<Box<Sleep>>>,
    /// The frame count when the timer was set.
    frames: u32,
}

impl Overdue {
    /// Ready when the time limit of `answer` has passed. To be polled when the future that sends the answer is pending.
    pub(super) fn poll(&mut self, answer: Option<&Answer>, context: &mut Context<'_>) -> Poll<()> {
        let Some((answer, time)) = answer.and_then(|answer| Some((answer, *answer.time.get()?))) else {
            return Poll::Pending;
        };
        match time {
            Time::Until(deadline) => {
                ready!(self.poll_at(deadline, context));
                telemetry::limit_reached(BRIEF_LIMIT);
            }
            Time::Each(unread_max) => {
                ready!(self.poll_each(answer, unread_max, context));
                telemetry::limit_reached(UNREAD_LIMIT);
            }
        }
        Poll::Ready(())
    }

    fn poll_at(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(context)
    }

    /// Compares frame counts each time the timer fires, rather than resetting it for each frame.
    fn poll_each(&mut self, answer: &Answer, unread_max: Duration, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let deadline = match &self.timer {
                Some(timer) => timer.deadline(),
                None => {
                    let Some(frames) = answer.unread() else { return Poll::Pending };
                    self.frames = frames;
                    Instant::now() + unread_max
                }
            };
            ready!(self.poll_at(deadline, context));
            if answer.unread() == Some(self.frames) {
                return Poll::Ready(());
            }
            self.timer = None;
        }
    }
}

/// Runs the task of an HTTP/2 stream until its answer's time limit has passed. Then the task is dropped, which resets
/// the stream.
///
/// Joins two futures rather than using an async block, which would reserve room for the task twice: there is one of
/// these per stream.
pub(super) fn in_time(task: impl Future<Output = ()>, answer: Option<Arc<Answer>>) -> impl Future<Output = ()> {
    let mut overdue = Overdue::default();
    let time = future::poll_fn(move |context| overdue.poll(answer.as_deref(), context).map(|()| ENDED));
    // The first to be ready ends both; the task is polled first.
    future::try_join(task.map(|()| ENDED), time).map(|_| ())
}

/// The error that makes [`in_time`] end both its futures.
const ENDED: Result<(), ()> = Err(());

impl<B> AnswerBody<B> {
    /// The last bytes of an answer over HTTP/2: they may wait for the client when the body is gone.
    fn counted(&self, bytes: Bytes) -> Bytes {
        match &self.place {
            Some(place) => place.holding(bytes),
            None => bytes,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if mem::take(&mut this.is_bare) {
            return Poll::Ready(Some(Ok(Frame::data(this.counted(Bytes::new())))));
        }
        if let Some(last) = this.last.take() {
            return Poll::Ready(Some(Ok(Frame::data(this.counted(last)))));
        }
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) else {
            this.answer.all_taken();
            return Poll::Pending;
        };
        this.answer.handed_over();
        let may_be_last = || body.is_end_stream() || body.size_hint().exact().is_none();
        Poll::Ready(match frame {
            Some(Ok(frame)) if this.splits && may_be_last() => Some(Ok(match frame.into_data() {
                Ok(mut data) if data.len() > WHOLE => {
                    this.last = Some(data.split_off(data.len() - 1));
                    Frame::data(data)
                }
                Ok(data) => Frame::data(this.counted(data)),
                Err(frame) => frame,
            })),
            other => other,
        })
    }

    fn is_end_stream(&self) -> bool {
        !self.is_bare && self.last.is_none() && self.body.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_bare {
            // The head says nothing of a length.
            return SizeHint::default();
        }
        let hint = self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), B::size_hint);
        let held = self.last.as_ref().map_or(0, Bytes::len) as u64;
        match hint.exact() {
            Some(left) => SizeHint::with_exact(left + held),
            None => hint,
        }
    }
}
