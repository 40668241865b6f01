//! A client that follows a collection like client-go's reflector: watch-list first, list and watch if the server does
//! not support it, resumption at the last version, a new list when that has expired.
//!
//! It checks everything that it receives against the rules of a watch, and panics when one is violated: versions only
//! rise, no object is added twice, no unknown object is modified or deleted, initial objects come in the order of their
//! keys.
//!
//! A bridge (`kube_fanout::manual::consistency`) has its own rule: lost objects are deleted at the version that is
//! already known. A client whose watch broke in the middle of a bridge and that continues elsewhere is sent some
//! objects again, until a bookmark arrives: changes of objects that it does not have, or that come back into its
//! labels. Never an object that has replaced one that it still has.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use kube_fanout::sim::Sim;
use serde_json::Value;
use tokio::time::sleep;

use super::{
    Client, Watch,
    selection::{Objects, Selection},
    upstream::directly,
    within,
};

/// The delay before a failed request is repeated.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Follows one selection.
#[derive(Debug)]
pub(crate) struct Informer {
    client: Client,
    /// Upstream itself: the reference.
    sim: Sim,
    pub(crate) selection: Selection,
    pub(crate) objects: Objects,
    /// The newest version that is known to be complete; `None` before the first list and after it expired.
    version: Option<u64>,
    /// Whether it is the version of an event, which may be part of a bridge.
    may_be_bridged: bool,
    /// Whether the watch was started after such a version and no bookmark has arrived since.
    is_cut_off: bool,
    /// The highest version ever seen: time must not run backwards.
    highest: u64,
    knows_watch_list: bool,
    watch: Option<Watch>,
    /// The objects of an unfinished watch-list.
    initial: Option<Vec<(String, Value)>>,
    /// The revision that upstream had acknowledged when a most-recent state was requested: the state must include it.
    acknowledged: u64,
    /// Whether its objects are compared with upstream's at each bookmark: not where upstream itself is made to lose
    /// changes.
    pub(crate) compares_bookmarks: bool,
    pub(crate) told: Told,
}

/// What happened to an informer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Whole states, by list or watch-list.
    pub(crate) states: u32,
    pub(crate) events: u32,
    pub(crate) clean_ends: u32,
    pub(crate) broken: u32,
    pub(crate) expired: u32,
}

impl Informer {
    pub(crate) fn new(client: Client, sim: Sim, selection: Selection) -> Self {
        Self {
            client,
            sim,
            selection,
            objects: Objects::new(),
            version: None,
            may_be_bridged: false,
            is_cut_off: false,
            highest: 0,
            knows_watch_list: true,
            watch: None,
            initial: None,
            acknowledged: 0,
            compares_bookmarks: false,
            told: Told::default(),
        }
    }

    /// Follows until its objects equal those of upstream.
    pub(crate) async fn catch_up(&mut self) {
        let what = format!("equality with upstream of {:?}", self.selection);
        let caught_up = async {
            while !self.is_equal() {
                self.step().await;
            }
        };
        within(&what, caught_up).await;
    }

    fn is_equal(&self) -> bool {
        self.initial.is_none() && self.version.is_some() && self.objects == self.selection.expected(&self.sim)
    }

    /// Follows as long as it is polled. Nothing is lost when polling stops.
    pub(crate) async fn follow(&mut self) -> Infallible {
        loop {
            self.step().await;
        }
    }

    /// Breaks off its own watch, like a client that is restarted with or without its state.
    #[allow(dead_code, reason = "only the simulation restarts informers")]
    pub(crate) fn break_off(&mut self, keeps_state: bool) {
        self.watch = None;
        self.initial = None;
        if !keeps_state {
            self.version = None;
        }
    }

    /// Follows until its watch ends, without opening a new one.
    pub(crate) async fn until_end(&mut self) {
        let ended = async {
            while self.watch.is_some() {
                self.step().await;
            }
        };
        within("the end of the watch", ended).await;
    }

    /// Opens the next list or watch, or processes the next event.
    pub(crate) async fn step(&mut self) {
        let Some(watch) = &mut self.watch else { return self.open().await };
        match watch.line().await {
            Ok(Some(line)) => {
                let states = self.told.states;
                // An invalid event from upstream may be forwarded. The client continues from its state, as client-go
                // does.
                let Ok(event) = serde_json::from_str::<Value>(&line) else {
                    self.told.broken += 1;
                    return self.watch = None;
                };
                let is_bookmark = event["type"] == "BOOKMARK";
                self.take(event);
                if self.told.states > states {
                    self.assert_state().await;
                } else if is_bookmark && self.compares_bookmarks {
                    self.assert_versions().await;
                }
            }
            Ok(None) => {
                self.told.clean_ends += 1;
                self.watch = None;
            }
            Err(_) => {
                self.told.broken += 1;
                self.watch = None;
            }
        }
    }

    async fn open(&mut self) {
        self.initial = None;
        self.acknowledged = self.sim.revision();
        let parameters = match self.version {
            Some(version) => format!("watch=1&allowWatchBookmarks=true&resourceVersion={version}"),
            None if self.knows_watch_list => {
                "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned()
            }
            None => return self.list().await,
        };
        match self.client.open(&self.selection.path(&parameters)).await {
            Ok(watch) => {
                self.is_cut_off = self.version.is_some() && self.may_be_bridged;
                self.initial = self.version.is_none().then(Vec::new);
                self.watch = Some(watch);
            }
            Err(refusal) if self.version.is_none() && refusal.status.is_client_error() => {
                self.knows_watch_list = refusal.status != 422;
            }
            Err(_) => sleep(AGAIN_AFTER).await,
        }
    }

