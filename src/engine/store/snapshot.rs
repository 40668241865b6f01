//! All objects of one resource at one version.

use std::{
    ops::Bound::{Excluded, Included, Unbounded},
    sync::Arc,
};

use imbl::OrdMap;

use super::{budget::StoreBudget, leaf::Leaf, object::Object, objects::Objects};
use base::apimachinery::{ObjectKey, ResourceVersion};

/// An immutable, ordered collection. Cloning it costs one reference count, and changing it copies one leaf.
///
/// Leaves are indexed by a lower bound: `namespace/` for the first leaf of a namespace, and the first key at the time
/// of the split for the others. A leaf holds the keys from its bound up to the next bound.
#[derive(Clone, Debug)]
pub struct Snapshot {
    version: ResourceVersion,
    leaves: OrdMap<Arc<str>, Arc<Leaf>>,
    len: usize,
    bytes: usize,
    /// For what is derived from the objects.
    budget: StoreBudget,
}

impl Snapshot {
    pub(super) fn from_objects(version: ResourceVersion, objects: &Objects, budget: StoreBudget) -> Self {
        let mut snapshot = Self { version, leaves: OrdMap::new(), len: 0, bytes: 0, budget };
        let mut before = None;
        for leaf in objects.leaves(&snapshot.budget) {
            let first = &leaf.objects()[0].key;
            let is_next = before.is_some_and(|before: ObjectKey| before.namespace() == first.namespace());
            let bound = if is_next { first.as_str().into() } else { first_bound(first.as_str()).into() };
            before = Some(first.clone());
            snapshot.len += leaf.objects().len();
            snapshot.bytes += leaf.bytes();
            snapshot.leaves.insert(bound, Arc::new(leaf));
        }
        snapshot
    }

    /// The version up to which this state is known to be complete: `metadata.resourceVersion` of a list.
    pub fn version(&self) -> ResourceVersion {
        self.version
    }

    pub(super) fn at(mut self, version: ResourceVersion) -> Self {
        self.version = version;
        self
    }

    /// The number of objects, in constant time.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The total length of the objects' tails, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The object with that key, as written by [`ObjectKey::as_str`].
    pub fn get(&self, key: &str) -> Option<&Arc<Object>> {
        let (_, leaf) = self.leaf_of(key)?;
        leaf.search(key).ok().map(|at| &leaf.objects()[at])
    }

    /// All leaves in key order.
    pub fn leaves(&self) -> impl Iterator<Item = &Arc<Leaf>> {
        self.leaves.values()
    }

    /// The leaves of one namespace in key order.
    pub fn leaves_in(&self, namespace: &str) -> impl Iterator<Item = &Arc<Leaf>> {
        let bound = format!("{namespace}/");
        let inside = bound.clone();
        self.leaves
            .range::<_, str>((Included(bound.as_str()), Unbounded))
            .take_while(move |(bound, _)| bound.starts_with(&inside))
            .map(|(_, leaf)| leaf)
    }

