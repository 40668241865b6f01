//! Showing that nothing has happened since a version from before the fill.

use std::time::Duration;

use tokio::{sync::Semaphore, time::timeout};

use crate::{
    apimachinery::ResourceVersion,
    reflector::{EventStream, Failure, ListWatch, UpstreamEvent, WatchFrom, WatchRequest},
    store::Schema,
    telemetry::limit_reached,
};

/// `timeoutSeconds` of the small watch, after about a third of which a current API server sends its bookmark.
const SMALL_WATCH_SECONDS: u64 = 3;
/// Longer than the small watch can take.
const SMALL_WATCH_MAX: Duration = Duration::from_secs(5);
/// Small watches for one store at once. Others wait, while their clients have upstream's answers.
const AT_ONCE: usize = 32;

/// Asks upstream, for one store.
#[derive(Debug)]
pub(super) struct Quiet {
    places: Semaphore,
}

impl Default for Quiet {
    fn default() -> Self {
        Self { places: Semaphore::new(AT_ONCE) }
    }
}

impl Quiet {
    /// The version up to which nothing has happened since `version`. `None` if something has, or upstream does not say.
    pub(super) async fn since(
        &self,
        version: ResourceVersion,
        upstream: &impl ListWatch,
        schema: &Schema,
    ) -> Option<ResourceVersion> {
        if self.places.available_permits() == 0 {
            limit_reached("quiet_watches");
        }
        // The semaphore is never closed.
        let _place = self.places.acquire().await.ok()?;
        timeout(SMALL_WATCH_MAX, first_bookmark(version, upstream, schema)).await.ok()?.ok()?
    }
}

async fn first_bookmark(
    after: ResourceVersion,
    upstream: &impl ListWatch,
    schema: &Schema,
) -> Result<Option<ResourceVersion>, Failure> {
    let request = WatchRequest { from: WatchFrom::After(after), seconds: SMALL_WATCH_SECONDS };
    let mut events = EventStream::new(upstream.watch(request).await?, schema.shape.encoding());
    Ok(match events.next(upstream, schema, SMALL_WATCH_MAX).await? {
        Some(UpstreamEvent::Bookmark { version, .. }) => Some(version),
        Some(UpstreamEvent::Change { .. }) | None => None,
    })
}
