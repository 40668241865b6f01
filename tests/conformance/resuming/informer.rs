//! An informer by client-go's rules.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Duration, Instant, sleep},
};

use super::{Followed, LAST, PROTOBUF, Record, SELECTORS, State, rows};
use crate::{
    client::{Ask, Endpoint, version_of},
    events::{Event, Events},
    gateway::PATIENCE,
};

/// The delay before a client tries again.
const RETRY: Duration = Duration::from_millis(200);

/// What happened to an informer.
#[derive(Clone, Default)]
pub(crate) struct Told {
    pub(crate) selector: &'static str,
    pub(crate) lists: usize,
    /// The reason for each list except the first: the version of the watch that ended, and its error.
    pub(crate) expired: Vec<(u64, String)>,
    pub(crate) watches: usize,
    pub(crate) events: usize,
    /// The number of deletions at the version that the informer had already.
    pub(crate) lost: usize,
    /// The version of the last list, and the events after it.
    pub(crate) from: u64,
    pub(crate) record: Record,
}

/// Follows client-go's rules: lists or begins with a watch-list, continues from the last version after an end, starts
/// over after a 410.
pub(super) struct Informer {
    endpoint: Endpoint,
    collection: &'static str,
    pub(super) selector: &'static str,
    accept: &'static str,
    is_streaming: bool,
    pub(super) state: State,
    /// `None` before the first list and after a 410.
    version: Option<u64>,
    /// Whether the version is that of an event, which may be part of a bridge.
    may_be_bridged: bool,
    /// Whether the watch was started after such a version and no bookmark has arrived since: events may be repeated.
    is_cut_off: bool,
    /// The objects of an unfinished watch-list.
    initial: Option<State>,
    pub(super) told: Told,
    /// Lists of all informers.
    listed: Arc<AtomicUsize>,
}

impl Informer {
    pub(super) fn new(number: usize, followed: Followed, endpoint: Endpoint, listed: Arc<AtomicUsize>) -> Self {
        let of = |count: usize, each: usize| number / each % count;
        let accept = followed.encodings[of(followed.encodings.len(), SELECTORS.len())];
        let is_streaming = followed.has_watch_list && of(2, SELECTORS.len() * 2) == 1;
        let selector = SELECTORS[of(SELECTORS.len(), 1)];
        Self {
            endpoint,
            collection: followed.collection,
            selector,
            accept,
            is_streaming,
            state: State::new(),
            version: None,
            may_be_bridged: false,
            is_cut_off: false,
            initial: None,
            told: Told { selector, ..Told::default() },
            listed,
        }
    }

    /// Runs until the informer has the last object.
    pub(super) async fn run(mut self, watching: &watch::Sender<usize>) -> Result<Self> {
        let started = Instant::now();
        loop {
            ensure!(started.elapsed() < PATIENCE * 10, "incomplete after {} watches", self.told.watches);
            if self.version.is_none() && !self.is_streaming {
                self.list().await?;
            }
            if self.version.is_some() || self.is_streaming {
                self.watch(watching).await?;
            }
            if self.is_complete() {
                return Ok(self);
            }
            sleep(RETRY).await;
        }
    }

    fn is_complete(&self) -> bool {
        self.initial.is_none() && self.state.contains_key(&format!("conf/{LAST}"))
    }

    /// Lists at any version, as informers do. A list is counted when it was answered.
    async fn list(&mut self) -> Result<()> {
        let path = format!("{}?resourceVersion=0{}", self.collection, self.selector);
        // In JSON for either encoding, since the names of the objects are needed.
        let Ok(answer) = self.endpoint.get(&path).await else { return Ok(()) };
        if answer.status == 200 {
            let list: Value = serde_json::from_slice(&answer.body)?;
            self.listed(rows(&list), version_of(&list));
        }
        Ok(())
    }

    /// Returns when the watch has ended, or has sent the last object.
    async fn watch(&mut self, watching: &watch::Sender<usize>) -> Result<()> {
        let from = match self.version {
            Some(version) => format!("resourceVersion={version}"),
            None => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0".to_owned(),
        };
        let path =
            format!("{}?watch=1&allowWatchBookmarks=true&timeoutSeconds=600&{from}{}", self.collection, self.selector);
        let Ok(mut events) = Events::open(&self.endpoint, &Ask::get(path).header("accept", self.accept)).await else {
            return Ok(());
        };
        self.initial = self.version.is_none().then(State::new);
        self.is_cut_off = self.version.is_some() && self.may_be_bridged;
        if self.told.watches == 0 {
            watching.send_modify(|count| *count += 1);
        }
        self.told.watches += 1;
        while !self.is_complete() {
            // A watch that broke is resumed like one that ended.
            let Ok(Some(event)) = events.next().await else { break };
            if event.kind == "ERROR" {
                ensure!(event.object["code"] == 410 || self.accept == PROTOBUF, "{}", event.line);
                self.told.expired.extend(self.version.take().map(|version| (version, event.line)));
                break;
            }
            self.apply(&event)?;
        }
        self.initial = self.initial.take().filter(|_| self.is_complete());
        Ok(())
    }

    fn listed(&mut self, state: State, version: u64) {
        (self.state, self.version) = (state, Some(version));
        (self.told.from, self.told.record) = (version, Record::new());
        self.told.lists += 1;
        self.listed.fetch_add(1, Relaxed);
    }

    /// Checks that versions rise, except for objects lost in a bridge, and that added objects were unknown and changed
    /// or deleted ones known.
    fn apply(&mut self, event: &Event) -> Result<()> {
        let (key, version) = (event.key(), event.version);
        if let Some(initial) = &mut self.initial {
            if event.kind == "BOOKMARK" {
                let state = self.initial.take().unwrap_or_default();
                self.listed(state, version);
            } else {
                ensure!(event.kind == "ADDED", "{} among the initial events", event.line);
                initial.insert(key, version);
            }
            return Ok(());
        }
        let known = self.version.context("an event before a list")?;
        let is_lost = event.kind == "DELETED" && version == known;
        let is_newer = version > known || is_lost || event.kind == "BOOKMARK" && version == known;
        ensure!(is_newer, "after {known} came {}", event.line);
        self.version = Some(version);
        self.may_be_bridged = event.kind != "BOOKMARK";
        self.is_cut_off &= self.may_be_bridged;
        self.told.events += 1;
        if event.kind != "BOOKMARK" {
            self.told.record.push(event.recorded());
        }
        self.told.lost += usize::from(is_lost);
        match (event.kind.as_str(), self.state.contains_key(&key)) {
            ("BOOKMARK", _) => {}
            ("ADDED", false) | ("MODIFIED", true) => drop(self.state.insert(key, version)),
            ("DELETED", true) => drop(self.state.remove(&key)),
            ("ADDED" | "MODIFIED", _) if self.is_cut_off => drop(self.state.insert(key, version)),
            ("DELETED", false) if self.is_cut_off => {}
            (kind, is_known) => bail!("{kind} of {key}, which is known: {is_known}"),
        }
        Ok(())
    }
}
