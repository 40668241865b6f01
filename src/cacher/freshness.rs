//! Proving that a store is as recent as upstream itself ([`crate::manual::consistency`]).

use std::time::Duration;

use tokio::time::timeout;

use super::single_flight::{Join, SingleFlight};
use crate::{
    apimachinery::ResourceVersion,
    reflector::{EventStream, Failure, ListWatch, UpstreamEvent, WatchFrom, WatchRequest, head_version},
    store::{Advance, Reader},
};

/// `timeoutSeconds` of the small watch: with 3 a current API server sends its last bookmark after
/// about a second, with 1 or 2 none at all (measured on 1.36).
const SMALL_WATCH_SECONDS: u64 = 3;
/// Longer than the small watch can take.
const SMALL_WATCH_MAX: Duration = Duration::from_secs(5);
/// How long the store may take to apply what the small watch showed.
const CATCH_UP_MAX: Duration = Duration::from_secs(3);
/// A watch under way may have been opened too early to reach the version; the second is ours.
const SMALL_WATCHES_MAX: usize = 2;

/// Why the store could not be shown to be recent. The request is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    #[error("upstream did not say what its head version is")]
    NoHead,
    #[error("upstream sent no bookmark that reaches its head version")]
    NoBookmark,
}

/// Nothing happened behind `last_change` up to `complete_to`: a store that has the one is complete up to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Proof {
    last_change: ResourceVersion,
    complete_to: ResourceVersion,
}

/// Proofs for one resource, shared by its stores in all encodings.
#[derive(Debug)]
pub(super) struct Freshness {
    /// One request for the head version serves all who were waiting when it was sent.
    head: SingleFlight<Result<ResourceVersion, Failure>>,
    /// One small watch at a time; its bookmark serves everybody.
    bookmark: SingleFlight<Option<Proof>>,
}

impl Default for Freshness {
    fn default() -> Self {
        Self { head: SingleFlight::new(Join::BeforeItIsSent), bookmark: SingleFlight::new(Join::AnyTime) }
    }
}

impl Freshness {
    /// Returns when the store holds everything that upstream had acknowledged when this was called.
    ///
    /// `has_watch_list`: an upstream without it is too old to tell its watches of progress when it is asked to, so that
    /// small watches would cost seconds and show nothing (seen on 1.20).
    pub(super) async fn prove(
        &self,
        upstream: &impl ListWatch,
        has_watch_list: bool,
        reader: &Reader,
        advance: &Advance,
    ) -> Result<(), Unproven> {
        let asked = self.head.ask(|| async { head_version(&upstream.head().await?) });
        let head = asked.await.map_err(|_| Unproven::NoHead)?;
        let small_watches = if has_watch_list { SMALL_WATCHES_MAX } else { 0 };
        for _ in 0..small_watches {
            if reader.progress() >= head {
                return Ok(());
            }
            let Some(proof) = self.bookmark.ask(|| small_watch(upstream, reader)).await else { continue };
            if timeout(CATCH_UP_MAX, reader.reached(proof.last_change)).await.is_ok() {
                advance.to(proof.complete_to);
            }
        }
        if reader.progress() >= head { Ok(()) } else { Err(Unproven::NoBookmark) }
    }
}

/// Watches from the store's version for the bookmark that comes before the deadline.
async fn small_watch(upstream: &impl ListWatch, reader: &Reader) -> Option<Proof> {
    let shown = timeout(SMALL_WATCH_MAX, first_bookmark(upstream, reader)).await;
    shown.unwrap_or(Ok(None)).unwrap_or(None)
}

async fn first_bookmark(upstream: &impl ListWatch, reader: &Reader) -> Result<Option<Proof>, Failure> {
    let (mut last_change, start) = reader.last_change_and_progress();
    let request = WatchRequest { from: WatchFrom::After(start), seconds: SMALL_WATCH_SECONDS };
    let mut events = EventStream::new(upstream.watch(request).await?, reader.schema().shape.encoding());
    while let Some(event) = events.next(upstream, reader.schema(), SMALL_WATCH_MAX).await? {
        match event {
            UpstreamEvent::Change { object, .. } => last_change = object.version,
            UpstreamEvent::Bookmark { version, .. } => return Ok(Some(Proof { last_change, complete_to: version })),
        }
    }
    Ok(None)
}
