//! A thousand watchers of one collection: there is one watch upstream, and no watcher misses anything, whatever happens
//! to upstream and the gateway.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use futures_util::future;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{
    Side,
    client::{Ask, Endpoint, version_of},
    events::{Event, Events, key_of},
    gateway::PATIENCE,
    report::Tally,
    servers::POLL,
};

const WATCHERS: usize = 1000;
const COLLECTION: &str = "/api/v1/configmaps";
const PART: &str = "/api/v1/namespaces/conf/configmaps";
/// The last object that is created: a client that has it has everything.
const LAST: &str = "conf/storm-last";
/// The delay before a client tries again.
const RETRY: Duration = Duration::from_millis(200);

pub(crate) async fn run(side: &mut Side) -> Result<Tally> {
    let mut tally = Tally::default();
    kube_fanout::lifecycle::raise_open_files()?;
    side.gateway.warm(COLLECTION).await?;
    let (gateway, direct) = (side.gateway.endpoint.clone(), side.server.endpoint.clone());
    let (watching, watchers) = watch::channel(0);
    let clients = future::join_all((0..WATCHERS).map(|_| Client::new(gateway.clone()).run(&watching)));
    let clients = async { anyhow::Ok(clients.await) };
    let (clients, during) = future::try_join(clients, script(side, &direct, watchers)).await?;

    tally.holds("watches upstream for 1,000 watchers", (1.0..=2.0).contains(&during), || format!("{during}"));
    let list = direct.json(COLLECTION).await?;
    let expected: BTreeMap<_, _> = items(&list).map(|item| (key_of(item), version_of(item))).collect();
    let (mut relists, mut resumes, mut deliveries) = (0, 0, 0);
    for (number, client) in clients.into_iter().enumerate() {
        match client {
            Ok(client) => {
                tally.equal(&format!("state of watcher {number}"), &expected, &client.state);
                relists += client.lists - 1;
                resumes += client.resumes;
                deliveries += client.deliveries;
            }
            Err(error) => tally.compared(&format!("watcher {number}"), [format!("{error:#}")]),
        }
    }
    tally.note(format!("{WATCHERS} watchers: {deliveries} deliveries, {resumes} resumed watches, {relists} new lists"));
    Ok(tally)
}

/// Changes, a crash of upstream, changes, a crash of the gateway, changes. Returns the number of upstream's watches
/// while all clients were watching.
async fn script(side: &mut Side, api: &Endpoint, mut watchers: watch::Receiver<usize>) -> Result<f64> {
    let all = watchers.wait_for(|watching| *watching >= WATCHERS);
    drop(timeout(PATIENCE * 3, all).await.context("some clients do not watch")??);
    changes(api, "before").await?;
    let upstream = upstream_watches(api).await?;

    side.server.kill_api();
    side.server.start_api()?;
    side.server.ready().await?;
    changes(api, "after").await?;

    side.gateway.crash()?;
    changes(api, "later").await?;
    side.gateway.warm(COLLECTION).await?;
    changes(api, "end").await?;
    create(api, "storm-last").await?;
    Ok(upstream)
}

async fn changes(api: &Endpoint, phase: &str) -> Result<()> {
    for number in 0..20 {
        create(api, &format!("storm-{phase}-{number}")).await?;
        api.patch(&format!("{PART}/storm-{phase}-{number}"), &json!({"data": {"changed": "yes"}})).await?;
        if number % 3 == 0 {
            api.delete(&format!("{PART}/storm-{phase}-{number}")).await?;
        }
    }
    Ok(())
}

async fn create(api: &Endpoint, name: &str) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let started = Instant::now();
    // A server that has just started may refuse requests at first.
    while let Err(error) = api.create(PART, &object).await {
        ensure!(started.elapsed() < PATIENCE, "{error:#}");
        sleep(POLL).await;
    }
    Ok(())
}

