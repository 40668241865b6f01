//! The data: every collection, its history, and the revision counter that all writes share.
//!
//! Each write holds one lock while it is checked and applied, so revisions have no gaps, and histories are in their
//! order.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use base::apimachinery::GroupResource;

use crate::{
    crd,
    definition::{Definition, built_in},
    failure::Failure,
    history::{Change, History},
    stored::Stored,
};

/// The result of a write for an object.
pub(crate) enum Write {
    Put(Value),
    Remove,
    /// Nothing changed: no new revision, no event.
    Keep,
}

/// Objects of one collection at one revision.
pub(crate) struct View {
    pub(crate) revision: u64,
    /// In the order of their keys.
    pub(crate) objects: Vec<Arc<Stored>>,
}

/// The requested revision was compacted, or some changes after it are no longer known.
#[derive(Debug)]
pub(crate) struct Compacted;

#[derive(Debug)]
pub(crate) struct Storage {
    state: Mutex<State>,
    head: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    revision: u64,
    /// Exact reads below this revision fail.
    compacted: u64,
    history_limit: usize,
    collections: BTreeMap<GroupResource, Collection>,
}

#[derive(Debug)]
struct Collection {
    definition: Arc<Definition>,
    objects: BTreeMap<String, Arc<Stored>>,
    history: Arc<History>,
}

impl Storage {
    /// All built-in resources without objects, at revision 1.
    pub(crate) fn new(history_limit: usize) -> Self {
        let mut state = State { revision: 1, compacted: 0, history_limit, collections: BTreeMap::new() };
        for definition in built_in() {
            state.define(definition);
        }
        Self { head: watch::Sender::new(state.revision), state: Mutex::new(state) }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.state().revision
    }

    /// Follows the newest revision.
    pub(crate) fn head(&self) -> watch::Receiver<u64> {
        self.head.subscribe()
    }

    pub(crate) fn definitions(&self) -> Vec<Arc<Definition>> {
        self.state().collections.values().map(|collection| collection.definition.clone()).collect()
    }

    pub(crate) fn definition(&self, group: &str, plural: &str) -> Option<Arc<Definition>> {
        let resource = GroupResource { group: group.into(), resource: plural.into() };
        self.state().collections.get(&resource).map(|collection| collection.definition.clone())
    }

    pub(crate) fn get(&self, definition: &Definition, key: &str) -> Option<Arc<Stored>> {
        self.state().collections.get(&definition.group_resource())?.objects.get(key).cloned()
    }

    /// The current objects.
    pub(crate) fn view(&self, definition: &Definition) -> View {
        let state = self.state();
        let collection = state.collections.get(&definition.group_resource());
        let objects = collection.into_iter().flat_map(|collection| collection.objects.values().cloned()).collect();
        View { revision: state.revision, objects }
    }

    /// The objects at a revision.
    pub(crate) fn view_at(&self, definition: &Definition, revision: u64) -> Result<View, Compacted> {
        let state = self.state();
        if revision < state.compacted {
            return Err(Compacted);
        }
        let Some(collection) = state.collections.get(&definition.group_resource()) else {
            return Ok(View { revision, objects: Vec::new() });
        };
        let objects = collection.history.undo(&collection.objects, revision).ok_or(Compacted)?;
        Ok(View { revision, objects: objects.into_values().collect() })
    }

    /// The objects in a cache that is behind by `lag` and began at `started_at`; the current ones if the earlier state
    /// is no longer known.
    pub(crate) fn cached_view(&self, definition: &Definition, lag: Duration, started_at: u64) -> View {
        let time = Instant::now().checked_sub(lag).filter(|_| !lag.is_zero());
        let revision = time.and_then(|time| {
            let state = self.state();
            state.collections.get(&definition.group_resource())?.history.revision_at(time)
        });
        let view = revision.and_then(|revision| self.view_at(definition, revision.max(started_at)).ok());
        view.unwrap_or_else(|| self.view(definition))
    }

