//! Watches: each is read as fast as data arrives, and opened again after it ended.

use std::{sync::Arc, time::Duration};

use http_body_util::BodyExt;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use crate::{
    channel::{Channel, OpenResponse},
    endpoint::RequestSpec,
    failure::Failure,
    frames::{Event, Frames},
    paths,
    profile::{Start, Transport, WatchWork},
    read,
    recorder::Recorder,
    schedule::{pause_before_retry, stagger},
    waits::Waiting,
};

/// The watches of one workload in one turn.
#[derive(Debug)]
pub(super) struct Watches {
    pub(super) work: WatchWork,
    pub(super) transport: Transport,
    /// The newest version at the start of the turn; `None` if the server did not report it, so that each client asks.
    pub(super) newest: Option<String>,
    /// The maximum time to the head of a response.
    pub(super) timeout: Duration,
    pub(super) recorder: Arc<Recorder>,
    /// Watches that are opened per second; `None`: all at once.
    pub(super) rate: Option<f64>,
    /// Receives one permit for each watch that is established for the first time, or has failed. A watch with
    /// `sendInitialEvents` is established once its initial objects have arrived.
    pub(super) standing: Arc<Semaphore>,
}

impl Watches {
    /// Keeps the watch of one client open until it is dropped.
    pub(super) async fn keep(self: Arc<Self>, channel: Arc<Channel>, client: usize) {
        let mut progress = Progress::new(First(&self.standing), self.recorder.client(client));
        stagger(self.rate, client).await;
        let selectors = paths::selectors(&self.work.selection, client);
        let mut newest = self.newest.clone();
        if newest.is_none() {
            progress.stands();
            pause_before_retry().await;
        }
        loop {
            let asked = Instant::now();
            let ended = self.follow(&channel, &mut newest, &selectors, &mut progress).await;
            progress.stands();
            match ended {
                Ok(()) => self.recorder.lock().ended += 1,
                Err(failure) => {
                    self.recorder.failed(failure, asked.elapsed());
                    pause_before_retry().await;
                }
            }
            if self.work.start == Start::Now && newest.is_some() {
                // The old version may have expired. If no newer one can be read, the watch fails with its own error.
                if let Ok(version) = self.newest(&channel).await {
                    newest = Some(version);
                    progress.skips_events(self.recorder.now());
                }
            }
        }
    }

    /// Opens the watch and reads it to its end.
    async fn follow(
        &self,
        channel: &Channel,
        newest: &mut Option<String>,
        selectors: &str,
        progress: &mut Progress<'_>,
    ) -> Result<(), Failure> {
        let version = match newest {
            Some(version) => version,
            None => newest.insert(self.newest(channel).await?),
        };
        if self.work.start == Start::WatchList {
            progress.wants_objects();
        }
        let answer = self.open(channel, &self.path(version, selectors)).await?;
        progress.opened(self.work.start != Start::Now);
        if self.work.start != Start::WatchList {
            progress.stands();
        }
        read(&self.recorder, answer, progress).await
    }

    async fn newest(&self, channel: &Channel) -> Result<String, Failure> {
        let asked = timeout(self.timeout, read::newest(channel, &self.work.selection));
        asked.await.unwrap_or_else(|_| Err(Failure::timeout()))
    }

    fn path(&self, newest: &str, selectors: &str) -> String {
        let WatchWork { selection, start } = &self.work;
        let path = paths::collection(&selection.resource, selection.namespace.as_deref());
        paths::with_query(&path, &[&paths::start(*start, newest), selectors])
    }

    async fn open(&self, channel: &Channel, path: &str) -> Result<OpenResponse, Failure> {
        let Transport { encoding, gzip, .. } = self.transport;
        let ask = RequestSpec { accept: encoding.accept(false), gzip, ..RequestSpec::get(path) };
        let asked = Instant::now();
        let answer = timeout(self.timeout, channel.open(&ask)).await.unwrap_or_else(|_| Err(Failure::timeout()))?;
        let latency = asked.elapsed();
        self.recorder.answered(latency, latency, 0);
        Ok(answer)
    }
}

