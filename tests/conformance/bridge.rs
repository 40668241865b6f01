//! An API server and a gateway that are killed again and again under informers of every kind: they seldom list again, and all end
//! with the server's state.
//!
//! Changes are made through another API server of the same storage, while the gateway's own is away, too: that one does not
//! remember them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use futures_util::future;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, interval, sleep},
};

use crate::{
    Side,
    certificates::Certificates,
    client::{Ask, Endpoint, version_of},
    events::{Event, Events, key_of},
    gateway::PATIENCE,
    report::Tally,
    servers::POLL,
};

const INFORMERS: usize = 100;
/// Of the API server, then of the gateway, then of both.
const KILLS: usize = 5;
/// Between two changes: sixty a second.
const PACE: Duration = Duration::from_millis(16);
/// Names that come and go.
const NAMES: usize = 60;
/// Changes that a gateway has to follow between two kills.
const CHANGES: usize = 120;
/// The last object that is made: who has it has everything.
const LAST: &str = "bridge-last";
/// Every selector selects the last object.
const SELECTORS: [&str; 4] =
    ["", "&labelSelector=shade%3Dred", "&labelSelector=shade!%3Dblue", "&fieldSelector=metadata.namespace%3Dconf"];
/// Lists more than one for each informer that there may be: where a gateway was killed shortly before the server, watches are still
/// forwarded and may be ahead of the gateway's own by a change; their clients go on from within the gap. Without bridges, each of the
/// ten kills of the server would cost every informer a list.
const LISTS_SPARE: usize = INFORMERS;
/// The same while the server alone is killed, which cost none in all runs: for an informer whose first watch comes late.
const LISTS_SPARE_ALONE: usize = 3;
/// Before a client tries again.
const RETRY: Duration = Duration::from_millis(200);
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// What is followed, and how.
#[derive(Clone, Copy)]
struct Followed {
    collection: &'static str,
    part: &'static str,
    /// Of an object.
    api_version: &'static str,
    kind: &'static str,
    encodings: &'static [&'static str],
    /// Half of the informers begin with one.
    has_watch_list: bool,
}

const CONFIG_MAPS: Followed = Followed {
    collection: "/api/v1/configmaps",
    part: "/api/v1/namespaces/conf/configmaps",
    api_version: "v1",
    kind: "ConfigMap",
    encodings: &[JSON, PROTOBUF],
    has_watch_list: false,
};
const WIDGETS: Followed = Followed {
    collection: "/apis/conf.example.com/v1/widgets",
    part: "/apis/conf.example.com/v1/namespaces/conf/widgets",
    api_version: "conf.example.com/v1",
    kind: "Widget",
    encodings: &[JSON],
    has_watch_list: true,
};

/// Built-in types, in both encodings; with watch-lists where the server has them.
pub(crate) async fn builtin(side: &mut Side, certificates: &Certificates) -> Result<Tally> {
    let has_watch_list = side.server.has_watch_list;
    run(side, Followed { has_watch_list, ..CONFIG_MAPS }, certificates).await
}

/// Custom resources, with watch-lists.
pub(crate) async fn custom(side: &mut Side, certificates: &Certificates) -> Result<Tally> {
    run(side, WIDGETS, certificates).await
}

