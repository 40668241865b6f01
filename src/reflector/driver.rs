//! The loop that drives a reflector: does what the machine says, tells it what came of it.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    Action, EventStream, Evidence, Failure, FillMode, Filled, Input, ListWatch, Loss, Machine, UpstreamEvent,
    WatchFrom, WatchRequest,
    fill::{self, Head, State, head_version},
    list_watch::WATCH_SECONDS_MAX,
    machine::Next,
};
use crate::{
    apimachinery::{Encoding, GroupResource, ResourceVersion, SelectableField},
    encode::BookmarkTemplate,
    store::{self, Change, HistoryLimits, Schema, Writer},
};

/// Longer than a watch may be silent: it asks for bookmarks, which come once a minute, and for an
/// end after at most ten minutes.
const SILENCE_MAX: Duration = Duration::from_secs(WATCH_SECONDS_MAX + 60);
/// The same where upstream is known to send bookmarks: four of them are missing.
const BOOKMARKS_MISSING_MAX: Duration = Duration::from_secs(4 * 60);
/// A watch that ends sooner than this is taken for a failure, or it would be opened in a tight loop.
const WATCH_MIN: Duration = Duration::from_secs(1);

/// Learns what becomes of the store.
pub trait Sink: Send {
    /// A fill begins.
    fn filling(&mut self) {}

    /// Something failed, and the reflector waits for a while before its next attempt.
    fn pausing(&mut self) {}

    /// A store with the whole state; takes the place of the one before.
    fn filled(&mut self, filled: Filled);

    /// The store took a change.
    fn changed(&mut self, change: &Change);

    /// A bookmark came; they all look alike but for the version.
    fn bookmark(&mut self, template: BookmarkTemplate);

    /// Upstream takes watch-lists, though the store was filled by lists.
    fn watch_list_works(&mut self);

    /// A watch is open that keeps the store equal to upstream.
    fn following(&mut self);

    /// The store must not be read any more.
    fn lost(&mut self, loss: Loss);

    /// The reflector has to do something again, for this reason (`None`: a clean end of a watch).
    fn restarting(&mut self, failure: Option<Failure>);
}

/// What is reflected.
#[derive(Clone, Debug)]
pub struct Collection {
    pub resource: GroupResource,
    /// Kind of the objects, from discovery.
    pub kind: String,
    /// What selectors may name, as far as this upstream knows it, too.
    pub fields: Vec<SelectableField>,
    pub encoding: Encoding,
}

/// Keeps a store equal to one resource of upstream.
#[derive(Debug)]
pub struct Reflector<L: ListWatch, S> {
    upstream: L,
    sink: S,
    collection: Collection,
    limits: HistoryLimits,
    evidence: Evidence,
    machine: Machine,
    writer: Option<Writer>,
    /// When the fill of the store that there is began.
    filled_since: Instant,
    /// What upstream said it was then, if it did.
    server: Option<String>,
    /// Since when it is not known whether upstream is that still: the end of the watch, or a look that failed.
    unsure_since: Instant,
    /// The store was filled by lists, and upstream has not taken a watch-list since.
    lacks_watch_list: bool,
    /// Upstream has sent bookmarks from time to time.
    has_bookmarks: bool,
    /// A watch-list that goes on as a watch.
    going_on: Option<EventStream<L::Stream>>,
}

impl<L: ListWatch, S: Sink> Reflector<L, S> {
    /// `evidence` is what others find out about the resource.
    pub fn new(upstream: L, sink: S, collection: Collection, limits: HistoryLimits, evidence: Evidence) -> Self {
        let (machine, writer, going_on) = (Machine::default(), None, None);
        let (filled_since, unsure_since) = (Instant::now(), Instant::now());
        Self {
            upstream,
            sink,
            collection,
            limits,
            evidence,
            machine,
            writer,
            filled_since,
            server: None,
            unsure_since,
            lacks_watch_list: false,
            has_bookmarks: false,
            going_on,
        }
    }

    /// Runs until the resource is gone or another.
    pub async fn run(mut self) {
        let mut input = Input::Start;
        loop {
            let next = self.machine.on(input);
            if let Some(loss) = next.loss {
                (self.writer, self.going_on) = (None, None);
                self.sink.lost(loss);
            }
            if next.action == Action::Stop {
                return;
            }
            let evidence = self.evidence.clone();
            // Whatever is under way, a wait above all: a store that is known to be wrong is not kept.
            input = match self.writer.is_some().then_some(self.filled_since) {
                Some(since) => tokio::select! {
                    biased;
                    () = evidence.until_rolled_back_since(since) => Input::RolledBack,
                    () = evidence.until_corrupt_since(since) => Input::Corrupt,
                    input = self.act(next) => input,
                },
                None => self.act(next).await,
            };
        }
    }

