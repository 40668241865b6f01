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
    read,
    recorder::{Recorder, now},
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
        if let Some(rate) = self.rate {
            sleep(Duration::from_secs_f64(client as f64 / rate)).await;
        }
        let selectors = paths::selectors(&self.work.selection, client);
        let mut progress = Progress { first: Some(First(&self.standing)), newest: 0, told: 0 };
        let mut newest = self.newest.clone();
        loop {
            let asked = Instant::now();
            let ended = match self.open(&lane, &self.path(&newest, &selectors)).await {
                Ok(answer) => {
                    progress.opened(self.work.start);
                    self.read(answer, asked, &mut progress).await
                }
                Err(failure) => Err(failure),
            };
            drop(progress.first.take());
            match ended {
                Ok(()) => self.recorder.lock().ended += 1,
                Err(failure) => {
                    self.recorder.failed(failure, asked.elapsed());
                    sleep(Duration::from_millis(fastrand::u64(RETRY_MILLISECONDS))).await;
                }
            }
            if self.work.start == Start::Now {
                // The old one may be too old by now. If there is no newer one to be had, the watch fails in its own words.
                let asked = timeout(self.timeout, read::newest(&lane, &self.work.selection.resource)).await;
                newest = asked.ok().and_then(Result::ok).unwrap_or(newest);
            }
        }
    }

    fn path(&self, newest: &str, selectors: &str) -> String {
        let WatchWork { selection, start } = &self.work;
        let path = paths::collection(&selection.resource, selection.namespace.as_deref());
        paths::with_query(&path, &[&paths::start(*start, newest), selectors])
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
    async fn read(&self, mut answer: Answer, asked: Instant, progress: &mut Progress<'_>) -> Result<(), Failure> {
        let content_type = answer.response.headers().get(header::CONTENT_TYPE);
        let is_protobuf =
            content_type.is_some_and(|of| of.as_bytes().starts_with(b"application/vnd.kubernetes.protobuf"));
        let mut frames = Frames::new(is_protobuf);
        let mut delays = Vec::new();
        while let Some(frame) = answer.response.body_mut().frame().await {
            let frame = frame.map_err(|error| Failure::stream(&error))?;
            let Some(data) = frame.data_ref() else { continue };
            let (came, since, at) = (now(), self.recorder.since(), self.recorder.at());
            let (mut events, mut refused, mut synced) = (0, None, false);
            frames.push(data, |event| match event {
                Event::Synced => synced = true,
                Event::Bookmark => {}
                Event::Error { code } => refused = Some(code),
                Event::Deleted => events += 1,
                Event::Object { sent } => {
                    events += 1;
                    let sent = sent.filter(|sent| since.is_some_and(|since| *sent >= since));
                    delays.extend(sent.filter(|sent| progress.is_new(*sent)).map(|sent| came.saturating_sub(sent)));
                }
            });
            let mut recorded = self.recorder.lock();
            recorded.bytes += data.len() as u64;
            recorded.events += if since.is_some() { events } else { 0 };
            delays.drain(..).for_each(|delay| recorded.delay(at, Duration::from_nanos(delay)));
            if synced {
                recorded.sync.add(asked.elapsed());
                drop(progress.first.take());
            }
            drop(recorded);
            if let Some(code) = refused {
                let message = "an ERROR event ended the watch".to_owned();
                return Err(Failure { kind: ErrorKind::Event(code), message });
            }
        }
        Ok(())
    }
}

/// How far the watch of a client has come, over all its openings.
struct Progress<'a> {
    first: Option<First<'a>>,
    /// The newest write that it has been told of.
    newest: u64,
    /// The same when it was opened: what it is told of again as it begins anew does not count again.
    told: u64,
}

impl Progress<'_> {
    fn opened(&mut self, start: Start) {
        self.told = self.newest;
        if start != Start::WatchList {
            drop(self.first.take());
        }
    }

    fn is_new(&mut self, sent: u64) -> bool {
        self.newest = self.newest.max(sent);
        sent > self.told
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
