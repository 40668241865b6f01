//! Informers that follow client-go's rules during changes of every kind, and how often each of them lists.

mod churn;
mod informer;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use anyhow::{Context, Result};
use futures_util::future;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::churn::churn;
use self::informer::Informer;
pub(crate) use self::informer::Told;
use crate::{
    client::{Ask, Endpoint, version_of},
    events::{Events, key_of},
    report::Tally,
    servers::Server,
};

/// The last object that is created: an informer that has it has everything.
const LAST: &str = "bridge-last";
/// Every selector selects the last object.
pub(crate) const SELECTORS: [&str; 4] =
    ["", "&labelSelector=shade%3Dred", "&labelSelector=shade!%3Dblue", "&fieldSelector=metadata.namespace%3Dconf"];
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A collection that informers follow.
#[derive(Clone, Copy)]
pub(crate) struct Followed {
    pub(crate) collection: &'static str,
    pub(crate) part: &'static str,
    /// The `apiVersion` of the objects.
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) encodings: &'static [&'static str],
    /// Whether half of the informers begin with a watch-list.
    has_watch_list: bool,
}

impl Followed {
    /// The collection at this server, with watch-lists if the server supports them.
    pub(crate) fn at(self, server: &Server) -> Self {
        Self { has_watch_list: server.has_watch_list, ..self }
    }
}

/// Built-in types, in both encodings.
pub(crate) const CONFIG_MAPS: Followed = Followed {
    collection: "/api/v1/configmaps",
    part: "/api/v1/namespaces/conf/configmaps",
    api_version: "v1",
    kind: "ConfigMap",
    encodings: &[JSON, PROTOBUF],
    has_watch_list: false,
};
/// Custom resources, with watch-lists.
pub(crate) const WIDGETS: Followed = Followed {
    collection: "/apis/conf.example.com/v1/widgets",
    part: "/apis/conf.example.com/v1/namespaces/conf/widgets",
    api_version: "conf.example.com/v1",
    kind: "Widget",
    encodings: &[JSON],
    has_watch_list: true,
};

/// Whether scenarios run at full size (`KUBE_FANOUT_FULL`), and not at the smaller size of the gate.
pub(crate) fn is_full() -> bool {
    std::env::var_os("KUBE_FANOUT_FULL").is_some()
}

/// The state of the informers, for a script that runs at the same time.
pub(crate) struct Seen {
    /// The number of informers that have an open watch.
    pub(crate) watching: watch::Receiver<usize>,
    /// The number of changes so far.
    pub(crate) made: watch::Receiver<usize>,
    listed: Arc<AtomicUsize>,
}

impl Seen {
    /// The number of lists of all informers so far.
    pub(crate) fn lists(&self) -> usize {
        self.listed.load(Relaxed)
    }

    /// Returns after `count` further changes.
    pub(crate) async fn changes(&mut self, count: usize) -> Result<()> {
        let before = *self.made.borrow();
        self.made.wait_for(|made| *made >= before + count).await?;
        Ok(())
    }
}

/// The first letter of the type, and the version, of each event in order, without bookmarks.
pub(crate) type Record = Vec<(char, u64)>;

/// The server that informers use, and the API server, to which changes are written and with which results are compared.
#[derive(Clone, Copy)]
pub(crate) struct Between<'a> {
    pub(crate) gateway: &'a Endpoint,
    pub(crate) direct: &'a Endpoint,
}

/// Runs this many informers while `script` runs, which observes them and injects faults. Changes happen all the time.
/// Each informer has to end with the server's state.
pub(crate) async fn informers<T>(
    count: usize,
    followed: Followed,
    Between { gateway, direct }: Between<'_>,
    tally: &mut Tally,
    script: impl AsyncFnOnce(Seen) -> Result<T>,
) -> Result<(T, Vec<Told>)> {
    let (watchers, watching) = watch::channel(0);
    let (changes, made) = watch::channel(0);
    let listed = Arc::new(AtomicUsize::new(0));
    let informers = (0..count).map(|number| Informer::new(number, followed, gateway.clone(), listed.clone()));
    let informers = future::join_all(informers.map(|informer| informer.run(&watchers)));
    let stopped = CancellationToken::new();
    let script = async {
        let scripted = async {
            let done = script(Seen { watching, made, listed }).await;
            stopped.cancel();
            done
        };
        let ((), done) = future::join(churn(direct, followed, &changes, &stopped), scripted).await;
        churn::last(direct, followed).await?;
        done
    };
    let (informers, done) = future::join(informers, script).await;
    let done = done?;

    let mut told = Vec::new();
    for (number, informer) in informers.into_iter().enumerate() {
        let name = format!("informer {number}");
        match informer {
            Ok(informer) => {
                let expected = state(direct, followed, informer.selector).await?;
                tally.equal(&format!("state of {name}"), &expected, &informer.state);
                told.push(informer.told);
            }
            Err(error) => tally.compared(&name, [format!("{error:#}")]),
        }
    }
    // The next scenario creates it again.
    direct.delete(&format!("{}/{LAST}", followed.part)).await?;
    Ok((done, told))
}

/// The events of a watch of the server itself after version `from`, up to the last object.
pub(crate) async fn record(direct: &Endpoint, followed: Followed, selector: &str, from: u64) -> Result<Record> {
    let path = format!("{}?watch=1&timeoutSeconds=1200&resourceVersion={from}{selector}", followed.collection);
    let mut events = Events::open(direct, &Ask::get(path)).await?;
    let mut record = Record::new();
    loop {
        let event = events.next().await?.context("the server ended a watch")?;
        record.push(event.recorded());
        if event.key() == format!("conf/{LAST}") {
            return Ok(record);
        }
    }
}

type State = BTreeMap<String, u64>;

async fn state(api: &Endpoint, followed: Followed, selector: &str) -> Result<State> {
    Ok(rows(&api.json(&format!("{}?{}", followed.collection, selector.trim_start_matches('&'))).await?))
}

fn rows(list: &Value) -> State {
    list["items"].as_array().into_iter().flatten().map(|item| (key_of(item), version_of(item))).collect()
}
