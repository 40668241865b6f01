//! Fetches the whole state from another gateway, or from what this one has kept, and checks it against what upstream
//! itself says (the manual's chapter `consistency`, "Peers").

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    task::yield_now,
    time::{Instant, timeout},
    try_join,
};

use super::{
    ByteStream, EventStream, Failure, FillMode, FillSource, ListWatch, PeerOutcome, Peers, StateForm, UpstreamEvent,
    WatchFrom, WatchRequest,
    fill::{self, Head, State},
    item_readers::ItemReaders,
    watch_list,
};
use crate::{
    encode::{BookmarkTemplate, unpack_verified},
    store::{NotPacked, Object, Objects, PackedHead, Records, Schema, unpack},
};
use base::apimachinery::{Provenance, ResourceVersion};

/// The maximum time to read and check a peer's state: as long as reads wait for a fill by default, since upstream may
/// have to be asked after it.
const STATE_MAX: Duration = Duration::from_secs(30);
/// The pause after which upstream has told what it knows at once: it sends that right behind the head of the watch.
const MISSED_PAUSE: Duration = Duration::from_millis(100);
/// The maximum number of bytes of what it tells before the state is used; with more, a fill is not much dearer.
const MISSED_BYTES_MAX: usize = 64 << 20;

/// What a peer's state must agree with, as upstream has just said it.
pub(super) struct Expected<'a> {
    pub(super) schema: &'a Arc<Schema>,
    pub(super) head: &'a Head,
    /// Kind of the objects, from discovery.
    pub(super) kind: &'a str,
    /// Whether the objects have namespaces, from discovery.
    pub(super) namespaced: bool,
    /// Upstream's head version, requested after the fill had begun.
    pub(super) at_least: ResourceVersion,
    /// The program that upstream ran then; `None` if it did not say.
    pub(super) server: Option<&'a str>,
}

/// The state of another gateway, or the one that this gateway has kept, with upstream's watch from there; `None` if
/// upstream has to be asked for the state. Peers, and what was kept, only if `provenance` is given.
pub(super) async fn of_gateway<L: ListWatch, P: Peers>(
    upstream: &L,
    peers: &P,
    expected: &Expected<'_>,
    provenance: Option<&Provenance>,
    mode: FillMode,
) -> Option<State<L::Stream>> {
    if let Some(provenance) = provenance
        && let Some(state) = of_peer(upstream, peers, expected, provenance).await
    {
        return Some(state);
    }
    match mode {
        FillMode::WatchList => of_gateway_above(upstream, expected).await,
        FillMode::List => None,
    }
}

/// The state that this gateway has kept, or that of a peer, with upstream's watch from there.
async fn of_peer<L: ListWatch, P: Peers>(
    upstream: &L,
    peers: &P,
    expected: &Expected<'_>,
    provenance: &Provenance,
) -> Option<State<L::Stream>> {
    // Without watch-list the state could not be checked, and a search may take seconds.
    watch_list::bookmark(upstream, expected.schema).await?;
    loop {
        let asked = timeout(STATE_MAX, peers.state(expected.at_least, provenance)).await;
        let (origin, form, stream) = asked.ok()??;
        let checked = timeout(STATE_MAX, checked(upstream, stream, form, expected, provenance)).await;
        match checked.unwrap_or(Err(PeerOutcome::Broken)) {
            Ok(state) => {
                peers.note(origin, PeerOutcome::Used);
                return Some(state);
            }
            Err(outcome) => peers.note(origin, outcome),
        }
        // There is one kept state, and one search for a peer.
        if form.is_of_peer() {
            return None;
        }
    }
}

/// The state in `stream`, which has that form.
async fn checked<L: ListWatch>(
    upstream: &L,
    stream: impl ByteStream,
    form: StateForm,
    expected: &Expected<'_>,
    provenance: &Provenance,
) -> Result<State<L::Stream>, PeerOutcome> {
    let source = if form.is_of_peer() { FillSource::Peer } else { FillSource::Kept };
    let ((objects, version), followed) = match form {
        // Upstream tells what happened since while the state is read.
        StateForm::Kept(version) => {
            try_join!(read(stream, form, source, expected), followed(upstream, version, source, expected))?
        }
        StateForm::List | StateForm::Packed => {
            let (objects, version) = read(stream, form, source, expected).await?;
            ((objects, version), followed(upstream, version, source, expected).await?)
        }
    };
    let Followed { mut bookmark, watch, missed, .. } = followed;
    if source == FillSource::Kept {
        // The read may have taken seconds, in which upstream's storage may have been restored.
        let newest = missed.last().map_or(version, UpstreamEvent::version);
        bookmark = reached(upstream, newest, expected).await?;
    }
    // The search, or the read, may have taken seconds, in which another program was started. The watch would follow it,
    // and would not show that the state was written by the one before.
    match upstream.server(Instant::now()).await {
        Some(server) if *server == *provenance.server => {}
        Some(_) => return Err(PeerOutcome::Server),
        None => return Err(PeerOutcome::Unconfirmed),
    }
    let (bookmark, watch) = (Some(bookmark), Some(watch));
    Ok(State { objects, version, bookmark, watch, missed, source, written_by: None })
}

