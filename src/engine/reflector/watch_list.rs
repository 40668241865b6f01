//! A fill by watch-list, with a list beside it if that does not get on: some agents, proxies and aggregated servers
//! accept a watch-list, and never end its initial events.

use std::{collections::HashMap, future::pending, pin::pin, sync::Arc, time::Duration};

use tokio::{join, select, sync::watch, time::timeout};

use super::{
    ByteStream, EventStream, Failure, FillSource, ListWatch, UpstreamEvent, WatchFrom, WatchRequest,
    fill::{self, State},
};
use crate::{
    encode::BookmarkTemplate,
    store::{ChangeKind, Objects, Schema, Shape},
};
use base::{apimachinery::ResourceVersion, telemetry::limit_reached};

/// A watch-list that sends neither objects nor its end bookmark for this long is aborted.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// One that was accepted and sends nothing for this long gets a list beside it. Not while it is not accepted: a server
/// under load keeps requests waiting, and would have more of them.
const QUIET_MAX: Duration = Duration::from_secs(2);
/// The maximum time for the bookmark of a watch-list of no objects, which a slow server sends, too.
const BOOKMARK_MAX: Duration = Duration::from_secs(2);

/// Bytes that the events of a watch-list may have up to its end bookmark: as many as a page of a list, and as a peer's
/// state.
pub(super) const INITIAL_BYTES_MAX: usize = 4 << 30;

/// The state from a watch-list, or from a list if that is faster than one that falls silent. The latter has a bookmark
/// if upstream was merely slow.
///
/// # Errors
/// [`Failure::Stalled`] if the list has no room beside the watch-list, which ended without its bookmark.
pub(super) async fn state<L: ListWatch>(
    upstream: &L,
    schema: &Arc<Schema>,
    not_older_than: Option<ResourceVersion>,
) -> Result<State<L::Stream>, Failure> {
    let (heard, quiet) = watch::channel(());
    let mut watch_list = pin!(watch_list(upstream, schema, not_older_than, &heard));
    select! {
        biased;
        state = &mut watch_list => return state,
        () = until_quiet(quiet) => {}
    }
    let mut listed = pin!(listed(upstream, schema, not_older_than));
    select! {
        biased;
        state = &mut watch_list => match state {
            Err(failure @ Failure::OverBudget(_)) => Err(failure),
            Ok(state) => Ok(state),
            Err(_) => listed.await,
        },
        state = &mut listed => match state {
            Ok(state) => Ok(state),
            Err(Failure::OverBudget(_)) => watch_list.await.map_err(stalled),
            Err(failure) => watch_list.await.map_err(|_| failure),
        },
    }
}

/// The failure of a watch-list beside which there was no room for a list.
fn stalled(failure: Failure) -> Failure {
    if failure == Failure::Silent { Failure::Stalled } else { failure }
}

/// Returns when something was heard, and then nothing for [`QUIET_MAX`].
async fn until_quiet(mut heard: watch::Receiver<()>) {
    let mut next = heard.changed().await;
    while next.is_ok() {
        let Ok(heard) = timeout(QUIET_MAX, heard.changed()).await else { return };
        next = heard;
    }
    pending().await
}

/// The state from a list, and whether upstream ends the initial events of a watch-list of no objects.
async fn listed<L: ListWatch>(
    upstream: &L,
    schema: &Arc<Schema>,
    not_older_than: Option<ResourceVersion>,
) -> Result<State<L::Stream>, Failure> {
    let (state, bookmark) = join!(fill::list(upstream, schema, not_older_than), bookmark(upstream, schema));
    Ok(State { bookmark: bookmark.map(|(_, template)| template), ..state? })
}

/// The bookmark of a watch-list of no objects: shows that upstream supports watch-list, which version it has reached,
/// and how it writes bookmarks.
pub(super) async fn bookmark<L: ListWatch>(
    upstream: &L,
    schema: &Schema,
) -> Option<(ResourceVersion, BookmarkTemplate)> {
    let asked = async { end(upstream.watch_nothing().await.ok()?, schema).await };
    timeout(BOOKMARK_MAX, asked).await.ok()?
}

/// The bookmark that ends the initial events of a watch-list, if it is the first event.
async fn end(stream: impl ByteStream, schema: &Schema) -> Option<(ResourceVersion, BookmarkTemplate)> {
    match EventStream::new(stream, schema.shape.encoding()).next(schema, BOOKMARK_MAX).await.ok()?? {
        UpstreamEvent::Bookmark { version, template, initial_events_end: true } => Some((version, template)),
        UpstreamEvent::Bookmark { .. } | UpstreamEvent::Change { .. } => None,
    }
}

/// Whether upstream, asked in JSON, supports watch-lists and ends their initial events; `None` if it does not say.
pub async fn has_watch_list<L: ListWatch>(upstream: &L) -> Option<bool> {
    match timeout(BOOKMARK_MAX, upstream.watch_nothing()).await.ok()? {
        Ok(stream) => Some(end(stream, &Schema::new(Shape::Custom, Vec::new())).await.is_some()),
        Err(Failure::Refused | Failure::InternalError) => Some(false),
        Err(_) => None,
    }
}

/// Reads a watch-list up to its end bookmark.
async fn watch_list<L: ListWatch>(
    upstream: &L,
    schema: &Schema,
    not_older_than: Option<ResourceVersion>,
    heard: &watch::Sender<()>,
) -> Result<State<L::Stream>, Failure> {
    let from = WatchFrom::State { not_older_than };
    let stream = upstream.watch(WatchRequest::new(from)).await?;
    heard.send_replace(());
    initial_state(EventStream::new(stream, schema.shape.encoding()), schema, INITIAL_BYTES_MAX, heard).await
}

/// Reads the events of a watch-list up to its end bookmark, if they have at most `left` bytes, and tells `heard` of
/// each.
pub(super) async fn initial_state<S: ByteStream>(
    mut events: EventStream<S>,
    schema: &Schema,
    mut left: usize,
    heard: &watch::Sender<()>,
) -> Result<State<S>, Failure> {
    let (mut objects, mut claim) = (HashMap::new(), schema.budget().claim());
    loop {
        let event = events.next(schema, SILENCE_MAX).await?.ok_or(Failure::Unavailable)?;
        heard.send_replace(());
        if let UpstreamEvent::Change { line, .. } = &event {
            let Some(rest) = left.checked_sub(line.len()) else {
                limit_reached("upstream_list_bytes");
                return Err(Failure::Unavailable);
            };
            left = rest;
            claim.add(1, line.len()).await?;
        }
        match event {
            // Before the end of the initial events, changes may arrive for objects that were sent already.
            UpstreamEvent::Change { kind: ChangeKind::Deleted, object, .. } => drop(objects.remove(&object.key)),
            UpstreamEvent::Change { object, .. } => drop(objects.insert(object.key.clone(), Arc::new(object))),
            UpstreamEvent::Bookmark { version, template, initial_events_end: true } => {
                let objects = Objects::new(objects.into_values().collect()).map_err(|_| Failure::Malformed)?;
                return Ok(State {
                    written_by: events.written_by().map(str::to_owned),
                    objects: objects.with_claim(claim),
                    version,
                    bookmark: Some(template),
                    watch: Some(events),
                    missed: Vec::new(),
                    source: FillSource::Upstream,
                });
            }
            UpstreamEvent::Bookmark { .. } => {}
        }
    }
}
