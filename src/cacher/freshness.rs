//! Proving that a store is as recent as upstream itself (design, section 6).

use std::time::Duration;

use tokio::time::timeout;

use super::single_flight::{Join, SingleFlight};
use crate::{
    apimachinery::ResourceVersion,
    reflector::{Failure, Lines, ListWatch, UpstreamEvent, WatchFrom, WatchRequest, head_version},
    store::{Advance, Reader},
};

/// `timeoutSeconds` of the small watch: with 3 a current API server sends its last bookmark after
/// about a second, with 1 or 2 none at all (design, section 6, measured on 1.36).
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

/// Proofs for one instance.
#[derive(Debug)]
pub(super) struct Freshness {
    /// One request for the head version serves all who were waiting when it was sent.
    head: SingleFlight<Result<ResourceVersion, Failure>>,
    /// One small watch at a time; its bookmark serves everybody.
    bookmark: SingleFlight<()>,
}

impl Freshness {
    pub(super) fn new() -> Self {
        Self { head: SingleFlight::new(Join::BeforeItIsSent), bookmark: SingleFlight::new(Join::AnyTime) }
    }

    /// Returns when the store holds everything that upstream had acknowledged when this was called.
    pub(super) async fn prove(
        &self,
        upstream: &impl ListWatch,
        reader: &Reader,
        advance: &Advance,
    ) -> Result<(), Unproven> {
        let asked = self.head.ask(|| async { head_version(&upstream.head().await?) });
        let head = asked.await.map_err(|_| Unproven::NoHead)?;
        for _ in 0..SMALL_WATCHES_MAX {
            if reader.progress() >= head {
                return Ok(());
            }
            self.bookmark.ask(|| small_watch(upstream, reader, advance)).await;
        }
        if reader.progress() >= head { Ok(()) } else { Err(Unproven::NoBookmark) }
    }
}

/// Watches from the store's version for the bookmark that comes before the deadline. When it has
/// come and the store has what the watch showed before it, the store is complete up to it.
async fn small_watch(upstream: &impl ListWatch, reader: &Reader, advance: &Advance) {
    let start = reader.progress();
    let shown = timeout(SMALL_WATCH_MAX, last_bookmark(upstream, reader, start)).await;
    let Ok(Ok(Some(Shown { bookmark, last_change }))) = shown else { return };
    if timeout(CATCH_UP_MAX, reader.reached(last_change)).await.is_ok() {
        advance.to(bookmark);
    }
}

struct Shown {
    bookmark: ResourceVersion,
    last_change: ResourceVersion,
}

async fn last_bookmark(
    upstream: &impl ListWatch,
    reader: &Reader,
    start: ResourceVersion,
) -> Result<Option<Shown>, Failure> {
    let request = WatchRequest { from: WatchFrom::After(start), seconds: SMALL_WATCH_SECONDS };
    let mut stream = upstream.watch(request).await?;
    let (mut lines, mut last_change) = (Lines::default(), start);
    while let Some(chunk) = upstream.next(&mut stream).await {
        lines.push(&chunk?);
        while let Some(line) = lines.next_line().map_err(|_| Failure::Malformed)? {
            match UpstreamEvent::parse(&line, reader.schema()).map_err(|_| Failure::Malformed)? {
                UpstreamEvent::Change { object, .. } => last_change = object.version,
                UpstreamEvent::Bookmark { version, .. } => {
                    return Ok(Some(Shown { bookmark: version, last_change }));
                }
                UpstreamEvent::Error(failure) => return Err(failure),
            }
        }
    }
    Ok(None)
}
