//! Shows that nothing has happened since a version from before the fill.

#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::small_watch::{Stretch, small_watch};
use crate::{
    apimachinery::ResourceVersion,
    memo::{Join, SingleFlight},
    reflector::{Failure, ListWatch},
    store::Schema,
};

/// Asks upstream on behalf of all callers of one store: one small watch at a time, from the oldest of their versions.
#[derive(Debug)]
pub(super) struct Quiet {
    watch: SingleFlight<Shown>,
    waiting: Mutex<Waiting>,
}

/// The versions at which the next small watch may begin.
#[derive(Debug, Default)]
struct Waiting {
    versions: Vec<ResourceVersion>,
    /// The highest version known to be too old: upstream's history does not reach back to it or any lower version.
    expired: Option<ResourceVersion>,
}

/// The result of a small watch from that version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown {
    from: ResourceVersion,
    quiet: Option<Stretch>,
}

/// The place of one version among those that wait; given up when dropped.
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
    /// The version up to which nothing has happened since `version`. `None` if something has, or upstream does not
    /// answer the question.
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
                // An expired version says nothing about later ones. And a watch that was already open may have begun
                // after this version; the next one does not.
                None if shown.from < version && self.waiting().has_expired(shown.from) => {}
                _ if shown.from > version => {}
                Some(_) | None => return None,
            }
        }
    }

    /// Watches from the oldest waiting version; `own` is one of them.
    async fn small_watch(&self, own: ResourceVersion, upstream: &impl ListWatch, schema: &Schema) -> Shown {
        let from = self.waiting().oldest().unwrap_or(own);
        // A watch is only of use while a caller waits with a version that is not lower than the last change.
        let is_of_use = |behind| self.waiting().is_any_from(behind);
        let shown = small_watch(upstream, schema, from, from, is_of_use).await;
        if let Err(Failure::Expired) = shown {
            self.waiting().expired(from);
        }
        Shown { from, quiet: shown.ok().flatten() }
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