async fn run(side: &mut Side, followed: Followed, certificates: &Certificates) -> Result<Tally> {
    let mut tally = Tally::default();
    // What changes while the gateway's own server is away, that one will not remember.
    let mut beside = side.server.beside(certificates)?;
    beside.ready().await?;
    for encoding in followed.encodings {
        side.gateway.warm_as(followed.collection, encoding).await?;
    }
    let (gateway, direct) = (side.gateway.endpoint.clone(), beside.endpoint.clone());
    let (watching, watchers) = watch::channel(0);
    let listed = Arc::new(AtomicUsize::new(0));
    let informers = (0..INFORMERS).map(|number| Informer::new(number, followed, gateway.clone(), listed.clone()));
    let informers = future::join_all(informers.map(|informer| informer.run(&watching)));
    let (made, changes) = watch::channel(0);
    let script = async {
        let killed = tokio::select! {
            never = churn(&direct, followed, &made) => match never {},
            killed = kill(side, &direct, followed, (watchers, &listed), changes) => killed,
        };
        last(&direct, followed).await?;
        killed
    };
    let (informers, phases) = future::join(informers, script).await;
    let phases = phases?;

    let mut told = Told::default();
    for (number, informer) in informers.into_iter().enumerate() {
        let name = format!("informer {number}");
        match informer {
            Ok(informer) => {
                let expected = state(&direct, followed, informer.selector).await?;
                tally.equal(&format!("state of {name}"), &expected, &informer.state);
                told.add(informer.told);
            }
            Err(error) => tally.compared(&name, [format!("{error:#}")]),
        }
    }
    let Told { lists, watches, events, lost } = told;
    let holds = |most: usize, lists: usize| (INFORMERS..=most).contains(&lists);
    let said = |lists: usize| format!("{lists} lists of {INFORMERS} informers");
    let alone = phases[0];
    let are_few = holds(INFORMERS + LISTS_SPARE_ALONE, alone);
    tally.holds("each lists once when the server is killed", are_few, || said(alone));
    tally.holds("lists are few when both are killed", holds(INFORMERS + LISTS_SPARE, lists), || said(lists));
    tally.note(format!(
        "{INFORMERS} informers, {KILLS} kills of the API server, of the gateway and of both, {} changes: {phases:?} lists by then, {watches} watches, {events} events, {lost} of them of what was lost",
        *made.borrow()
    ));
    Ok(tally)
}

/// Kills the server under all informers, time and again, and waits until the gateway has followed what came behind it.
async fn kill(
    side: &mut Side,
    direct: &Endpoint,
    followed: Followed,
    (mut watchers, listed): (watch::Receiver<usize>, &AtomicUsize),
    mut changes: watch::Receiver<usize>,
) -> Result<Vec<usize>> {
    let mut phases = Vec::new();
    watchers.wait_for(|watching| *watching >= INFORMERS).await?;
    let rounds = [(true, false), (false, true), (true, true)].into_iter().flat_map(|killed| [killed; KILLS]);
    for (round, (kills_server, kills_gateway)) in rounds.enumerate() {
        let before = *changes.borrow();
        changes.wait_for(|made| *made >= before + CHANGES).await?;
        if kills_server {
            side.server.kill_api();
            side.server.start_api()?;
            side.server.ready().await?;
        }
        let version = version_of(&direct.json(&format!("{}?limit=1", followed.collection)).await?);
        for encoding in followed.encodings {
            // After each kill the gateway waits longer: these come sooner than it takes for usual.
            let started = Instant::now();
            while side.gateway.reached_as(followed.collection, version, encoding).await.is_err() {
                ensure!(started.elapsed() < PATIENCE * 3, "{encoding} does not reach {version}");
            }
        }
        if kills_gateway {
            // Who is cut off within a bridge lists again: upstream does not know the versions in it any more.
            let before = *changes.borrow();
            changes.wait_for(|made| *made >= before + CHANGES / 4).await?;
            side.gateway.crash()?;
            for encoding in followed.encodings {
                side.gateway.warm_as(followed.collection, encoding).await?;
            }
        }
        if round % KILLS == KILLS - 1 {
            phases.push(listed.load(Relaxed));
        }
    }
    Ok(phases)
}

/// Changes of every kind, for ever; what a server refuses that has just been killed is left out.
async fn churn(api: &Endpoint, followed: Followed, made: &watch::Sender<usize>) -> std::convert::Infallible {
    let mut ticks = interval(PACE);
    for number in 0.. {
        ticks.tick().await;
        let (name, round) = (number * 7 % NAMES, number / NAMES);
        let path = format!("{}/bridge-{name}", followed.part);
        let shade = ["red", "green", "blue"][(name + round) % 3];
        let done = match (name + round) % 5 {
            0 => api.delete(&path).await.map(drop),
            1 | 3 => create(api, followed, &format!("bridge-{name}"), shade).await,
            _ => api.patch(&path, &json!({"metadata": {"labels": {"shade": shade}}})).await.map(drop),
        };
        if done.is_ok() {
            made.send_modify(|made| *made += 1);
        }
    }
    unreachable!("there is always another number")
}

