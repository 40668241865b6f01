//! The loop that drives a reflector: performs the machine's actions and reports their results back to it.

use std::{mem, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::{
    Action, Bridged, ByteStream, EventStream, Evidence, Failure, FillMode, Filled, Health, Input, ListWatch, Loss,
    Machine, NoPeers, Peers, Seen, Unbridged, UpstreamEvent, WatchFrom, WatchRequest,
    bridge::{self, Refill},
    fill::{self, Head, State, head_version},
    machine::Next,
    peer_fill::{self, Expected},
    watch_list,
};
use crate::{
    encode::BookmarkTemplate,
    store::{self, Change, ChangeKind, HistoryLimits, Object, Schema, StoreBudget, Writer},
};
use base::apimachinery::{Encoding, GroupResource, Provenance, ResourceVersion, SelectableField};

/// A watch that ends sooner than this counts as a failure; otherwise it would be reopened in a tight loop.
const WATCH_MIN: Duration = Duration::from_secs(1);
/// Upstream's head is asked for again if it was told longer ago than this: no API server comes back with a restored
/// storage in less.
const LOOK_AGE_MAX: Duration = Duration::from_millis(500);

/// Receives everything that happens to the store.
pub trait ReflectorEvents: Send {
    /// The health of the store changed, or more is known about what upstream supports.
    fn health(&mut self, health: Health);

    /// A new store holds the whole state and replaces the previous one.
    fn filled(&mut self, filled: Filled, health: Health);

    /// The store was filled again and remains in use: it applied the changes from its state to the new one.
    fn bridged(&mut self, bridged: Bridged, health: Health);

    /// The store was filled again and will be replaced by a new one, for this reason.
    fn unbridged(&mut self, why: &Unbridged);

    /// The store applied a change.
    fn changed(&mut self, change: &Change);

    /// A bookmark arrived; bookmarks of one resource differ only in their version.
    fn bookmark(&mut self, template: BookmarkTemplate);

    /// The store must not be read any more.
    fn lost(&mut self, loss: Loss);

    /// The reflector has to start an operation again, for this reason (`None`: the clean end of a watch).
    fn restarting(&mut self, failure: Option<Failure>);

    /// It was not possible to look whether the store is still upstream's state.
    fn unverified(&mut self, _failure: Failure) {}
}

/// The collection that is reflected.
#[derive(Clone, Debug)]
pub struct Collection {
    pub resource: GroupResource,
    /// Kind of the objects, from discovery.
    pub kind: String,
    /// Whether its objects have namespaces, from discovery.
    pub namespaced: bool,
    /// The selectable fields. Those that this upstream does not support are left out during a fill.
    pub fields: Vec<SelectableField>,
    pub encoding: Encoding,
}

/// How a reflector treats its store.
#[derive(Clone, Debug)]
pub struct Settings {
    pub history: HistoryLimits,
    /// Whether the store is kept, where possible, when upstream has forgotten the changes after its version
    /// (`cache.bridge`).
    pub bridges: bool,
    /// The memory that stores share.
    pub budget: StoreBudget,
}

/// The result of a fill.
#[derive(Debug)]
enum Outcome {
    Filled(Filled),
    Bridged(Bridged),
}

/// Keeps a store equal to one resource of upstream.
#[derive(Debug)]
pub struct Reflector<L: ListWatch, S, P = NoPeers> {
    upstream: L,
    peers: P,
    /// Whether peers are asked for the next state. They are asked once: a store that had to be given up is filled by
    /// upstream itself.
    asks_peers: bool,
    /// The provenance of the store's state, if it is known.
    provenance: Option<Provenance>,
    sink: S,
    collection: Collection,
    settings: Settings,
    evidence: Evidence,
    machine: Machine,
    writer: Option<Writer>,
    /// The head of upstream's list when the store was filled.
    head: Option<Head>,
    /// When the fill of the current store began.
    filled_since: Instant,
    /// The result of a fill that the sink has not received yet.
    outcome: Option<Outcome>,
    /// When it became unknown whether upstream is still the same program: at the end of the watch, or at a failed
    /// check.
    unsure_since: Instant,
    /// When the last action began, after its delay.
    acted: Instant,
    /// The watch-list that filled the store and continues as a watch.
    going_on: Option<EventStream<L::Stream>>,
}

impl<L: ListWatch, S: ReflectorEvents> Reflector<L, S> {
    /// `evidence` is what freshness proofs and the verifier find out about the resource.
    pub fn new(upstream: L, sink: S, collection: Collection, settings: Settings, evidence: Evidence) -> Self {
        let now = Instant::now();
        Self {
            upstream,
            peers: NoPeers,
            asks_peers: false,
            provenance: None,
            sink,
            collection,
            settings,
            evidence,
            machine: Machine::new(now),
            writer: None,
            head: None,
            filled_since: now,
            outcome: None,
            unsure_since: now,
            acted: now,
            going_on: None,
        }
    }

    /// The same, which asks `peers` for the first state before it asks upstream.
    pub fn asking<P: Peers>(self, peers: P) -> Reflector<L, S, P> {
        let Self { upstream, sink, collection, settings, evidence, machine, filled_since, unsure_since, acted, .. } =
            self;
        Reflector {
            upstream,
            peers,
            asks_peers: true,
            provenance: None,
            sink,
            collection,
            settings,
            evidence,
            machine,
            writer: None,
            head: None,
            filled_since,
            outcome: None,
            unsure_since,
            acted,
            going_on: None,
        }
    }
}

impl<L: ListWatch, S: ReflectorEvents, P: Peers> Reflector<L, S, P> {
    /// Runs until the resource is gone or was replaced by another one.
    pub async fn run(mut self) {
        let mut input = Input::Start;
        loop {
            let next = self.machine.on(input, Instant::now());
            if let Some(loss) = next.loss {
                // The resource's other stores are wrong as well, unless they were filled after the rollback.
                if loss == Loss::Backwards && !self.evidence.has_rolled_back_since(self.filled_since) {
                    self.evidence.rolled_back();
                }
                (self.writer, self.going_on) = (None, None);
                self.sink.lost(loss);
            }
            match self.outcome.take() {
                Some(Outcome::Filled(filled)) => self.sink.filled(filled, self.machine.health()),
                Some(Outcome::Bridged(bridged)) => self.sink.bridged(bridged, self.machine.health()),
                None => self.sink.health(self.machine.health()),
            }
            if next.action == Action::Stop {
                return;
            }
            let evidence = self.evidence.clone();
            // Evidence interrupts any action, in particular a delay: a store that is known to be wrong must not be
            // kept.
            input = match self.writer.is_some().then_some(self.filled_since) {
                Some(since) => tokio::select! {
                    biased;
                    () = evidence.until_rolled_back_since(since) => Input::RolledBack,
                    () = evidence.until_corrupt_since(since) => Input::Corrupt,
                    () = evidence.until_replaced_since(since) => Input::Replaced,
                    input = self.act(next) => input,
                },
                None => self.act(next).await,
            };
        }
    }

    /// Performs the machine's action. May be dropped at any point: everything that it has read by then is applied.
    async fn act(&mut self, next: Next) -> Input {
        if !next.delay.is_zero() {
            let over = tokio::select! {
                () = sleep(next.delay.mul_f64(0.75 + fastrand::f64() / 2.0)) => Seen::PauseOver,
                () = self.upstream.recovered_since(self.acted) => Seen::Recovered,
            };
            self.see(over);
        }
        self.acted = Instant::now();
        match next.action {
            Action::Fill { mode, not_older_than } => self.fill(mode, not_older_than).await,
            Action::GoOn => match self.going_on.take() {
                Some(events) => self.read(events).await,
                None => self.ended(None, Duration::ZERO),
            },
            Action::Watch { after } => self.watch(after).await,
            // `Stop` never gets here, because the loop ends.
            Action::Verify | Action::Stop => self.verify().await,
        }
    }

    async fn fill(&mut self, mode: FillMode, not_older_than: Option<ResourceVersion>) -> Input {
        // Large, and rarely done.
        match Box::pin(self.filled(mode, not_older_than)).await {
            Ok(filled) => filled,
            Err(failure) => {
                self.sink.restarting(Some(failure));
                Input::FillFailed(failure)
            }
        }
    }

    async fn filled(&mut self, mode: FillMode, not_older_than: Option<ResourceVersion>) -> Result<Input, Failure> {
        let asked = Instant::now();
        // The cluster is known from here on, so that a replacement is noticed at the end.
        self.upstream.look_for_another_cluster(asked).await;
        let began = Instant::now();
        let Collection { resource, kind, namespaced, fields, encoding } = &self.collection;
        // Asked first: if upstream is upgraded during the fill, the store is merely filled once more, and never
        // mistaken for one that the new program filled.
        let mut server = self.upstream.server(began).await;
        let provenance = self.peers.provenance(server.as_deref(), asked).await;
        let page = self.upstream.head().await?;
        let at_least = head_version(&page)?;
        let head = Head::read(page, kind)?;
        self.ask_again(&mut server, began).await;
        let fields = fill::known_fields(&self.upstream, fields).await?;
        if head.shape.encoding() != *encoding {
            return Err(Failure::Malformed);
        }
        let schema = match encoding {
            Encoding::Json => Schema::new(head.shape.clone(), fields),
            Encoding::Protobuf => Schema::protobuf(head.shape.clone(), resource, fields),
        };
        let schema = Arc::new(schema.within(self.settings.budget.clone()));
        // Not earlier: an API server that does not answer about one resource must not keep the others waiting.
        let budget = self.settings.budget.clone();
        let _may_fill = budget.may_fill().await;
        let asks_peers = mem::take(&mut self.asks_peers) && not_older_than.is_none();
        let asked_as = provenance.as_ref().filter(|_| asks_peers);
        let at_least = not_older_than.map_or(at_least, |version| version.max(at_least));
        let (namespaced, told) = (*namespaced, server.as_deref());
        let expected = Expected { schema: &schema, head: &head, kind, namespaced, at_least, server: told };
        // Large, and rarely done.
        let of_gateway = Box::pin(peer_fill::of_gateway(&self.upstream, &self.peers, &expected, asked_as, mode)).await;
        let state: State<L::Stream> = match (of_gateway, mode) {
            (Some(state), _) => state,
            (None, FillMode::WatchList) => {
                // Large: two fills at once.
                let state = Box::pin(watch_list::state(&self.upstream, &schema, not_older_than)).await?;
                if state.watch.is_none() {
                    self.sink.restarting(Some(Failure::Stalled));
                }
                state
            }
            (None, FillMode::List) => fill::list(&self.upstream, &schema, not_older_than).await?,
        };
        // A gateway may not have filled its cache again since upstream runs another program.
        let server = state.written_by.clone().or(server);
        let provenance = provenance.filter(|provenance| Some(&*provenance.server) == server.as_deref());
        let (mut refill, read) = (Refill { head, schema, state, server, provenance, began }, Instant::now());
        // Asked after the fill, so that the answer holds for the fetched state.
        if !self.upstream.is_same_resource().await? {
            return Ok(Input::Replaced);
        }
        self.upstream.look_for_another_cluster(read).await;
        // The state may be of the storage from before.
        if self.evidence.has_rolled_back_since(began) {
            return Err(Failure::Unavailable);
        }
        match self.bridge(&mut refill) {
            Some(bridged) => Ok(self.go_on_bridged(refill, bridged)),
            None => Ok(self.start_anew(refill)),
        }
    }

    /// Replaces the store by a new one.
    fn start_anew(&mut self, refill: Refill<L::Stream>) -> Input {
        let Refill { head, schema, state, server, provenance, began } = refill;
        self.provenance.clone_from(&provenance);
        let (watching, watch_list) = (state.watch.is_some(), state.bookmark.is_some());
        let (mut writer, reader) = store::store(schema, &state.objects, state.version, self.settings.history);
        for event in state.missed {
            match event {
                UpstreamEvent::Change { kind, object, line } => {
                    if let Err(failure) = apply_change(&mut writer, kind, object, line) {
                        return Input::FillFailed(failure);
                    }
                }
                UpstreamEvent::Bookmark { version, .. } => writer.advance(version),
            }
        }
        let version = writer.progress();
        let advance = writer.advance_handle();
        (self.writer, self.filled_since, self.going_on) = (Some(writer), began, state.watch);
        let (list_kind, warnings, bookmark) = (head.list_kind.clone(), head.warnings.clone(), state.bookmark);
        self.head = Some(head);
        let source = state.source;
        let written_by = server.clone();
        let filled = Filled { reader, began, advance, list_kind, warnings, bookmark, source, written_by, provenance };
        self.outcome = Some(Outcome::Filled(filled));
        Input::Filled { version, watching, watch_list, server }
    }

    /// Keeps the store. `filled_since` remains the time of its first fill: evidence that was found since then concerns
    /// the store.
    fn go_on_bridged(&mut self, refill: Refill<L::Stream>, bridged: Bridged) -> Input {
        let (version, watching, watch_list) =
            (refill.state.version, refill.state.watch.is_some(), bridged.bookmark.is_some());
        self.going_on = refill.state.watch;
        self.outcome = Some(Outcome::Bridged(bridged));
        Input::Bridged { version, watching, watch_list }
    }

    /// Applies the difference between the store and the new state, if that is allowed and possible.
    fn bridge(&mut self, refill: &mut Refill<L::Stream>) -> Option<Bridged> {
        let writer = self.writer.as_mut()?;
        let (head, provenance, bridges) = (self.head.as_ref(), self.provenance.as_ref(), self.settings.bridges);
        let may_follow = refill.may_follow(writer.schema(), head, provenance, &self.machine, bridges);
        let bridged = may_follow.and_then(|()| refill.bridge(writer));
        bridged.inspect_err(|why| self.sink.unbridged(why)).ok()
    }

    async fn watch(&mut self, after: ResourceVersion) -> Input {
        let request = WatchRequest { accepts_bridge: true, ..WatchRequest::new(WatchFrom::After(after)) };
        match self.upstream.watch(request).await {
            // Its next changes would be those of another program than the state.
            Ok(stream) if self.machine.other_server(stream.written_by()).is_some() => {
                self.ended(Some(Failure::Expired), Duration::ZERO)
            }
            Ok(stream) => self.read(EventStream::new(stream, self.collection.encoding)).await,
            Err(failure) => self.ended(Some(failure), Duration::ZERO),
        }
    }

    /// Reads a bridge of a gateway up to that version, and makes it one of the store. Without it, the store has to be
    /// filled again.
    async fn cross(&mut self, events: &mut EventStream<L::Stream>, to: ResourceVersion) -> Result<(), Failure> {
        let Some(writer) = &mut self.writer else { return Err(Failure::Malformed) };
        let silence = self.machine.health().silence_max();
        let (changed, behind) = bridge::read(events, writer.schema(), to, silence).await?;
        let from = writer.progress();
        let changes = match self.settings.bridges {
            true => writer.bridge_changed(&changed, to).map_err(Unbridged::from),
            false => Err(Unbridged::Off),
        };
        let changes = changes.map_err(|why| {
            self.sink.unbridged(&why);
            Failure::Expired
        })?;
        self.sink.bridged(Bridged { from, to, changes, bookmark: None }, self.machine.health());
        self.apply(behind)
    }

    /// Applies the events of a watch until it ends.
    async fn read(&mut self, mut events: EventStream<L::Stream>) -> Input {
        self.see(Seen::WatchOpened);
        let opened = Instant::now();
        // A watch that reports anything, however late, is not stuck.
        let mut told = opened;
        let evidence = self.evidence.clone();
        let failure = loop {
            let Some(writer) = &self.writer else { break Some(Failure::Malformed) };
            let silence = self.machine.health().silence_max();
            let event = tokio::select! {
                event = events.next(writer.schema(), silence) => event,
                () = evidence.until_lacking_since(told, writer.progress()) => Err(Failure::Stuck),
            };
            match event {
                Ok(Some(event)) => {
                    told = Instant::now();
                    // After the initial events only gateways send such a bookmark: it begins a bridge.
                    let applied = match event {
                        UpstreamEvent::Bookmark { version, initial_events_end: true, .. } => {
                            self.cross(&mut events, version).await
                        }
                        UpstreamEvent::Change { .. } | UpstreamEvent::Bookmark { .. } => self.apply(event),
                    };
                    if let Err(failure) = applied {
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
                let change = apply_change(writer, kind, object, line)?;
                self.see(Seen::Change);
                self.sink.changed(&change);
                Ok(())
            }
            UpstreamEvent::Bookmark { version, template, .. } => {
                writer.advance(version);
                self.see(Seen::Bookmark);
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
        self.verified().await.unwrap_or_else(|failure| {
            self.unsure_since = Instant::now();
            self.sink.unverified(failure);
            Input::VerifyFailed(failure)
        })
    }

    async fn verified(&self) -> Result<Input, Failure> {
        let mut server = self.upstream.server(self.unsure_since).await;
        let mut looked = self.look().await?;
        let looked_at = Instant::now();
        self.ask_again(&mut server, self.unsure_since).await;
        self.upstream.look_for_another_cluster(self.unsure_since).await;
        if let Some(before) = self.machine.other_server(server.as_deref()) {
            tracing::info!(resource = %self.collection.resource, before, now = server,
                "upstream runs another version than before");
        }
        // Watch-list is tried again: one refusal at the time of the fill need not be permanent.
        let is_asked = !self.machine.health().watch_list;
        let watch_list = match &self.writer {
            Some(writer) if is_asked => watch_list::bookmark(&self.upstream, writer.schema()).await.is_some(),
            _ => false,
        };
        // These questions may have waited until upstream could be reached again. If its storage was restored meanwhile,
        // the head is one of before, and a watch from there would not be told of what comes up to it.
        if looked_at.elapsed() >= LOOK_AGE_MAX {
            server = self.upstream.server(looked_at).await;
            looked = self.look().await?;
        }
        let (progress, head, same_resource) = looked;
        Ok(Input::Verified { progress, head, same_resource, server, watch_list })
    }

    /// Asks for upstream's version once more if there was none. Upstream has answered another request since: when it
    /// was asked first, it may have been unreachable, and another program may have been started since.
    async fn ask_again(&self, server: &mut Option<String>, since: Instant) {
        if server.is_none() {
            *server = self.upstream.server(since).await;
        }
    }

    /// The version up to which the store was complete, upstream's head version after that, and whether the resource is
    /// still the same.
    async fn look(&self) -> Result<(Option<ResourceVersion>, ResourceVersion, bool), Failure> {
        let same_resource = self.upstream.is_same_resource().await?;
        let progress = self.writer.as_ref().map(Writer::progress);
        Ok((progress, head_version(&self.upstream.head().await?)?, same_resource))
    }

    fn see(&mut self, seen: Seen) {
        let before = self.machine.health();
        self.machine.see(seen, Instant::now());
        let health = self.machine.health();
        if health != before {
            self.sink.health(health);
        }
    }
}

/// Applies a change that upstream's watch has sent.
fn apply_change(writer: &mut Writer, kind: ChangeKind, object: Object, line: Bytes) -> Result<Arc<Change>, Failure> {
    writer.apply(kind, object, line).map_err(|error| {
        tracing::warn!(%error, "upstream's watch sent an older version");
        Failure::Malformed
    })
}
