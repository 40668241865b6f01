//! Fetches what happened before a fill: the events of a watch from an earlier version, and the state at that version.

use std::{sync::Arc, time::Duration};

use super::{
    EventStream, Failure, FillSource, ListWatch, UpstreamEvent, WatchFrom, WatchRequest, fill,
    item_readers::ItemReaders,
};
use crate::store::{NotBefore, Past, Schema};

/// The `timeoutSeconds` of the watch. With 3, a current API server sends a bookmark after about a second (measured on
/// 1.36), which shows that there are no more events. A longer past is read by several watches, one after another.
const WATCH_SECONDS: u64 = 3;
/// Longer than such a watch is silent.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Why there is no past.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPast {
    #[error("upstream does not tell it")]
    Upstream(#[from] Failure),
    #[error("it cannot be used")]
    Unusable(#[from] NotBefore),
}

/// Completes `past` with what upstream says. May take as long as upstream likes, so the caller must set a timeout.
///
/// # Errors
/// Upstream has forgotten the version, or the past cannot be used.
pub async fn past<L: ListWatch>(upstream: &L, schema: &Arc<Schema>, mut past: Past) -> Result<Past, NoPast> {
    while !watched(upstream, schema, &mut past).await? {}
    let mut token = None;
    loop {
        let mut readers = ItemReaders::new(schema.clone(), FillSource::Upstream);
        let stream = upstream.list_at(past.from(), token.as_deref()).await?;
        let page = fill::page(stream, schema, &mut readers).await?;
        if page.version != past.from() {
            return Err(Failure::Malformed.into());
        }
        for object in readers.objects().await?.as_slice() {
            past.held(object)?;
        }
        if page.continue_token.is_empty() {
            return Ok(past);
        }
        token = Some(page.continue_token);
    }
}

/// Reads the events of one watch. Returns whether there are no more before the fill.
async fn watched<L: ListWatch>(upstream: &L, schema: &Schema, past: &mut Past) -> Result<bool, NoPast> {
    let request = WatchRequest { from: WatchFrom::After(past.reached()), seconds: WATCH_SECONDS };
    let mut events = EventStream::new(upstream.watch(request).await?, schema.shape.encoding());
    loop {
        match events.next(schema, SILENCE_MAX).await? {
            Some(UpstreamEvent::Change { kind, object, line }) => {
                if !past.push(kind, object, line)? {
                    return Ok(true);
                }
            }
            Some(UpstreamEvent::Bookmark { version, .. }) if version >= past.until() => return Ok(true),
            Some(UpstreamEvent::Bookmark { .. }) => {}
            None => return Ok(false),
        }
    }
}