    /// The current state and the history that continues from it: the start of a watch.
    pub(crate) fn start_watch(&self, definition: &Definition) -> Option<(View, Arc<History>)> {
        let state = self.state();
        let collection = state.collections.get(&definition.group_resource())?;
        let view = View { revision: state.revision, objects: collection.objects.values().cloned().collect() };
        Some((view, collection.history.clone()))
    }

    /// The changes in a history after a revision, and the revision up to which they are complete.
    pub(crate) fn pending(
        &self,
        history: &History,
        after: u64,
    ) -> (Result<Vec<Arc<Change>>, crate::history::Lost>, u64) {
        let state = self.state();
        (history.after(after), state.revision)
    }

    /// Passes the object to `decide` and performs the result. Returns the object afterwards; for a removed one, its
    /// last state with the revision of the removal.
    pub(crate) fn write(
        &self,
        definition: &Definition,
        key: &str,
        decide: impl FnOnce(Option<&Stored>) -> Result<Write, Failure>,
    ) -> Result<Arc<Stored>, Failure> {
        let mut state = self.state();
        let resource = definition.group_resource();
        let collection = state.collections.get(&resource).ok_or_else(Failure::unknown_resource)?;
        let before = collection.objects.get(key).cloned();
        let written = match (decide(before.as_deref())?, before) {
            (Write::Put(object), before) => state.put(&resource, object, before, None),
            (Write::Remove, Some(before)) => state.remove(&resource, &before),
            (Write::Keep, Some(before)) => before,
            (Write::Keep | Write::Remove, None) => return Err(Failure::not_found(definition, key)),
        };
        self.head.send_replace(state.revision);
        Ok(written)
    }

    /// Stores an object at the version in its metadata, as restoring a backup would.
    pub(crate) fn load(&self, definition: &Definition, object: Value, revision: u64) {
        let mut state = self.state();
        let resource = definition.group_resource();
        let stored = Stored::new(definition, object.clone(), revision);
        let before = state.collections.get(&resource).and_then(|collection| collection.objects.get(&stored.key));
        let before = before.cloned();
        state.put(&resource, object, before, Some(revision));
        self.head.send_replace(state.revision);
    }

    /// Changes all objects of a collection without changing their versions.
    pub(crate) fn rewrite(&self, definition: &Definition, change: impl Fn(&mut Value)) {
        let mut state = self.state();
        let Some(collection) = state.collections.get_mut(&definition.group_resource()) else { return };
        for stored in collection.objects.values_mut() {
            let mut object = stored.value(&definition.stored_api_version());
            change(&mut object);
            *stored = Arc::new(Stored::new(definition, object, stored.revision));
        }
    }

    /// Changes an object at a new version, without notifying watches or recording it in the history.
    pub(crate) fn change_silently(&self, definition: &Definition, key: &str, change: impl FnOnce(&mut Value)) {
        let mut state = self.state();
        let revision = state.revision + 1;
        let Some(collection) = state.collections.get_mut(&definition.group_resource()) else { return };
        let Some(stored) = collection.objects.get_mut(key) else { return };
        let mut object = stored.value(&definition.stored_api_version());
        change(&mut object);
        *stored = Arc::new(Stored::new(definition, object, revision));
        state.revision = revision;
        self.head.send_replace(revision);
    }

    /// Compacts all earlier revisions for exact reads.
    pub(crate) fn compact(&self) {
        let mut state = self.state();
        state.compacted = state.revision;
    }

    /// Makes watches from earlier revisions expire, as after a restart of the server.
    pub(crate) fn forget_history(&self) {
        let state = self.state();
        for collection in state.collections.values() {
            collection.history.forget(state.revision);
        }
    }

    /// Increases the revision as if other resources were written.
    pub(crate) fn skip_revisions(&self, count: u64) {
        let mut state = self.state();
        state.revision += count;
        self.head.send_replace(state.revision);
    }

