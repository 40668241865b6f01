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
    #[error("upstream does not say that there are no more events: its watch ended without an event and a bookmark")]
    Unconfirmed,
    #[error("upstream took too long to tell it")]
    TooSlow,
    #[error("it cannot be used")]
    Unusable(#[from] NotBefore),
}

/// The events of `past`, as upstream says them. May take as long as upstream likes, so the caller must set a timeout.
///
/// # Errors
/// Upstream has forgotten the version, or the past cannot be used.
pub async fn past_events<L: ListWatch>(upstream: &L, schema: &Schema, mut past: Past) -> Result<Past, NoPast> {
    while !watched(upstream, schema, &mut past).await? {}
    Ok(past)
}

/// The objects at the version with which `past` begins, which has its events. As [`past_events`]; upstream lists the
/// whole collection.
///
/// # Errors
/// As [`past_events`].
pub async fn past_state<L: ListWatch>(upstream: &L, schema: &Arc<Schema>, mut past: Past) -> Result<Past, NoPast> {
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
    let before = past.reached();
    let request = WatchRequest { from: WatchFrom::After(before), seconds: WATCH_SECONDS };
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
            // If a part of the changes of that version is missing, they do not lead to the state of the fill.
            None if past.reached() == past.until() => return Ok(true),
            // The next watch would end in the same way.
            None if past.reached() == before => return Err(NoPast::Unconfirmed),
            None => return Ok(false),
        }
    }
}