    /// The objects whose key begins with `prefix` and is not less than `start`, in key order.
    pub fn objects_from<'a, 'k>(&'a self, prefix: &'k str, start: &'k str) -> impl Iterator<Item = &'a Arc<Object>> {
        self.leaves_from(prefix, start)
            .flat_map(|leaf| leaf.objects())
            .skip_while(move |object| object.key.as_str() < start)
            .take_while(move |object| object.key.as_str().starts_with(prefix))
    }

    /// The number of objects whose key begins with `prefix` and is not less than `start`. Costs one step per leaf.
    pub fn count_from(&self, prefix: &str, start: &str) -> usize {
        let within = |leaf: &Leaf| match (leaf.objects().first(), leaf.objects().last()) {
            (Some(first), Some(last)) => first.key.as_str() >= start && last.key.as_str().starts_with(prefix),
            _ => true,
        };
        let counted = |object: &&Arc<Object>| {
            let key = object.key.as_str();
            key >= start && key.starts_with(prefix)
        };
        self.leaves_from(prefix, start)
            .map(|leaf| if within(leaf) { leaf.objects().len() } else { leaf.objects().iter().filter(counted).count() })
            .sum()
    }

    /// The leaf that may contain `start`, or the first one that may contain `prefix`, and the following ones that may
    /// contain `prefix`.
    fn leaves_from<'a, 'k>(&'a self, prefix: &'k str, start: &'k str) -> impl Iterator<Item = &'a Arc<Leaf>> {
        let start = start.max(prefix);
        let from = self.leaves.get_prev(start).map_or(start, |(bound, _)| bound);
        self.leaves
            .range::<_, str>((Included(from), Unbounded))
            .take_while(move |(bound, _)| &***bound <= start || bound.starts_with(prefix))
            .map(|(_, leaf)| leaf)
    }

    /// Inserts `object` and returns the object that it replaces.
    pub(super) fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let key = object.key.clone();
        let (bound, mut objects) = match self.leaf_of(key.as_str()) {
            Some((bound, leaf)) => {
                leaf.retire();
                (bound.clone(), leaf.objects().to_vec())
            }
            None => (first_bound(key.as_str()).into(), Vec::with_capacity(1)),
        };
        self.bytes += object.tail_len();
        let before = match objects.binary_search_by(|other| other.key.cmp(&key)) {
            Ok(at) => Some(std::mem::replace(&mut objects[at], object)),
            Err(at) => {
                objects.insert(at, object);
                None
            }
        };
        match &before {
            Some(before) => self.bytes -= before.tail_len(),
            None => self.len += 1,
        }
        if objects.len() > Leaf::LEN_MAX {
            let right = objects.split_off(objects.len() / 2);
            let bound = right[0].key.as_str().into();
            self.leaves.insert(bound, self.leaf(right));
        }
        self.leaves.insert(bound, self.leaf(objects));
        before
    }

    fn leaf(&self, objects: Vec<Arc<Object>>) -> Arc<Leaf> {
        Arc::new(Leaf::new(objects, self.budget.clone()))
    }

    /// Removes the object with that key and returns it.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        let (bound, leaf) = self.leaf_of(key.as_str())?;
        let at = leaf.search(key.as_str()).ok()?;
        leaf.retire();
        let bound = bound.clone();
        let mut objects = leaf.objects().to_vec();
        let before = objects.remove(at);
        self.len -= 1;
        self.bytes -= before.tail_len();
        if objects.len() < Leaf::LEN_MIN {
            self.take_next(&bound, &mut objects);
        }
        if objects.is_empty() {
            self.leaves.remove(&bound);
        } else {
            self.leaves.insert(bound, self.leaf(objects));
        }
        Some(before)
    }

    /// Appends the objects of the following leaf to `objects`, if both leaves are of the same namespace and the result
    /// fits into one leaf.
    fn take_next(&mut self, bound: &Arc<str>, objects: &mut Vec<Arc<Object>>) {
        let Some((next, leaf)) = self.leaves.range::<_, str>((Excluded(&**bound), Unbounded)).next() else { return };
        if first_bound(next) != first_bound(bound) || objects.len() + leaf.objects().len() > Leaf::LEN_MAX {
            return;
        }
        leaf.retire();
        objects.extend_from_slice(leaf.objects());
        let next = next.clone();
        self.leaves.remove(&next);
    }

    fn leaf_of(&self, key: &str) -> Option<(&Arc<str>, &Arc<Leaf>)> {
        let (bound, leaf) = self.leaves.get_prev(key)?;
        (first_bound(bound) == first_bound(key)).then_some((bound, leaf))
    }
}

/// The `namespace/` prefix of a key or bound; empty for a cluster-scoped one.
fn first_bound(key: &str) -> &str {
    key.find('/').map_or("", |slash| &key[..=slash])
}
