//! The interface for tests and the demo, from inside the process: data, faults, counts.

use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};

use base::apimachinery::GroupResource;

use crate::{
    Body, Counts, Features, Refusal, Refused, Sim, Simulation,
    census::{Census, Order},
    definition::Definition,
    failure::Failure,
    faults::Faults,
    history::HISTORY_CHANGES_MAX,
    rest,
    servers::{Rewrite, Server, Servers},
    storage::Storage,
    stored::Stored,
    write::{self, Part, Place, Preconditions},
};

/// Namespaces that exist from the start.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl Sim {
    /// A server that only has the usual namespaces.
    pub fn new() -> Self {
        Self::with_history(HISTORY_CHANGES_MAX)
    }

    /// A server that keeps at most `changes_max` changes of each collection.
    pub fn with_history(changes_max: usize) -> Self {
        let storage = Storage::new(changes_max);
        let (faults, servers, census) = (Faults::default(), Servers::default(), Arc::new(Census::default()));
        let sim = Self(Arc::new(Simulation { storage, faults, servers, census }));
        for name in NAMESPACES {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            sim.create(namespace).expect("no namespace exists yet");
        }
        sim
    }

    /// Answers one request without a connection.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>,
    {
        rest::answer(&self.0, request).await
    }

    /// Answers one request as one of several servers behind the address ([`Self::lag_caches`]).
    pub async fn handle_by<B>(&self, server: usize, mut request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>,
    {
        request.extensions_mut().insert(Server(server));
        self.handle(request).await
    }

    /// Creates an object including its status, and returns it as stored.
    ///
    /// # Errors
    /// As for a client: an unknown kind, a name that is taken, a namespace that does not exist.
    pub fn create(&self, object: Value) -> Result<Value, Refused> {
        let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(self.insert(object)?.value(&api_version))
    }

    /// Creates an object, without decoding its stored form.
    pub(super) fn insert(&self, object: Value) -> Result<Arc<Stored>, Refused> {
        let definition = self.definition_of(&object)?;
        let place = Place { namespace: None, name: None };
        Ok(write::create(&self.0.storage, &definition, place, object, Part::Whole)?)
    }

    /// Replaces an object including its status. If the object has a `resourceVersion`, it must be the current one.
    ///
    /// # Errors
    /// As for a client.
    pub fn update(&self, object: Value) -> Result<Value, Refused> {
        let definition = self.definition_of(&object)?;
        let text = |key: &str| object["metadata"][key].as_str().map(str::to_owned);
        let (namespace, name) = (text("namespace"), text("name"));
        let place = Place { namespace: namespace.as_deref(), name: name.as_deref() };
        let stored = write::modify(&self.0.storage, &definition, place, Part::Whole, |_| Ok(object))?;
        Ok(stored.value(&definition.stored_api_version()))
    }

    /// Changes the object with this key, which is `namespace/name` or only the name, including its status. Returns its
    /// version, which is the old one if nothing changed.
    ///
    /// # Errors
    /// As for a client.
    pub fn modify(&self, resource: &GroupResource, key: &str, change: impl FnOnce(&mut Value)) -> Result<u64, Refused> {
        let definition = self.definition(resource)?;
        let (namespace, name) = match key.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, key),
        };
        let place = Place { namespace, name: Some(name) };
        let stored = write::modify(&self.0.storage, &definition, place, Part::Whole, |object| {
            let mut object = object.clone();
            change(&mut object);
            Ok(object)
        })?;
        Ok(stored.revision)
    }

    /// Deletes the object with this key, which is `namespace/name` or only the name. Returns its last state with the
    /// version of the deletion.
    ///
    /// # Errors
    /// As for a client.
    pub fn delete(&self, resource: &GroupResource, key: &str) -> Result<Value, Refused> {
        let definition = self.definition(resource)?;
        let stored = write::delete(&self.0.storage, &definition, key, &Preconditions::default())?;
        Ok(stored.value(&definition.stored_api_version()))
    }

    /// All objects of a resource in the order of their keys: the reference for comparisons.
    ///
    /// # Errors
    /// The resource is unknown.
    pub fn objects(&self, resource: &GroupResource) -> Result<Vec<Value>, Refused> {
        let definition = self.definition(resource)?;
        let api_version = definition.stored_api_version();
        Ok(self.0.storage.view(&definition).objects.iter().map(|object| object.value(&api_version)).collect())
    }

    /// Stores objects that were recorded from another server, with their own versions and uids. `recorded` may be a
    /// list, whose items get its kind and version. The revision continues from the highest one seen; objects of one
    /// resource must be loaded in the order of their versions.
    ///
    /// # Errors
    /// An object has an unknown kind or no version.
    pub fn load(&self, recorded: Value) -> Result<(), Refused> {
        let Some(items) = recorded.get("items").and_then(Value::as_array) else {
            return self.load_one(recorded);
        };
        let kind = recorded["kind"].as_str().unwrap_or_default().trim_end_matches("List");
        let mut items = items.clone();
        items.sort_by_key(revision_of);
        for mut item in items {
            item["kind"] = kind.into();
            item["apiVersion"] = recorded["apiVersion"].clone();
            self.load_one(item)?;
        }
        Ok(())
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.0.storage.revision()
    }

    /// Increases the revision, as writes to resources without watches would.
    pub fn skip_revisions(&self, count: u64) {
        self.0.storage.skip_revisions(count);
    }

    /// Compacts all older revisions: exact lists and continue tokens at them get 410.
    pub fn compact(&self) {
        self.0.storage.compact();
    }

    /// Drops the history of watches. A new watch from an earlier revision gets 410, and an open watch that has not
    /// received all changes ends.
    pub fn forget_history(&self) {
        self.0.storage.forget_history();
    }

    /// Restores the data of an earlier revision, and continues counting from there. All watches end.
    ///
    /// # Errors
    /// The history lacks some of the changes since that revision.
    pub fn rewind(&self, revision: u64) -> Result<(), Refused> {
        self.0.storage.rewind(revision).map_err(|_| Refused(format!("revision {revision} is compacted")))?;
        self.0.servers.set_back(revision);
        Ok(())
    }

    /// Simulates an upgrade of the server to a version that writes the objects of a resource differently, at the same
    /// versions. Open watches are not notified, and continue.
    ///
    /// # Errors
    /// The resource is unknown.
    pub fn upgrade(
        &self,
        git_version: &str,
        resource: &GroupResource,
        change: impl Fn(&mut Value),
    ) -> Result<(), Refused> {
        let definition = self.definition(resource)?;
        self.0.storage.rewrite(&definition, change);
        self.0.faults.set_git_version(git_version);
        Ok(())
    }

    /// Changes the object with this key, which is `namespace/name` or only the name, without notifying any watch, so
    /// that the caches of clients are wrong from then on.
    ///
    /// # Errors
    /// The resource is unknown.
    pub fn change_silently(
        &self,
        resource: &GroupResource,
        key: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<(), Refused> {
        let definition = self.definition(resource)?;
        self.0.storage.change_silently(&definition, key, change);
        Ok(())
    }

    pub fn set_features(&self, features: Features) {
        self.0.faults.set_features(features);
    }

    /// Answers some requests with an error.
    pub fn refuse(&self, refusal: Refusal) {
        self.0.faults.refuse(refusal);
    }

    /// Allows only requests for resources in these namespaces, as a Role does: all others are answered with 403. `None`
    /// allows everything. Open watches stay open.
    pub fn grant_only(&self, namespaces: Option<&[&str]>) {
        self.0.faults.grant_only(namespaces.map(|names| names.iter().map(|name| (*name).to_owned()).collect()));
    }

    /// Accepts some requests and never answers them, not even with headers. The status in `requests` is ignored.
    pub fn swallow(&self, requests: Refusal) {
        self.0.faults.swallow(requests);
    }

    /// Ends all refusals. Requests that were swallowed remain unanswered.
    pub fn accept_all(&self) {
        self.0.faults.accept_all();
    }

    /// Holds requests with a verb (`list`, `watch`, …) for a resource (`pods`, `deployments.apps`) without any
    /// response, not even headers, until [`Self::release_requests`].
    pub fn hold_requests(&self, verb: &'static str, resource: &str) {
        self.0.faults.hold(verb, resource);
    }

    /// Answers held requests, and all later ones.
    pub fn release_requests(&self) {
        self.0.faults.release_all();
    }

    /// Delays every event by this time after its write.
    pub fn delay_events(&self, delay: Duration) {
        self.0.faults.set_event_delay(delay);
    }

    /// Simulates several servers behind this address, whose caches are behind by `lags`; connections are distributed
    /// over them in turn. A cache answers reads at any version and sends its watches its own events; a read that
    /// requires a fresher state gets the newest one.
    pub fn lag_caches(&self, lags: &[Duration]) {
        self.0.servers.set_lags(lags);
    }

    /// Empties the cache of one server, as a restart would: it knows nothing from before now. Its connections stay
    /// open.
    pub fn empty_cache(&self, server: usize) {
        self.0.servers.start_at(Server(server), self.revision());
    }

    /// Gives one server another program, which reports `git_version` and writes each object after `rewrite`. Its
    /// connections stay open.
    pub fn upgrade_server(&self, server: usize, git_version: &str, rewrite: Rewrite) {
        self.0.servers.upgrade(Server(server), git_version, rewrite);
    }

    /// Makes initial events show a state of a few seconds ago, and sends the changes since then before the end of the
    /// initial events.
    pub fn send_early_changes(&self, early: bool) {
        self.0.faults.set_early_changes(early);
    }

    /// Truncates the next `events` watch events after the initial ones, so that they are not valid JSON.
    pub fn spoil_events(&self, events: u32) {
        self.0.faults.spoil(events);
    }

    /// Breaks the connections of the open watches of a resource (`pods`, `deployments.apps`), or of all.
    pub fn cut_watches(&self, resource: Option<&str>) {
        self.0.census.order(resource, Order::Cut);
    }

    /// Ends open watches as their timeout would.
    pub fn end_watches(&self, resource: Option<&str>) {
        self.0.census.order(resource, Order::End);
    }

    /// Holds events and bookmarks of open watches until they are released. Initial events are still sent, and watches
    /// opened later are not held.
    pub fn hold_watches(&self, resource: Option<&str>) {
        self.0.census.order(resource, Order::Hold);
    }

    /// Sets whether watches opened from now on are held.
    pub fn hold_new_watches(&self, hold: bool) {
        self.0.census.hold_new(hold);
    }

    pub fn release_watches(&self, resource: Option<&str>) {
        self.0.census.order(resource, Order::Run);
    }

    pub fn counts(&self) -> Counts {
        self.0.census.counts()
    }

    /// Waits until `wanted` returns true for the counts, so that tests need not sleep.
    pub async fn until(&self, wanted: impl Fn(&Counts) -> bool) {
        self.0.census.until(wanted).await;
    }

    pub(super) fn simulation(&self) -> &Arc<Simulation> {
        &self.0
    }

    fn load_one(&self, object: Value) -> Result<(), Refused> {
        let definition = self.definition_of(&object)?;
        let revision = revision_of(&object).ok_or_else(|| Refused("the object has no resourceVersion".into()))?;
        self.0.storage.load(&definition, object, revision);
        Ok(())
    }

    fn definition(&self, resource: &GroupResource) -> Result<Arc<Definition>, Refused> {
        let definition = self.0.storage.definition(&resource.group, &resource.resource);
        definition.ok_or_else(|| Refused(format!("{resource} is not served")))
    }

    fn definition_of(&self, object: &Value) -> Result<Arc<Definition>, Refused> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let served = |definition: &Arc<Definition>| {
            definition.kind == kind
                && definition.versions.iter().any(|version| definition.api_version(&version.name) == api_version)
        };
        let found = self.0.storage.definitions().into_iter().find(served);
        found.ok_or_else(|| Refused(format!("{api_version} {kind} is not served")))
    }
}

fn revision_of(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self(failure.message().to_owned())
    }
}