/// The server's own count of watches of the whole collection.
async fn upstream_watches(api: &Endpoint) -> Result<f64> {
    let text = api.get("/metrics").await?.text();
    let of_collection = |line: &&str| {
        (line.starts_with("apiserver_longrunning_gauge{") || line.starts_with("apiserver_longrunning_requests{"))
            && ["resource=\"configmaps\"", "scope=\"cluster\"", "verb=\"WATCH\""]
                .iter()
                .all(|label| line.contains(label))
    };
    let values = text.lines().filter(of_collection).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.sum())
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

/// An informer by client-go's rules: lists, watches from the list's version, continues from the last version after an
/// end, lists again after a 410.
struct Client {
    endpoint: Endpoint,
    state: BTreeMap<String, u64>,
    version: u64,
    lists: usize,
    resumes: usize,
    deliveries: usize,
}

/// How a watch ended.
enum End {
    Clean,
    Expired,
    Complete,
}

impl Client {
    fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, state: BTreeMap::new(), version: 0, lists: 0, resumes: 0, deliveries: 0 }
    }

    async fn run(mut self, watching: &watch::Sender<usize>) -> Result<Self> {
        let started = Instant::now();
        let mut is_listed = false;
        loop {
            ensure!(
                started.elapsed() < PATIENCE * 5,
                "incomplete after {} lists and {} watches",
                self.lists,
                self.resumes
            );
            if !is_listed {
                is_listed = self.list().await?;
            }
            if is_listed {
                match self.watch(watching).await? {
                    Some(End::Complete) => return Ok(self),
                    Some(End::Expired) => is_listed = false,
                    Some(End::Clean) | None => {}
                }
            }
            sleep(RETRY).await;
        }
    }

    /// False if no list is available now.
    async fn list(&mut self) -> Result<bool> {
        let Ok(answer) = self.endpoint.get(&format!("{COLLECTION}?resourceVersion={}", self.version)).await else {
            return Ok(false);
        };
        if answer.status != 200 {
            return Ok(false);
        }
        let list: Value = serde_json::from_slice(&answer.body)?;
        let version = version_of(&list);
        ensure!(version >= self.version, "a list went back from {} to {version}", self.version);
        self.version = version;
        self.state = items(&list).map(|item| (key_of(item), version_of(item))).collect();
        self.lists += 1;
        Ok(true)
    }

    /// `None` if no watch is available now.
    async fn watch(&mut self, watching: &watch::Sender<usize>) -> Result<Option<End>> {
        let path = format!(
            "{COLLECTION}?watch=1&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion={}",
            self.version
        );
        let Ok(mut events) = Events::open(&self.endpoint, &Ask::get(path)).await else { return Ok(None) };
        if self.resumes == 0 {
            watching.send_modify(|count| *count += 1);
        }
        self.resumes += 1;
        if self.state.contains_key(LAST) {
            return Ok(Some(End::Complete));
        }
        loop {
            // A watch that broke is resumed like one that ended.
            let Ok(Some(event)) = events.next().await else { return Ok(Some(End::Clean)) };
            if event.kind == "ERROR" {
                ensure!(event.object["code"] == 410, "{}", event.line);
                return Ok(Some(End::Expired));
            }
            self.apply(&event)?;
            if self.state.contains_key(LAST) {
                return Ok(Some(End::Complete));
            }
        }
    }

    /// Checks that versions rise, except for objects lost in a bridge, and that added objects were unknown and changed
    /// or deleted ones known.
    fn apply(&mut self, event: &Event) -> Result<()> {
        let key = event.key();
        let is_known = self.state.contains_key(&key);
        let is_lost = event.kind == "DELETED" && event.version == self.version;
        ensure!(
            event.version > self.version || is_lost || event.kind == "BOOKMARK",
            "after {} came {}",
            self.version,
            event.line
        );
        self.version = event.version;
        self.deliveries += 1;
        match (event.kind.as_str(), is_known) {
            ("BOOKMARK", _) => {}
            ("ADDED", false) | ("MODIFIED", true) => drop(self.state.insert(key, event.version)),
            ("DELETED", true) => drop(self.state.remove(&key)),
            _ => bail!("{} of {key}, which is known: {is_known}", event.kind),
        }
        Ok(())
    }
}
