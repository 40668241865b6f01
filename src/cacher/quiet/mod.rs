//! Showing that nothing has happened since a version from before the fill.

#[cfg(test)]
mod tests;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::timeout;

use super::single_flight::{Join, SingleFlight};
use crate::{
    apimachinery::ResourceVersion,
    reflector::{EventStream, Failure, ListWatch, UpstreamEvent, WatchFrom, WatchRequest},
    store::Schema,
};

/// `timeoutSeconds` of the small watch, after about a third of which a current API server sends its bookmark.
const SMALL_WATCH_SECONDS: u64 = 3;
/// Longer than the small watch can take.
const SMALL_WATCH_MAX: Duration = Duration::from_secs(5);

/// Asks upstream, for all who wait on one store: one small watch at a time, from the oldest of their versions.
#[derive(Debug)]
pub(super) struct Quiet {
    watch: SingleFlight<Shown>,
    waiting: Mutex<Waiting>,
}

/// Whose versions a small watch may begin at.
#[derive(Debug, Default)]
struct Waiting {
    versions: Vec<ResourceVersion>,
    /// Upstream's history does not go back to this one, nor to any before it.
    expired: Option<ResourceVersion>,
}

/// What a small watch from that version has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown {
    from: ResourceVersion,
    quiet: Option<Stretch>,
}

/// Nothing has happened behind the one version up to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    behind: ResourceVersion,
    up_to: ResourceVersion,
}

/// One version's place among those that wait; given up when dropped.
struct Place<'a> {
    waiting: &'a Mutex<Waiting>,
    version: ResourceVersion,
}

impl Default for Quiet {
    fn default() -> Self {
        Self { watch: SingleFlight::new(Join::AnyTime), waiting: Mutex::default() }
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
        let _place = Place::take(&self.waiting, version);
        loop {
            if self.waiting().has_expired(version) {
                return None;
            }
            let shown = self.watch.ask(|| self.small_watch(version, upstream, schema)).await;
            match shown.quiet {
                Some(Stretch { behind, up_to }) if behind <= version => return Some(up_to),
                // Of a version that had expired nothing is known about those behind it. And one that was under way may have
                // begun behind this version: the next one does not.
                None if shown.from < version && self.waiting().has_expired(shown.from) => {}
                _ if shown.from > version => {}
                Some(_) | None => return None,
            }
        }
    }

    /// Watches from the oldest version that somebody waits with; `own` is one of them.
    async fn small_watch(&self, own: ResourceVersion, upstream: &impl ListWatch, schema: &Schema) -> Shown {
        let from = self.waiting().oldest().unwrap_or(own);
        let shown = timeout(SMALL_WATCH_MAX, self.first_bookmark(from, upstream, schema)).await;
        if let Ok(Err(Failure::Expired)) = shown {
            self.waiting().expired(from);
        }
        Shown { from, quiet: shown.ok().and_then(Result::ok).flatten() }
    }

    async fn first_bookmark(
        &self,
        from: ResourceVersion,
        upstream: &impl ListWatch,
        schema: &Schema,
    ) -> Result<Option<Stretch>, Failure> {
        let request = WatchRequest { from: WatchFrom::After(from), seconds: SMALL_WATCH_SECONDS };
        let mut events = EventStream::new(upstream.watch(request).await?, schema.shape.encoding());
        let mut behind = from;
        while let Some(event) = events.next(upstream, schema, SMALL_WATCH_MAX).await? {
            match event {
                UpstreamEvent::Bookmark { version: up_to, .. } => return Ok(Some(Stretch { behind, up_to })),
                UpstreamEvent::Change { object, .. } => behind = object.version,
            }
            // What follows serves only who has been told of all that came.
            if !self.waiting().is_any_from(behind) {
                break;
            }
        }
        Ok(None)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn oldest(&self) -> Option<ResourceVersion> {
        self.versions.iter().copied().filter(|version| !self.has_expired(*version)).min()
    }

    fn is_any_from(&self, version: ResourceVersion) -> bool {
        self.versions.iter().any(|waiting| *waiting >= version)
    }

    fn expired(&mut self, version: ResourceVersion) {
        self.expired = self.expired.max(Some(version));
    }

    fn has_expired(&self, version: ResourceVersion) -> bool {
        self.expired.is_some_and(|expired| version <= expired)
    }
}

impl<'a> Place<'a> {
    fn take(waiting: &'a Mutex<Waiting>, version: ResourceVersion) -> Self {
        waiting.lock().unwrap_or_else(PoisonError::into_inner).versions.push(version);
        Self { waiting, version }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let versions = &mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner).versions;
        if let Some(at) = versions.iter().position(|version| *version == self.version) {
            versions.swap_remove(at);
        }
    }
}