async fn create(api: &Endpoint, followed: Followed, name: &str, shade: &str) -> Result<()> {
    let Followed { api_version, kind, part, .. } = followed;
    let metadata = json!({"name": name, "labels": {"shade": shade}});
    api.create(part, &json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})).await.map(drop)
}

async fn last(api: &Endpoint, followed: Followed) -> Result<()> {
    let started = Instant::now();
    while let Err(error) = create(api, followed, LAST, "red").await {
        ensure!(started.elapsed() < PATIENCE, "{error:#}");
        sleep(POLL).await;
    }
    Ok(())
}

type State = BTreeMap<String, u64>;

async fn state(api: &Endpoint, followed: Followed, selector: &str) -> Result<State> {
    Ok(rows(&api.json(&format!("{}?{}", followed.collection, selector.trim_start_matches('&'))).await?))
}

fn rows(list: &Value) -> State {
    list["items"].as_array().into_iter().flatten().map(|item| (key_of(item), version_of(item))).collect()
}

/// What happened to an informer.
#[derive(Clone, Copy, Default)]
struct Told {
    lists: usize,
    watches: usize,
    events: usize,
    /// Deletions at the version that was known already.
    lost: usize,
}

impl Told {
    fn add(&mut self, other: Self) {
        self.lists += other.lists;
        self.watches += other.watches;
        self.events += other.events;
        self.lost += other.lost;
    }
}

/// By client-go's rules: lists, or begins with a watch-list, goes on from the last version after an end, begins anew after a 410.
struct Informer {
    endpoint: Endpoint,
    collection: &'static str,
    selector: &'static str,
    accept: &'static str,
    is_streaming: bool,
    state: State,
    /// `None` before the first list and after a 410.
    version: Option<u64>,
    /// It is that of an event, which may be one of a bridge.
    may_be_bridged: bool,
    /// The watch was begun behind such a version, and no bookmark has come since: what is known may be told again.
    is_cut_off: bool,
    /// What a watch-list has told before its end.
    initial: Option<State>,
    told: Told,
    /// Lists of all informers.
    listed: Arc<AtomicUsize>,
}

impl Informer {
    fn new(number: usize, followed: Followed, endpoint: Endpoint, listed: Arc<AtomicUsize>) -> Self {
        let of = |count: usize, each: usize| number / each % count;
        let accept = followed.encodings[of(followed.encodings.len(), SELECTORS.len())];
        let is_streaming = followed.has_watch_list && of(2, SELECTORS.len() * 2) == 1;
        Self {
            endpoint,
            collection: followed.collection,
            selector: SELECTORS[of(SELECTORS.len(), 1)],
            accept,
            is_streaming,
            state: State::new(),
            version: None,
            may_be_bridged: false,
            is_cut_off: false,
            initial: None,
            told: Told::default(),
            listed,
        }
    }

    async fn run(mut self, watching: &watch::Sender<usize>) -> Result<Self> {
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
            (self.state, self.version) = (rows(&list), Some(version_of(&list)));
            self.listed();
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
                self.version = None;
                break;
            }
            self.apply(&event)?;
        }
        self.initial = self.initial.take().filter(|_| self.is_complete());
        Ok(())
    }

    fn listed(&mut self) {
        self.told.lists += 1;
        self.listed.fetch_add(1, Relaxed);
    }

    /// Versions rise but for what is lost; what is added was not there, what is changed or deleted was.
    fn apply(&mut self, event: &Event) -> Result<()> {
        let (key, version) = (event.key(), event.version);
        if let Some(initial) = &mut self.initial {
            if event.kind == "BOOKMARK" {
                (self.state, self.version) = (self.initial.take().unwrap_or_default(), Some(version));
                self.listed();
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
