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

/// Before a client tries again.
const RETRY: Duration = Duration::from_millis(200);

/// What happened to an informer.
#[derive(Clone, Default)]
pub(crate) struct Told {
    pub(crate) selector: &'static str,
    pub(crate) lists: usize,
    /// Why the lists but the first were made: what ended the watches before them, and behind which version.
    pub(crate) expired: Vec<(u64, String)>,
    pub(crate) watches: usize,
    pub(crate) events: usize,
    /// Deletions at the version that was known already.
    pub(crate) lost: usize,
    /// The version of the last list, and what came behind it.
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
    /// It is that of an event, which may be one of a bridge.
    may_be_bridged: bool,
    /// The watch was begun behind such a version, and no bookmark has come since: what is known may be told again.
    is_cut_off: bool,
    /// What a watch-list has told before its end.
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

    /// Until it has the last object.
    pub(super) async fn run(mut self, watching: &watch::Sender<usize>) -> Result<Self> {
        let started = Instant::now();
        loop {
            ensure!(started.elapsed() < PATIENCE * 30, "incomplete after {} watches", self.told.watches);
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

    /// From the cache, as informers do. Lists are counted when they were answered.
    async fn list(&mut self) -> Result<()> {
        let path = format!("{}?resourceVersion=0{}", self.collection, self.selector);
        // Objects' versions are of no interest in protobuf here, their names are: the list is read in JSON.
        let Ok(answer) = self.endpoint.get(&path).await else { return Ok(()) };
        if answer.status == 200 {
            let list: Value = serde_json::from_slice(&answer.body)?;
            self.listed(rows(&list), version_of(&list));
        }
        Ok(())
    }

    /// Returns when the watch has ended, or everything has come.
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
            // One that broke off is resumed like one that ended.
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

    /// Versions rise but for what is lost; what is added was not there, what is changed or deleted was.
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
