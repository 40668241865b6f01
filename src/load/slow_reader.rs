//! Slow readers: clients that read a response more slowly than the server could send it, or stop reading for a while.

use std::{sync::Arc, time::Duration};

use http_body_util::BodyExt;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};

use crate::{
    channel::{Channel, OpenResponse},
    endpoint::RequestSpec,
    failure::Failure,
    frames::{Event, Frames},
    paths,
    profile::{SlowReaderWork, SlowRequest, Transport},
    read,
    recorder::{End, Recorder},
    schedule::{pause_before_retry, stagger},
    watch::First,
};

/// The slow readers of one workload in one turn.
#[derive(Debug)]
pub(super) struct SlowReaders {
    pub(super) work: SlowReaderWork,
    pub(super) transport: Transport,
    /// The newest version at the start of the turn; `None` if the server did not report it, so that each client asks.
    pub(super) newest: Option<String>,
    /// The maximum time to the head of a response.
    pub(super) timeout: Duration,
    pub(super) recorder: Arc<Recorder>,
    /// Clients that are started per second; `None`: all at once.
    pub(super) rate: Option<f64>,
    /// Receives one permit for each client that has the head of a response for the first time, or has failed.
    pub(super) standing: Arc<Semaphore>,
}

impl SlowReaders {
    /// Keeps one client reading until it is dropped.
    pub(super) async fn keep(self: Arc<Self>, channel: Arc<Channel>, client: usize) {
        stagger(self.rate, client).await;
        let (selectors, mut newest) = (paths::selectors(&self.work.selection, client), self.newest.clone());
        let mut first = Some(First(&self.standing));
        if newest.is_none() {
            drop(first.take());
            pause_before_retry().await;
        }
        loop {
            let asked = Instant::now();
            let answer = timeout(self.timeout, self.open(&channel, &mut newest, &selectors)).await;
            drop(first.take());
            let ended = match answer.unwrap_or_else(|_| Err(Failure::timeout())) {
                Ok(answer) => self.take(&channel, answer, asked).await,
                Err(failure) => Err(failure),
            };
            if let Err(failure) = ended {
                self.recorder.failed(failure, asked.elapsed());
                pause_before_retry().await;
            }
        }
    }

    fn path(&self, newest: &str, selectors: &str) -> String {
        let SlowReaderWork { selection, request, .. } = &self.work;
        let query = match request {
            SlowRequest::List(version) => paths::version(*version, newest),
            SlowRequest::Watch(start) => paths::start(*start, newest),
        };
        let path = paths::collection(&selection.resource, selection.namespace.as_deref());
        paths::with_query(&path, &[&query, selectors])
    }

    async fn open(
        &self,
        channel: &Channel,
        newest: &mut Option<String>,
        selectors: &str,
    ) -> Result<OpenResponse, Failure> {
        let version = match newest {
            Some(version) => version,
            None => newest.insert(read::newest(channel, &self.work.selection).await?),
        };
        let path = self.path(version, selectors);
        let Transport { encoding, gzip, .. } = self.transport;
        let accept = encoding.accept(matches!(self.work.request, SlowRequest::List(_)));
        channel.open(&RequestSpec { accept, gzip, ..RequestSpec::get(&path) }).await
    }

    /// Reads a response slowly and records what ended it.
    async fn take(&self, channel: &Channel, mut answer: OpenResponse, asked: Instant) -> Result<(), Failure> {
        let first_byte = asked.elapsed();
        self.recorder.lock().reading += 1;
        let is_watch = matches!(self.work.request, SlowRequest::Watch(_));
        if is_watch {
            self.recorder.answered(first_byte, first_byte, 0);
        }
        let ended = self.read(&mut answer, is_watch).await;
        let end = match &ended {
            Ok(()) if is_watch => End::Closed,
            Ok(()) => End::Complete,
            Err(failure) => End::Error(failure.kind),
        };
        {
            let mut recorded = self.recorder.lock();
            recorded.reading = recorded.reading.saturating_sub(1);
            *recorded.ends.entry(end).or_default() += 1;
            recorded.ended += u64::from(end == End::Closed);
        }
        if end == End::Complete {
            self.recorder.answered(asked.elapsed(), first_byte, 0);
            channel.done(answer).await;
        }
        ended
    }

    async fn read(&self, answer: &mut OpenResponse, is_watch: bool) -> Result<(), Failure> {
        let mut frames = Frames::new(answer.is_protobuf());
        sleep(self.work.stop_for).await;
        while let Some(frame) = answer.response.body_mut().frame().await {
            let frame = frame.map_err(|error| Failure::stream(&error))?;
            let Some(data) = frame.data_ref() else { continue };
            let (mut events, mut refused) = (0, None);
            if is_watch {
                frames.push(data, |event| match event {
                    Event::Object { .. } | Event::Deleted => events += 1,
                    Event::Error { code } => refused = Some(code),
                    Event::Bookmark | Event::Synced => {}
                });
            }
            self.recorder.received(data.len(), events);
            if let Some(code) = refused {
                return Err(Failure::event(code));
            }
            if let Some(rate) = self.work.bytes_per_second {
                sleep(Duration::from_secs_f64(data.len() as f64 / rate as f64)).await;
            }
        }
        Ok(())
    }
}