    /// Restores the data of a revision and continues counting from there: an etcd restored from a backup.
    pub(crate) fn rewind(&self, revision: u64) -> Result<(), Compacted> {
        let mut state = self.state();
        let limit = state.history_limit;
        let mut restored = BTreeMap::new();
        for (resource, collection) in &state.collections {
            let objects = collection.history.undo(&collection.objects, revision).ok_or(Compacted)?;
            restored.insert(resource.clone(), objects);
        }
        state.revision = revision;
        state.compacted = revision;
        for (resource, objects) in restored {
            if let Some(collection) = state.collections.get_mut(&resource) {
                collection.objects = objects;
                collection.history.close();
                collection.history = Arc::new(History::new(revision, limit));
            }
        }
        self.head.send_replace(revision);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Serves a resource from now on, or replaces its definition.
    fn define(&mut self, definition: Arc<Definition>) {
        let history = Arc::new(History::new(self.revision, self.history_limit));
        let objects = BTreeMap::new();
        let resource = definition.group_resource();
        match self.collections.get_mut(&resource) {
            None => drop(self.collections.insert(resource, Collection { definition, objects, history })),
            Some(collection) => {
                collection.history.close();
                *collection = Collection { definition, objects: std::mem::take(&mut collection.objects), history };
            }
        }
    }

    fn put(
        &mut self,
        resource: &GroupResource,
        object: Value,
        before: Option<Arc<Stored>>,
        given: Option<u64>,
    ) -> Arc<Stored> {
        let revision = given.unwrap_or(self.revision + 1);
        self.revision = self.revision.max(revision);
        let collection = self.collections.get_mut(resource).expect("writers look the collection up first");
        let is_crd = collection.definition.is_crds();
        let custom = if is_crd { crd::definition(&object) } else { None };
        let stored = Arc::new(Stored::new(&collection.definition, object, revision));
        collection.objects.insert(stored.key.clone(), stored.clone());
        collection.history.push(Change::new(revision, before, Some(stored.clone())));
        if let Some(custom) = custom {
            self.define_custom(custom);
        }
        stored
    }

    fn remove(&mut self, resource: &GroupResource, object: &Arc<Stored>) -> Arc<Stored> {
        let definition = self.collections[resource].definition.clone();
        if definition.is_crds() {
            self.remove_custom(&object.value(""));
        } else if definition.is_namespaces() {
            self.remove_objects(|stored| stored.namespace() == Some(object.name()));
        }
        self.remove_one(resource, object)
    }

    fn remove_one(&mut self, resource: &GroupResource, object: &Arc<Stored>) -> Arc<Stored> {
        self.revision += 1;
        let collection = self.collections.get_mut(resource).expect("writers look the collection up first");
        collection.objects.remove(&object.key);
        let change = Change::new(self.revision, Some(object.clone()), None);
        let departed = change.departed(&collection.definition).unwrap_or(object).clone();
        collection.history.push(change);
        departed
    }

    fn remove_objects(&mut self, doomed: impl Fn(&Stored) -> bool) {
        let resources: Vec<_> = self.collections.keys().cloned().collect();
        for resource in resources {
            let objects: Vec<_> =
                self.collections[&resource].objects.values().filter(|object| doomed(object)).cloned().collect();
            for object in objects {
                self.remove_one(&resource, &object);
            }
        }
    }

    /// If the definition is unchanged, the watches of its resource continue.
    fn define_custom(&mut self, definition: Definition) {
        let known = self.collections.get(&definition.group_resource());
        if known.is_none_or(|collection| *collection.definition != definition) {
            self.define(Arc::new(definition));
        }
    }

    /// Removes the custom resources first, each with an event, then the resource itself.
    fn remove_custom(&mut self, crd: &Value) {
        let Some(definition) = crd::definition(crd) else { return };
        let resource = definition.group_resource();
        let objects = self.collections.get(&resource).map(|collection| collection.objects.clone()).unwrap_or_default();
        for object in objects.values() {
            self.remove_one(&resource, object);
        }
        if let Some(collection) = self.collections.remove(&resource) {
            collection.history.close();
        }
    }
}
