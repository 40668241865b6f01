//! A watch of upstream that lasts until its first bookmark: what has happened behind a version, and up to where that is all.

use std::time::Duration;

use tokio::time::timeout;

use crate::{
    apimachinery::ResourceVersion,
    reflector::{EventStream, Failure, ListWatch, UpstreamEvent, WatchFrom, WatchRequest},
    store::Schema,
};

/// `timeoutSeconds`: with 3 a current API server sends its last bookmark after about a second, with 1 or 2 none at all (measured
/// on 1.36).
const SECONDS: u64 = 3;
/// Longer than it can take.
const MAX: Duration = Duration::from_secs(5);

/// Nothing happened behind the one version up to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) behind: ResourceVersion,
    pub(super) up_to: ResourceVersion,
}

/// Watches from `start`; `last_change` is the last one that is known at it. Ends early when what follows a change `is_of_use` to
/// nothing. `None` if no bookmark came.
pub(super) async fn small_watch(
    upstream: &impl ListWatch,
    schema: &Schema,
    start: ResourceVersion,
    last_change: ResourceVersion,
    is_of_use: impl Fn(ResourceVersion) -> bool,
) -> Result<Option<Stretch>, Failure> {
    let watched = async {
        let request = WatchRequest { from: WatchFrom::After(start), seconds: SECONDS };
        let mut events = EventStream::new(upstream.watch(request).await?, schema.shape.encoding());
        let mut behind = last_change;
        while let Some(event) = events.next(upstream, schema, MAX).await? {
            match event {
                UpstreamEvent::Bookmark { version: up_to, .. } => return Ok(Some(Stretch { behind, up_to })),
                UpstreamEvent::Change { object, .. } => behind = object.version,
            }
            if !is_of_use(behind) {
                break;
            }
        }
        Ok(None)
    };
    timeout(MAX, watched).await.unwrap_or(Ok(None))
}
