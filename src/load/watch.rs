//! Watches, each of which is read as fast as it brings anything, and opened again when it has ended.

use std::{ops::Range, sync::Arc, time::Duration};

use http::header;
use http_body_util::BodyExt;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};

use super::{
    connection::{Answer, Lane},
    endpoint::Ask,
    failure::{ErrorKind, Failure},
    frames::{Event, Frames},
    paths,
    profile::{Start, Transport, WatchWork},
    recorder::{Recorded, Recorder, now},
};

/// A watch that failed is opened again after a while of about a second, as client-go does: not all at once.
const RETRY_MILLISECONDS: Range<u64> = 500..1500;

/// The watches of one workload in one turn.
#[derive(Debug)]
pub(super) struct Watches {
    pub(super) work: WatchWork,
    pub(super) transport: Transport,
    /// The newest version when the turn began.
    pub(super) newest: String,
    /// Longest time to the head of an answer.
    pub(super) timeout: Duration,
    pub(super) recorder: Arc<Recorder>,
    /// Watches that are opened a second; None: all at once.
    pub(super) rate: Option<f64>,
    /// One permit for each watch that stands for the first time, with its initial objects if it says when they have come, or that
    /// cannot be had.
    pub(super) standing: Arc<Semaphore>,
}

impl Watches {
    /// Keeps the watch of one client open until it is dropped.
    pub(super) async fn keep(self: Arc<Self>, lane: Arc<Lane>, client: usize) {
        let WatchWork { selection, start } = &self.work;
        let path = paths::collection(&selection.resource, selection.namespace.as_deref());
        let query = [&*paths::start(*start, &self.newest), &*paths::selectors(selection, client)];
        let path = paths::with_query(&path, &query);
        if let Some(rate) = self.rate {
            sleep(Duration::from_secs_f64(client as f64 / rate)).await;
        }
        let mut first = Some(First(&self.standing));
        loop {
            let asked = Instant::now();
            let ended = match self.open(&lane, &path).await {
                Ok(answer) => {
                    first = first.filter(|_| *start == Start::WatchList);
                    self.read(answer, asked, &mut first).await
                }
                Err(failure) => Err(failure),
            };
            drop(first.take());
            match ended {
                Ok(()) => self.recorder.lock().ended += 1,
                Err(failure) => {
                    self.recorder.failed(failure, asked.elapsed());
                    sleep(Duration::from_millis(fastrand::u64(RETRY_MILLISECONDS))).await;
                }
            }
        }
    }

    async fn open(&self, lane: &Lane, path: &str) -> Result<Answer, Failure> {
        let Transport { encoding, gzip, .. } = self.transport;
        let ask = Ask { accept: encoding.accept(false), gzip, ..Ask::get(path) };
        let asked = Instant::now();
        let answer = timeout(self.timeout, lane.open(&ask)).await.unwrap_or_else(|_| Err(Failure::timeout()))?;
        let latency = asked.elapsed();
        self.recorder.answered(latency, latency, 0);
        Ok(answer)
    }

    /// Reads until the watch ends.
    async fn read(&self, mut answer: Answer, asked: Instant, first: &mut Option<First<'_>>) -> Result<(), Failure> {
        let content_type = answer.response.headers().get(header::CONTENT_TYPE);
        let is_protobuf =
            content_type.is_some_and(|of| of.as_bytes().starts_with(b"application/vnd.kubernetes.protobuf"));
        let mut frames = Frames::new(is_protobuf);
        while let Some(frame) = answer.response.body_mut().frame().await {
            let frame = frame.map_err(|error| Failure::stream(&error))?;
            let Some(data) = frame.data_ref() else { continue };
            let (came, since) = (now(), self.recorder.since());
            let (mut refused, mut recorded) = (None, self.recorder.lock());
            recorded.bytes += data.len() as u64;
            frames.push(data, |event| match event {
                Event::Synced => {
                    recorded.sync.add(asked.elapsed());
                    drop(first.take());
                }
                Event::Bookmark => {}
                Event::Error { code } => refused = Some(code),
                Event::Deleted => recorded.events += u64::from(since.is_some()),
                Event::Object { sent } => object(&mut recorded, since, sent, came),
            });
            drop(recorded);
            if let Some(code) = refused {
                let message = "an ERROR event ended the watch".to_owned();
                return Err(Failure { kind: ErrorKind::Event(code), message });
            }
        }
        Ok(())
    }
}

/// A watch that does not stand yet for the first time.
#[derive(Debug)]
struct First<'a>(&'a Semaphore);

impl Drop for First<'_> {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

fn object(recorded: &mut Recorded, since: Option<u64>, sent: Option<u64>, came: u64) {
    let Some(since) = since else { return };
    recorded.events += 1;
    if let Some(sent) = sent.filter(|sent| *sent >= since) {
        recorded.delay.add(Duration::from_nanos(came.saturating_sub(sent)));
    }
}