/// The state of the gateway that upstream is, with its watch from there; `None` if upstream is none, or has to be asked
/// in another way: what keeps it from answering is found then, too.
async fn of_gateway_above<L: ListWatch>(upstream: &L, expected: &Expected<'_>) -> Option<State<L::Stream>> {
    let told = upstream.state(expected.at_least).await;
    let told = told.inspect_err(|error| tracing::debug!(kind = expected.kind, %error, "upstream gives no state"));
    let (form, stream) = told.ok()??;
    let state = above(upstream, form, stream, expected).await;
    let unused = |outcome: &_| {
        tracing::debug!(kind = expected.kind, %outcome, "the state of the gateway above is not used");
    };
    state.inspect_err(unused).ok()
}

async fn above<L: ListWatch>(
    upstream: &L,
    form: StateForm,
    stream: L::Stream,
    expected: &Expected<'_>,
) -> Result<State<L::Stream>, PeerOutcome> {
    let source = if form == StateForm::Packed { FillSource::Above } else { FillSource::Upstream };
    let written_by = stream.written_by().map(str::to_owned);
    let (objects, version) = read(stream, form, source, expected).await?;
    let followed = followed(upstream, version, source, expected).await?;
    // Another program may have been started in between, whose watch does not show that the state is of the one before.
    if followed.written_by != written_by {
        return Err(PeerOutcome::Server);
    }
    if written_by.is_none() && upstream.server(Instant::now()).await.as_deref() != expected.server {
        return Err(PeerOutcome::Server);
    }
    let Followed { bookmark, watch, missed, .. } = followed;
    let (bookmark, watch) = (Some(bookmark), Some(watch));
    Ok(State { objects, version, bookmark, watch, missed, source, written_by })
}

/// The objects of a state, and their version.
async fn read(
    stream: impl ByteStream,
    form: StateForm,
    source: FillSource,
    expected: &Expected<'_>,
) -> Result<(Objects, ResourceVersion), PeerOutcome> {
    match form {
        StateForm::List => listed(stream, source, expected).await,
        StateForm::Packed => unpacked(RecordStream::new(stream), form, expected).await,
        StateForm::Kept(_) => unpacked(stream, form, expected).await,
    }
}

/// The objects of a list, and their version.
async fn listed(
    stream: impl ByteStream,
    source: FillSource,
    Expected { schema, head, kind, namespaced, at_least, .. }: &Expected<'_>,
) -> Result<(Objects, ResourceVersion), PeerOutcome> {
    let mut readers = ItemReaders::new((*schema).clone(), source);
    let page = fill::page(stream, schema, &mut readers).await.map_err(unread)?;
    let objects = readers.objects().await.map_err(unread)?;
    let version = page.version;
    // A gateway always writes the items of a list, and upstream may not.
    let is_whole = page.lists_items && page.continue_token.is_empty();
    let is_possible =
        |object: &Arc<Object>| object.version <= version && object.key.is_valid(*namespaced) && object.uid().is_some();
    if !is_whole || !objects.as_slice().iter().all(is_possible) || !head.is_of(&page, kind) {
        return Err(PeerOutcome::Malformed);
    }
    if version < *at_least {
        return Err(PeerOutcome::Old);
    }
    Ok((objects, version))
}

/// The objects of a packed state, and their version: its head, then its runs. What happened after one that was kept
/// comes through the watch, as after an outage.
async fn unpacked(
    mut stream: impl ByteStream,
    form: StateForm,
    Expected { schema, namespaced, at_least, .. }: &Expected<'_>,
) -> Result<(Objects, ResourceVersion), PeerOutcome> {
    let first = stream.next().await.ok_or(PeerOutcome::Malformed)?.map_err(unread)?;
    let packed = PackedHead::read(&first).map_err(|_| PeerOutcome::Malformed)?;
    let version = packed.version().filter(|_| packed.is_of(schema)).ok_or(PeerOutcome::Malformed)?;
    match form {
        StateForm::Kept(kept) if kept != version => return Err(PeerOutcome::Malformed),
        StateForm::Packed if version < *at_least => return Err(PeerOutcome::Old),
        StateForm::List | StateForm::Packed | StateForm::Kept(_) => {}
    }
    let unpack = if form.is_of_peer() { unpack_verified } else { unpack };
    let (mut claim, mut runs, mut count) = (schema.budget().claim(), Vec::new(), 0);
    while let Some(run) = stream.next().await {
        let run = run.map_err(unread)?;
        claim.add(0, run.len()).await.map_err(|over| unread(over.into()))?;
        let objects = unpack(&run, schema).map_err(|_| PeerOutcome::Malformed)?;
        let is_possible = |object: &Arc<Object>| object.version <= version && object.key.is_valid(*namespaced);
        if !objects.iter().all(is_possible) {
            return Err(PeerOutcome::Malformed);
        }
        count += objects.len() as u64;
        claim.add(objects.len(), 0).await.map_err(|over| unread(over.into()))?;
        runs.push(objects);
        // A run takes a tenth of a millisecond, and a peer's two milliseconds.
        yield_now().await;
    }
    let objects = Objects::of_runs(runs).filter(|_| count == packed.objects()).ok_or(PeerOutcome::Malformed)?;
    Ok((objects.with_claim(claim), version))
}