    async fn list(&mut self) {
        // A client that has had a state does not go back, at another gateway either.
        let parameters = match self.highest {
            0 => "resourceVersion=0".to_owned(),
            highest => format!("resourceVersion={highest}&resourceVersionMatch=NotOlderThan"),
        };
        let answer = self.client.get(&self.selection.path(&parameters)).await;
        if answer.status != 200 {
            return sleep(AGAIN_AFTER).await;
        }
        let list: Value = serde_json::from_slice(&answer.body).unwrap();
        let items = self.selection.entries(&list);
        self.replace(items, version_of(&list));
        self.assert_state().await;
    }

    /// Asserts that the received state equals upstream's at that version, if upstream still knows the version.
    async fn assert_state(&self) {
        if let Some(expected) = self.upstream_state().await {
            assert_eq!(self.objects, expected, "{:?} at {}", self.selection, self.highest);
        }
    }

    /// Asserts that it has the objects that upstream had at the version of a bookmark, each at its version then:
    /// nothing is missing, and nothing is left that is gone. Their bytes may be those of an older program.
    async fn assert_versions(&self) {
        let versions = |objects: &Objects| -> BTreeMap<String, Value> {
            let entries = objects.iter();
            entries.map(|(key, object)| (key.clone(), object["metadata"]["resourceVersion"].clone())).collect()
        };
        if let Some(expected) = self.upstream_state().await {
            let (received, expected) = (versions(&self.objects), versions(&expected));
            assert_eq!(received, expected, "{:?} at the bookmark of {}", self.selection, self.highest);
        }
    }

    /// What upstream had at the newest version that was received; `None` if it does not know that version any more.
    async fn upstream_state(&self) -> Option<Objects> {
        let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", self.highest);
        let (status, body) = directly(&self.sim, &self.selection.path(&exact)).await;
        let list: Value = (status == 200).then(|| serde_json::from_str(&body).unwrap())?;
        Some(self.selection.entries(&list).into_iter().collect())
    }

    fn take(&mut self, mut event: Value) {
        let (kind, object) = (event["type"].take(), event["object"].take());
        match kind.as_str().unwrap() {
            "ERROR" => self.error(&object),
            "BOOKMARK" => self.bookmark(&object),
            kind => self.change(kind, object),
        }
    }

    fn error(&mut self, status: &Value) {
        if status["code"] == 410 {
            self.told.expired += 1;
            self.version = None;
        }
    }

    fn bookmark(&mut self, object: &Value) {
        let version = version_of(object);
        let is_end = object["metadata"]["annotations"][INITIAL_EVENTS_END] == "true";
        assert_eq!(is_end, self.initial.is_some(), "the end bookmark comes once, after the initial events");
        if let Some(initial) = self.initial.take() {
            assert!(version >= self.acknowledged, "a state of {version} as the most recent of {}", self.acknowledged);
            return self.replace(initial, version);
        }
        assert!(Some(version) >= self.version, "a bookmark of {version} after {:?}", self.version);
        self.known_up_to(version);
    }

    /// Records that nothing is missing up to that version.
    fn known_up_to(&mut self, version: u64) {
        self.version = Some(version);
        self.highest = version;
        (self.may_be_bridged, self.is_cut_off) = (false, false);
    }

    fn replace(&mut self, objects: Vec<(String, Value)>, version: u64) {
        assert!(objects.is_sorted_by(|left, right| left.0 < right.0), "initial objects out of order");
        for (key, object) in &objects {
            assert!(version_of(object) <= version, "{key} is newer than the state of {version}");
        }
        assert!(version >= self.highest, "a state of {version} after {}", self.highest);
        self.objects = objects.into_iter().collect();
        self.known_up_to(version);
        self.told.states += 1;
    }

    fn change(&mut self, kind: &str, object: Value) {
        let version = version_of(&object);
        let (key, object) = self.selection.entry(object);
        if let Some(initial) = &mut self.initial {
            assert_eq!(kind, "ADDED", "{key} among the initial events");
            return initial.push((key, object));
        }
        let is_lost_in_gap = kind == "DELETED" && Some(version) == self.version;
        assert!(is_lost_in_gap || Some(version) > self.version, "{kind} {key} of {version} after {:?}", self.version);
        self.version = Some(version);
        self.highest = version;
        self.may_be_bridged = true;
        self.told.events += 1;
        let uid = object["metadata"]["uid"].clone();
        let before =
            if kind == "DELETED" { self.objects.remove(&key) } else { self.objects.insert(key.clone(), object) };
        let is_expected = match &before {
            // Its deletion came before, whatever the client has missed.
            Some(before) if before["metadata"]["uid"] != uid => false,
            Some(_) => kind != "ADDED" || self.is_cut_off && self.selection.is_by_label(),
            None => kind == "ADDED" || self.is_cut_off,
        };
        assert!(is_expected, "{kind} {key} of {version}, before it {before:?}");
    }
}

fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
