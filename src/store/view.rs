//! A store restricted to the scope of one request.

use std::sync::Arc;

use super::{Backlog, Expired, Leaf, Object, Predicate, Reader, Schema, Scope, Snapshot};
use crate::apimachinery::ResourceVersion;

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

/// A page of a list.
#[derive(Debug)]
pub struct Page<'a> {
    pub objects: Vec<&'a Arc<Object>>,
    /// The start of the next page; `None` if this page is the last one.
    pub next: Option<NextPage>,
}

/// The start of a page.
#[derive(Debug, PartialEq, Eq)]
pub struct NextPage {
    /// The first key of the page, without the scope's prefix.
    pub start: String,
    /// The number of objects in this page and all later ones; `None` if the predicate does not match everything.
    pub remaining: Option<usize>,
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

    /// Whether a bridged gap ends after `version`: see [`Reader::has_gap_behind`].
    pub fn has_gap_behind(&self, version: ResourceVersion) -> bool {
        self.reader.has_gap_behind(version)
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

    /// The objects in the scope, in key order.
    pub fn objects(&self) -> Box<dyn Iterator<Item = &Arc<Object>> + '_> {
        match &self.scope {
            Scope::Everything => Box::new(self.snapshot.leaves().flat_map(|leaf| leaf.objects())),
            Scope::Namespace(namespace) => Box::new(self.snapshot.leaves_in(namespace).flat_map(|leaf| leaf.objects())),
            Scope::Named(_) => {
                let all = self.snapshot.leaves().flat_map(|leaf| leaf.objects());
                Box::new(all.filter(|object| self.scope.contains(&object.key)))
            }
            Scope::Object(key) => Box::new(self.snapshot.get(key.as_str()).into_iter()),
        }
    }

    /// The object of a [`Scope::Object`], if it exists; `None` for other scopes.
    pub fn object(&self) -> Option<&Arc<Object>> {
        match &self.scope {
            Scope::Object(key) => self.snapshot.get(key.as_str()),
            Scope::Everything | Scope::Namespace(_) | Scope::Named(_) => None,
        }
    }

    /// The objects in the scope whose key is not less than `start`, in key order.
    pub fn objects_from<'a>(&'a self, prefix: &'a str, start: &'a str) -> impl Iterator<Item = &'a Arc<Object>> {
        let objects = self.snapshot.objects_from(prefix, start);
        objects.filter(|object| self.scope.contains(&object.key))
    }

    /// At most `limit` matching objects, from `start` (without the scope's prefix) on. If any key follows the last one
    /// of a full page, matching or not, there is a next page (read-path 1.3).
    pub fn page(&self, start: &str, limit: usize, predicate: &Predicate) -> Page<'_> {
        let prefix = self.scope.prefix();
        let start = format!("{prefix}{start}");
        let (mut objects, mut last, mut more) = (Vec::new(), None, false);
        for object in self.snapshot.objects_from(&prefix, &start) {
            if objects.len() == limit {
                more = true;
                break;
            }
            last = Some(&object.key);
            if self.scope.contains(&object.key) && predicate.matches(object) {
                objects.push(object);
            }
        }
        let next = last.filter(|_| more).map(|last| {
            let next = format!("{}\0", last.as_str());
            let remaining = predicate.is_everything().then(|| self.snapshot.count_from(&prefix, &next));
            NextPage { start: next[prefix.len()..].to_owned(), remaining }
        });
        Page { objects, next }
    }
}