/// Reads until the watch ends.
pub(super) async fn read(
    recorder: &Recorder,
    mut answer: OpenResponse,
    progress: &mut Progress<'_>,
) -> Result<(), Failure> {
    let mut frames = progress.frames(answer.is_protobuf(), recorder.run());
    let mut delays = Vec::new();
    while let Some(frame) = answer.response.body_mut().frame().await {
        let frame = frame.map_err(|error| Failure::stream(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        let (came, since, at) = (recorder.now(), recorder.since(), recorder.at());
        let (mut events, mut refused, mut synced) = (0, None, false);
        frames.push(data, |event| match event {
            Event::Synced => {
                progress.repeats = false;
                synced = true;
            }
            Event::Bookmark => {}
            Event::Error { code } => refused = Some(code),
            Event::Deleted => events += 1,
            Event::Object { sent } => {
                let is_new = sent.is_some_and(|sent| progress.is_new(sent));
                events += u64::from(is_new || !progress.repeats);
                let sent = sent.filter(|sent| is_new && since.is_some_and(|since| *sent >= since));
                delays.extend(sent.map(|sent| came.saturating_sub(sent)));
            }
        });
        progress.take(frames.version());
        let mut recorded = recorder.lock();
        recorded.bytes += data.len() as u64;
        recorder.events(&mut recorded, events);
        delays.drain(..).for_each(|delay| recorded.delay(at, Duration::from_nanos(delay)));
        if synced {
            if let Some(time) = progress.synced() {
                recorded.sync.add(time);
            }
            if let Some(time) = progress.back() {
                recorded.back.add(time);
            }
            progress.stands();
        }
        drop(recorded);
        if let Some(code) = refused {
            return Err(Failure::event(code));
        }
    }
    Ok(())
}

/// The progress of a client's watch, over all its connections.
pub(super) struct Progress<'a> {
    first: Option<First<'a>>,
    /// What it still waits for.
    waiting: Waiting,
    /// The newest write whose event it has received.
    newest: u64,
    /// The newest write whose event had been received when the watch was last opened. Events of writes up to it are
    /// repetitions and do not count again.
    repeated: u64,
    /// Whether the watch has been open before.
    was_opened: bool,
    /// Whether the watch may be sending objects that an earlier one has sent. Then only events of newer writes of the
    /// run count: others cannot be told from repetitions.
    repeats: bool,
    /// The position of an informer; `None` for other clients.
    position: Option<Position>,
}

/// The position of an informer in its collection.
struct Position {
    /// The version up to which the client knows everything.
    version: Option<String>,
    /// Whether the watch started with all objects, as a watch-list does.
    has_initial: bool,
}

impl<'a> Progress<'a> {
    pub(super) fn new(first: First<'a>, waiting: Waiting) -> Self {
        Self { first: Some(first), waiting, newest: 0, repeated: 0, was_opened: false, repeats: false, position: None }
    }

    /// Records that the client has asked for all objects. If it has asked before and not received them, the time of the
    /// first attempt is kept.
    pub(super) fn wants_objects(&self) {
        self.waiting.lock().objects.get_or_insert_with(Instant::now);
    }

    /// Like [`Self::wants_objects`], of a client that had all objects: it needs them before its next watch.
    pub(super) fn wants_objects_again(&self) {
        self.waiting.lock().reopening = None;
        self.wants_objects();
    }

    /// The time since the client first asked for all objects, which it has now. `None` if it did not ask.
    pub(super) fn synced(&self) -> Option<Duration> {
        Some(self.waiting.lock().objects.take()?.elapsed())
    }

    /// Records that events of writes before that time need not come any more: they are in a list that the client has
    /// read, or it starts at a newer version.
    pub(super) fn skips_events(&self, before: u64) {
        let mut waits = self.waiting.lock();
        waits.newest = waits.newest.max(before);
    }

    /// Records that the watch is open. `has_initial`: it begins with the objects that there are.
    pub(super) fn opened(&mut self, has_initial: bool) {
        self.repeats = has_initial && self.was_opened;
        self.repeated = self.newest;
        self.was_opened = true;
    }

    /// Reports that the client is established or has failed.
    pub(super) fn stands(&mut self) {
        drop(self.first.take());
    }

    /// Reads versions from now on or, with `has_initial`, after the initial objects.
    pub(super) fn follow(&mut self, has_initial: bool) {
        self.position = Some(Position { version: None, has_initial });
    }

    /// Takes the version up to which the client knows everything; `None` if the watch has sent none.
    pub(super) fn take_version(&mut self) -> Option<String> {
        self.position.as_mut()?.version.take()
    }

    /// Records that the client, which has all objects, has no watch: the last one has ended, or there was none yet.
    pub(super) fn reopens(&self) {
        self.waiting.lock().reopening.get_or_insert_with(Instant::now);
    }

    /// Records that the client's connection was cut, or broke, or that it cannot open its next watch: then the time
    /// counts from the end of the last one. If the client has not come back since an earlier loss,
    /// the time of the earlier loss is kept, and the result is `false`.
    pub(super) fn lost(&self) -> bool {
        let mut waits = self.waiting.lock();
        let is_new = waits.lost.is_none();
        let since = waits.reopening.take().unwrap_or_else(Instant::now);
        waits.lost.get_or_insert(since);
        is_new
    }

    /// The time since the connection was lost, for a client that follows its collection again. `None` if it was not
    /// lost.
    pub(super) fn back(&self) -> Option<Duration> {
        let mut waits = self.waiting.lock();
        waits.reopening = None;
        Some(waits.lost.take()?.elapsed())
    }

    fn frames(&self, is_protobuf: bool, run: &str) -> Frames {
        let frames = Frames::new(is_protobuf).of_run(run);
        match &self.position {
            Some(position) => frames.with_versions(position.has_initial),
            None => frames,
        }
    }

    /// Takes what a piece of the response has brought: events, and perhaps the version up to which the client knows
    /// everything.
    fn take(&mut self, version: Option<String>) {
        self.skips_events(self.newest);
        if let Some(position) = &mut self.position {
            position.version = version.or(position.version.take());
        }
    }

    fn is_new(&mut self, sent: u64) -> bool {
        self.newest = self.newest.max(sent);
        sent > self.repeated
    }
}

/// Marks a watch that is not established yet. Dropping it adds the permit.
#[derive(Debug)]
pub(super) struct First<'a>(pub(super) &'a Semaphore);

impl Drop for First<'_> {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}
