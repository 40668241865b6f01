//! An upstream watch that lasts until its first bookmark: it shows the changes after a version, and up to which version
//! these are complete.

use std::time::Duration;

use tokio::time::timeout;

use base::apimachinery::ResourceVersion;
use engine::{
    reflector::{EventStream, Failure, ListWatch, UpstreamEvent, WatchFrom, WatchRequest},
    store::Schema,
};

/// The `timeoutSeconds` of the watch: with 3, a current API server sends its last bookmark after about a second; with 1
/// or 2 it sends none (measured on 1.36).
const SECONDS: u64 = 3;
/// Longer than the watch can take.
const MAX: Duration = Duration::from_secs(5);

/// Nothing happened after `behind`, up to `up_to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuietRange {
    pub(super) behind: ResourceVersion,
    pub(super) up_to: ResourceVersion,
}

/// Watches from `start`; `last_change` is the last known change at that version. `None` if no bookmark arrived.
pub(super) async fn progress_probe(
    upstream: &impl ListWatch,
    schema: &Schema,
    start: ResourceVersion,
    last_change: ResourceVersion,
) -> Result<Option<QuietRange>, Failure> {
    let watched = async {
        let request = WatchRequest { seconds: SECONDS, ..WatchRequest::new(WatchFrom::After(start)) };
        let mut events = EventStream::new(upstream.watch(request).await?, schema.shape.encoding());
        let mut behind = last_change;
        while let Some(event) = events.next(schema, MAX).await? {
            match event {
                UpstreamEvent::Bookmark { version: up_to, .. } => return Ok(Some(QuietRange { behind, up_to })),
                UpstreamEvent::Change { object, .. } => behind = object.version,
            }
        }
        Ok(None)
    };
    timeout(MAX, watched).await.unwrap_or(Ok(None))
}