/// Upstream's watch from the version of a state, with what it tells at once.
struct Followed<S> {
    bookmark: BookmarkTemplate,
    watch: EventStream<S>,
    missed: Vec<UpstreamEvent>,
    /// See [`ByteStream::written_by`].
    written_by: Option<String>,
}

async fn followed<L: ListWatch>(
    upstream: &L,
    version: ResourceVersion,
    source: FillSource,
    expected: &Expected<'_>,
) -> Result<Followed<L::Stream>, PeerOutcome> {
    let Expected { schema, at_least, .. } = expected;
    let bookmark = reached(upstream, version, expected).await?;
    let watch = upstream.watch(WatchRequest::new(WatchFrom::After(version))).await;
    let watch = watch.map_err(|_| PeerOutcome::Unconfirmed)?;
    let written_by = watch.written_by().map(str::to_owned);
    let mut watch = EventStream::new(watch, schema.shape.encoding());
    let missed = match source {
        FillSource::Kept => missed(&mut watch, schema, *at_least).await?,
        FillSource::Upstream | FillSource::Above | FillSource::Peer => Vec::new(),
    };
    Ok(Followed { bookmark, watch, missed, written_by })
}

/// Upstream's bookmark, requested when that version is known: upstream has reached a lower one only if its versions
/// went back.
async fn reached<L: ListWatch>(
    upstream: &L,
    version: ResourceVersion,
    expected: &Expected<'_>,
) -> Result<BookmarkTemplate, PeerOutcome> {
    let bookmark = watch_list::bookmark(upstream, expected.schema).await;
    let (reached, template) = bookmark.ok_or(PeerOutcome::Unconfirmed)?;
    if reached < version { Err(PeerOutcome::Ahead) } else { Ok(template) }
}

/// What upstream tells at once of what happened since a kept state, up to its head at that time or a pause: reads do
/// not see the state as it was when the gateway ended.
///
/// # Errors
/// Upstream does not know what happened.
async fn missed<S: ByteStream>(
    events: &mut EventStream<S>,
    schema: &Schema,
    head: ResourceVersion,
) -> Result<Vec<UpstreamEvent>, PeerOutcome> {
    let (mut missed, mut left) = (Vec::new(), MISSED_BYTES_MAX);
    loop {
        let event = match events.next(schema, MISSED_PAUSE).await {
            Ok(Some(event)) => event,
            Err(Failure::Silent) => return Ok(missed),
            Ok(None) | Err(_) => return Err(PeerOutcome::Unconfirmed),
        };
        let reached = event.version();
        if let UpstreamEvent::Change { line, .. } = &event {
            left = left.saturating_sub(line.len());
        }
        missed.push(event);
        if left == 0 {
            return Err(PeerOutcome::Old);
        }
        if reached >= head {
            return Ok(missed);
        }
    }
}

/// The records in a body.
struct RecordStream<S> {
    body: S,
    records: Records,
}

impl<S> RecordStream<S> {
    fn new(body: S) -> Self {
        Self { body, records: Records::default() }
    }
}

impl<S: ByteStream> ByteStream for RecordStream<S> {
    async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        loop {
            match self.records.take() {
                Ok(Some(record)) => return Some(Ok(record)),
                Ok(None) => {}
                Err(NotPacked) => return Some(Err(Failure::Malformed)),
            }
            match self.body.next().await {
                Some(Ok(piece)) => self.records.push(&piece),
                Some(Err(failure)) => return Some(Err(failure)),
                None => return (!self.records.is_at_end()).then_some(Err(Failure::Unavailable)),
            }
        }
    }
}

fn unread(failure: Failure) -> PeerOutcome {
    if failure == Failure::Malformed { PeerOutcome::Malformed } else { PeerOutcome::Broken }
}