    /// Does what the machine says. May be dropped at any point: what it has read by then is applied.
    async fn act(&mut self, next: Next) -> Input {
        if !next.delay.is_zero() {
            self.sink.pausing();
            sleep(next.delay.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
        }
        match next.action {
            Action::Fill { mode, not_older_than } => self.fill(mode, not_older_than).await,
            Action::GoOn => match self.going_on.take() {
                Some(events) => self.read(events).await,
                None => self.ended(None, Duration::ZERO),
            },
            Action::Watch { after } => self.watch(after).await,
            // Stop is not acted upon: the loop ends.
            Action::Verify | Action::Stop => self.verify().await,
        }
    }

    async fn fill(&mut self, mode: FillMode, not_older_than: Option<ResourceVersion>) -> Input {
        self.sink.filling();
        match self.filled(mode, not_older_than).await {
            Ok((version, watching)) => Input::Filled { version, watching },
            Err(failure) => {
                self.sink.restarting(Some(failure));
                Input::FillFailed(failure)
            }
        }
    }

    async fn filled(
        &mut self,
        mode: FillMode,
        not_older_than: Option<ResourceVersion>,
    ) -> Result<(ResourceVersion, bool), Failure> {
        let began = Instant::now();
        let Collection { resource, kind, fields, encoding } = &self.collection;
        // Asked first: what is filled by a newer one is only filled again, not taken for what it is not.
        let server = self.upstream.server(began).await;
        let head = Head::read(self.upstream.head().await?, kind)?;
        let fields = fill::known_fields(&self.upstream, fields).await?;
        let schema = Arc::new(match (encoding, head.shape.encoding()) {
            (Encoding::Json, Encoding::Json) => Schema::new(head.shape, fields),
            (Encoding::Protobuf, Encoding::Protobuf) => Schema::protobuf(head.shape, resource, fields),
            _ => return Err(Failure::Malformed),
        });
        let state: State<L::Stream> = match mode {
            FillMode::WatchList => fill::watch_list(&self.upstream, &schema, not_older_than).await?,
            FillMode::List => fill::list(&self.upstream, &schema, not_older_than).await?,
        };
        let (version, watching) = (state.version, state.watch.is_some());
        let (writer, reader) = store::store(schema, state.objects, version, self.limits);
        let advance = writer.advance_handle();
        (self.writer, self.filled_since, self.going_on) = (Some(writer), began, state.watch);
        (self.server, self.lacks_watch_list) = (server, !watching);
        self.sink.filled(Filled {
            reader,
            began,
            advance,
            list_kind: head.list_kind,
            warnings: head.warnings,
            bookmark: state.bookmark,
            watch_list: watching,
        });
        Ok((version, watching))
    }

    async fn watch(&mut self, after: ResourceVersion) -> Input {
        match self.upstream.watch(WatchRequest::new(WatchFrom::After(after))).await {
            Ok(stream) => self.read(EventStream::new(stream, self.collection.encoding)).await,
            Err(failure) => self.ended(Some(failure), Duration::ZERO),
        }
    }

    /// Applies a watch until it ends.
    async fn read(&mut self, mut events: EventStream<L::Stream>) -> Input {
        self.sink.following();
        let opened = Instant::now();
        // A watch that tells something, however late, is not stuck.
        let mut told = opened;
        let evidence = self.evidence.clone();
        let failure = loop {
            let Some(writer) = &self.writer else { break Some(Failure::Malformed) };
            let silence = if self.has_bookmarks { BOOKMARKS_MISSING_MAX } else { SILENCE_MAX };
            let event = tokio::select! {
                event = events.next(&self.upstream, writer.schema(), silence) => event,
                () = evidence.until_lacking_since(told, writer.progress()) => Err(Failure::Stuck),
            };
            match event {
                Ok(Some(event)) => {
                    told = Instant::now();
                    if let Err(failure) = self.apply(event) {
                        break Some(failure);
                    }
                }
                Ok(None) if opened.elapsed() < WATCH_MIN => break Some(Failure::Unavailable),
                Ok(None) => break None,
                Err(failure) => break Some(failure),
            }
        };
        self.ended(failure, opened.elapsed())
    }

    fn apply(&mut self, event: UpstreamEvent) -> Result<(), Failure> {
        let Some(writer) = &mut self.writer else { return Err(Failure::Malformed) };
        match event {
            UpstreamEvent::Change { kind, object, line } => {
                let change = writer.apply(kind, object, line).map_err(|error| {
                    tracing::warn!(%error, "upstream's watch went back");
                    Failure::Malformed
                })?;
                self.sink.changed(&change);
                Ok(())
            }
            UpstreamEvent::Bookmark { version, template, .. } => {
                writer.advance(version);
                self.has_bookmarks = true;
                self.sink.bookmark(template);
                Ok(())
            }
        }
    }

    fn ended(&mut self, failure: Option<Failure>, lasted: Duration) -> Input {
        self.sink.restarting(failure);
        self.unsure_since = Instant::now();
        match &self.writer {
            Some(writer) => Input::WatchEnded { failure, progress: writer.progress(), lasted },
            None => Input::FillFailed(Failure::Unavailable),
        }
    }

    async fn verify(&mut self) -> Input {
        let server = self.upstream.server(self.unsure_since).await;
        let same_server = match (&self.server, &server) {
            (Some(before), Some(now)) => before == now,
            (None, _) | (_, None) => true,
        };
        if !same_server {
            tracing::info!(resource = %self.collection.resource, before = self.server, now = server,
                "upstream is another program than before");
        }
        self.server = self.server.take().or(server);
        let verified = async {
            let same_resource = self.upstream.is_same_resource().await?;
            let progress = self.writer.as_ref().map(Writer::progress);
            let head = head_version(&self.upstream.head().await?)?;
            Ok::<_, Failure>(Input::Verified { progress, head, same_resource, same_server })
        };
        let verified = verified.await;
        // One slow server, or one refusal, when the store was filled need not be all that there is to it.
        if verified.is_ok() && self.lacks_watch_list && self.upstream.knows_watch_list().await == Ok(true) {
            self.lacks_watch_list = false;
            self.sink.watch_list_works();
        }
        if verified.is_err() {
            self.unsure_since = Instant::now();
        }
        verified.unwrap_or_else(Input::VerifyFailed)
    }
}
