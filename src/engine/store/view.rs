//! A store restricted to the scope of one request.

use std::sync::Arc;

use super::{Backlog, Expired, Leaf, Object, Predicate, Reader, Schema, Scope, Search, Snapshot};
use base::apimachinery::{ObjectKey, ResourceVersion};

/// A reader and its scope. Every object, leaf and change that it returns lies in the scope.
#[derive(Clone, Debug)]
pub struct View {
    reader: Reader,
    scope: Scope,
}

/// One state, restricted to the scope of one request. Immutable; cheap to clone, except for its scope.
#[derive(Clone, Debug)]
pub struct Extract {
    snapshot: Snapshot,
    scope: Scope,
}

impl View {
    pub fn new(reader: Reader, scope: Scope) -> Self {
        Self { reader, scope }
    }

    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    pub fn schema(&self) -> &Arc<Schema> {
        self.reader.schema()
    }

    /// The version up to which the store is known to be complete.
    pub fn progress(&self) -> ResourceVersion {
        self.reader.progress()
    }

    /// The newest state.
    pub fn newest(&self) -> Extract {
        self.extract(self.reader.snapshot())
    }

    /// The state at exactly that version, if history covers it.
    pub fn exact(&self, version: ResourceVersion) -> Option<Extract> {
        Some(self.extract(self.reader.exact(version)?))
    }

    /// The number of the first change after `version`: see [`Reader::after`].
    pub fn after(&self, version: ResourceVersion) -> Result<u64, Expired> {
        self.reader.after(version)
    }

    /// The end of the last bridged gap behind `version`: see [`Reader::gap_end_behind`].
    pub fn gap_end_behind(&self, version: ResourceVersion) -> Option<ResourceVersion> {
        self.reader.gap_end_behind(version)
    }

    /// Whether `version` lies in a bridged gap: see [`Reader::is_in_gap`].
    pub fn is_in_gap(&self, version: ResourceVersion) -> bool {
        self.reader.is_in_gap(version)
    }

    /// The store's progress and the number of the next change.
    pub fn progress_and_next(&self) -> (ResourceVersion, u64) {
        let (snapshot, next) = self.reader.snapshot_and_next();
        (snapshot.version(), next)
    }

    /// Whether history holds all changes from that number on: see [`Reader::reaches_back_to`].
    pub fn reaches_back_to(&self, number: u64) -> bool {
        self.reader.reaches_back_to(number)
    }

    /// At most `limit` changes from that number on, filtered by the scope: see [`Reader::backlog`].
    pub fn backlog(&self, next: u64, limit: usize) -> Option<Backlog> {
        let mut backlog = self.reader.backlog(next, limit)?;
        backlog.changes.retain(|change| self.scope.contains(&change.object.key));
        Some(backlog)
    }

    fn extract(&self, snapshot: Snapshot) -> Extract {
        Extract { snapshot, scope: self.scope.clone() }
    }
}

impl Extract {
    /// The version up to which this state is known to be complete.
    pub fn version(&self) -> ResourceVersion {
        self.snapshot.version()
    }

    /// The common prefix of all keys in the scope.
    pub fn prefix(&self) -> String {
        self.scope.prefix()
    }

    /// The leaves that make up the scope, in key order; `None` if the scope does not consist of whole leaves.
    pub fn leaves(&self) -> Option<Vec<Arc<Leaf>>> {
        match &self.scope {
            Scope::Everything => Some(self.snapshot.leaves().cloned().collect()),
            Scope::Namespace(namespace) => Some(self.snapshot.leaves_in(namespace).cloned().collect()),
            Scope::Named(_) | Scope::Object(_) => None,
        }
    }

    /// The object of a [`Scope::Object`], if it exists; `None` for other scopes.
    pub fn object(&self) -> Option<&Arc<Object>> {
        match &self.scope {
            Scope::Object(key) => self.snapshot.get(key.as_str()),
            Scope::Everything | Scope::Namespace(_) | Scope::Named(_) => None,
        }
    }

    /// The keys from `start` on, in key order, each with its object if that is in the scope and matches. `prefix` is
    /// [`Self::prefix`]. All keys are returned, so that a caller can end after a bounded number of them.
    pub fn examine<'a, 'k>(
        &'a self,
        prefix: &'k str,
        start: &'k str,
        predicate: &'k Predicate,
    ) -> impl Iterator<Item = (&'a ObjectKey, Option<&'a Arc<Object>>)> {
        let selects = move |object: &Arc<Object>| self.scope.contains(&object.key) && predicate.matches(object);
        let objects = self.snapshot.objects_from(prefix, start);
        objects.map(move |object| (&object.key, Some(object).filter(|object| selects(object))))
    }

    /// Looks for the matching objects: at most `limit`, from `start` (without the scope's prefix) on.
    pub fn search<'a>(&'a self, start: &str, limit: usize, predicate: &'a Predicate) -> Search<'a> {
        Search::new(self, start, limit, predicate)
    }

    /// The number of objects in the scope from that key on. Costs one step per leaf.
    pub(super) fn count_from(&self, prefix: &str, start: &str) -> usize {
        self.snapshot.count_from(prefix, start)
    }
}
