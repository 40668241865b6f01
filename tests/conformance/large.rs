//! A collection of ten thousand objects: upstream reads it once, for the cache, whatever clients request then.

use std::{collections::BTreeSet, path::PathBuf, pin::pin};

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    runtime::watcher::{self, Event, watcher},
};
use serde_json::{Value, json};
use tokio::{
    process::Command,
    time::{Instant, sleep, timeout},
};

use crate::{
    Side, cases,
    certificates::Certificates,
    client::{self, Ask, Endpoint, version_of},
    events::key_of,
    foreign,
    gateway::{Gateway, PATIENCE, unique_agent},
    report::Tally,
    servers::POLL,
    wire,
};

const COLLECTION: &str = "/api/v1/secrets";
const NAMESPACES: [&str; 2] = ["large-a", "large-b"];
const OBJECTS: usize = 10_000;
/// The number of concurrent writes.
const AT_ONCE: usize = 100;
/// The maximum number of lists for a fill: its pages, the request for the collection's head, and requests that are
/// forwarded meanwhile.
const FILL_LISTS: u64 = 40;

/// Answered from memory, and compared with the responses of upstream's own cache.
const ROWS: &str = "
    = {c}?resourceVersion=0
    = {c}?resourceVersion=0 | accept-encoding: gzip
    = {c}?resourceVersion=0 | accept: {P}
    = {c}?resourceVersion=0 | accept: {M}
    = {c}?resourceVersion=0 | accept: {M} | accept-encoding: gzip
    = {c}?resourceVersion=0&labelSelector=number=77
    = {c}?resourceVersion=0&labelSelector=number+in+(1,2,3) | accept: {P} | accept-encoding: gzip
    = {c}?resourceVersion=0&fieldSelector=type=example.com/odd
    = /api/v1/namespaces/large-a/secrets?resourceVersion=0 | accept-encoding: gzip
    = /api/v1/namespaces/large-b/secrets?resourceVersion=0&limit=10
";

/// Prints the collection's keys with a client that accepts compression.
const PYTHON: &str = r#"
import json, sys
from kubernetes import client, config
config.load_kube_config(config_file=sys.argv[1])
core = client.CoreV1Api()
core.api_client.set_default_header("Accept-Encoding", "gzip")
answer = core.list_secret_for_all_namespaces(resource_version="0", _preload_content=False)
assert answer.headers["Content-Encoding"] == "gzip", answer.headers
for o in json.loads(answer.data)["items"]:
    print(o["metadata"].get("namespace") + "/" + o["metadata"]["name"])
"#;
const JAVASCRIPT: &str = r#"
import * as k8s from "@kubernetes/client-node";
const config = new k8s.KubeConfig();
config.loadFromFile(process.argv[2]);
// Otherwise it does not accept HTTP, not even on loopback.
config.clusters = config.clusters.map((cluster) => ({ ...cluster, skipTLSVerify: true }));
const list = await config.makeApiClient(k8s.CoreV1Api).listSecretForAllNamespaces({ resourceVersion: "0" });
for (const o of list.items) console.log(`${o.metadata.namespace}/${o.metadata.name}`);
"#;

/// The number of lists of the collection that upstream answered, and that its storage answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scans {
    asked: u64,
    storage: u64,
}

/// Uses its own gateway, whose memory is empty.
pub(crate) async fn run(side: &Side, certificates: &Certificates, kubectls: &[PathBuf]) -> Result<Tally> {
    let direct = &side.server.endpoint;
    let started = Instant::now();
    seed(direct).await?;
    let mut tally = Tally::default();
    tally.note(format!("{OBJECTS} objects made in {:.1} s", started.elapsed().as_secs_f64()));
    // Long before lists are counted: upstream counts them some time after their responses.
    let expected: BTreeSet<_> = keys(&direct.json(COLLECTION).await?)?;

    let gateway = Gateway::start("gateway-large", &side.server, certificates, &certificates.folder).await?;
    let before = scans(direct).await?;
    gateway.warm(COLLECTION).await?;
    let filled = scans(direct).await?;
    let lists = [filled.asked - before.asked, filled.storage - before.storage];
    // A watch-list is answered from upstream's own cache.
    let of_storage = if side.server.has_watch_list { 0..=0 } else { 1..=FILL_LISTS };
    let is_one_fill = (1..=FILL_LISTS).contains(&lists[0]) && of_storage.contains(&lists[1]);
    tally.holds("one fill", is_one_fill, || format!("{lists:?} lists, and scans of storage"));

    pages(&gateway, &expected, &mut tally).await?;
    informer(&gateway, direct, &expected, &mut tally).await?;
    clients(&gateway, kubectls, &expected, &mut tally).await?;
    tally.equal("lists sent to upstream after the fill", &filled, &scans(direct).await?);

    // The other encoding needs its own fill. Responses from upstream's cache are not scans of its storage.
    gateway.warm_as(COLLECTION, wire::CONTENT).await?;
    let before = scans(direct).await?;
    let rows = ROWS
        .replace("{c}", COLLECTION)
        .replace("{P}", wire::CONTENT)
        .replace("{M}", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    tally.merge(
        cases::compare_all(cases::table(&rows, &Default::default())?, direct, &gateway, !side.server.has_watch_list)
            .await?,
    );
    tally.equal("scans of upstream's storage", &before.storage, &scans(direct).await?.storage);
    Ok(tally)
}

async fn seed(direct: &Endpoint) -> Result<()> {
    for namespace in NAMESPACES {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        direct.create("/api/v1/namespaces", &object).await?;
    }
    let made = stream::iter(0..OBJECTS).map(|number| async move {
        let part = format!("/api/v1/namespaces/{}/secrets", NAMESPACES[number % NAMESPACES.len()]);
        direct.create(&part, &secret(number)).await
    });
    made.buffer_unordered(AT_ONCE).try_for_each(|_| async { Ok(()) }).await
}

fn secret(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": format!("large-{number:05}"), "labels": {"number": (number % 500).to_string()}},
        "type": if number.is_multiple_of(100) { "example.com/odd" } else { "Opaque" },
        "stringData": {"text": number.to_string()},
    })
}

fn keys(list: &Value) -> Result<BTreeSet<String>> {
    Ok(list["items"].as_array().context("no items")?.iter().map(key_of).collect())
}

/// Reads the collection in pages, all of one version and all from memory.
async fn pages(gateway: &Gateway, expected: &BTreeSet<String>, tally: &mut Tally) -> Result<()> {
    let list = gateway.endpoint.json(&format!("{COLLECTION}?resourceVersion=0&limit=1")).await?;
    let version = version_of(&list);
    let mut query = format!("resourceVersion={version}&resourceVersionMatch=Exact");
    let (mut found, mut agents) = (BTreeSet::new(), Vec::new());
    loop {
        let agent = unique_agent("page");
        let ask = Ask::get(format!("{COLLECTION}?limit=700&{query}")).header("user-agent", &agent);
        let page = gateway.endpoint.send(&ask).await?.expect_success(&ask.path)?;
        tally.equal("version of a page", &version, &version_of(&page));
        found.extend(keys(&page)?);
        agents.push(agent);
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => query = format!("continue={token}"),
            _ => break,
        }
    }
    tally.holds("pages have everything", *expected == found, || format!("{} of {}", found.len(), expected.len()));
    for agent in agents {
        let outcome = gateway.outcome(&agent).await?;
        tally.holds("a page comes from memory", outcome.by == "served", || format!("{outcome:?}"));
        tally.answered(&outcome);
    }
    Ok(())
}

/// Lists as client-go's informers do, then sees a change.
async fn informer(gateway: &Gateway, direct: &Endpoint, expected: &BTreeSet<String>, tally: &mut Tally) -> Result<()> {
    let api: Api<Secret> = Api::all(client::kube(&gateway.kubeconfig).await?);
    // With pages it would request the most recent state.
    let config = watcher::Config { page_size: None, ..watcher::Config::default().any_semantic() };
    let mut events = pin!(watcher(api, config));
    let mut found = BTreeSet::new();
    let next = async |events: &mut std::pin::Pin<&mut _>| {
        let event: Option<Result<Event<Secret>, watcher::Error>> = timeout(PATIENCE, StreamExt::next(events)).await?;
        anyhow::Ok(event.context("no more events")??)
    };
    loop {
        match next(&mut events).await? {
            Event::InitApply(object) => drop(found.insert(key(&object))),
            Event::InitDone => break,
            Event::Init | Event::Apply(_) | Event::Delete(_) => {}
        }
    }
    tally.holds("an informer has everything", *expected == found, || format!("{} of {}", found.len(), expected.len()));
    let path = "/api/v1/namespaces/large-a/secrets/large-00000";
    let version = version_of(&direct.patch(path, &json!({"metadata": {"annotations": {"seen": "yes"}}})).await?);
    let Event::Apply(object) = next(&mut events).await? else { anyhow::bail!("not a change") };
    let seen = object.resource_version().unwrap_or_default();
    tally.equal("the change that an informer sees", &version.to_string(), &seen);
    Ok(())
}

fn key(object: &Secret) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// Whole lists with clients in other languages, all of which accept gzip.
async fn clients(
    gateway: &Gateway,
    kubectls: &[PathBuf],
    expected: &BTreeSet<String>,
    tally: &mut Tally,
) -> Result<()> {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let mut found = vec![("Python", lines(&foreign::python(PYTHON, &gateway.kubeconfig).await?))];
    match foreign::javascript(JAVASCRIPT, &gateway.kubeconfig).await? {
        Some(text) => found.push(("JavaScript", lines(&text))),
        None => tally.note("!!! NO Node.js: THE JAVASCRIPT CLIENT IS LEFT OUT".to_owned()),
    }
    for kubectl in kubectls {
        let kubeconfig = format!("--kubeconfig={}", gateway.kubeconfig.display());
        let raw = format!("{COLLECTION}?resourceVersion=0");
        let text = foreign::execute(Command::new(kubectl).args([&kubeconfig, "get", "--raw", &raw])).await?;
        found.push(("kubectl", keys(&serde_json::from_str(&text)?)?));
    }
    for (client, found) in found {
        let details = || format!("{} of {}", found.len(), expected.len());
        tally.holds(&format!("{client} reads the whole list"), *expected == found, details);
    }
    Ok(())
}

/// Requests are counted when they have finished, a moment after their responses.
async fn scans(direct: &Endpoint) -> Result<Scans> {
    let mut last = counted(direct).await?;
    loop {
        sleep(POLL * 4).await;
        let now = counted(direct).await?;
        if now == last {
            return Ok(now);
        }
        last = now;
    }
}

async fn counted(direct: &Endpoint) -> Result<Scans> {
    let answer = direct.get("/metrics").await?;
    ensure!(answer.status == 200, "metrics: {}", answer.status);
    let text = answer.text();
    let sum = |name: &str, labels: &[&str]| {
        let is_counted = |line: &&str| line.starts_with(name) && labels.iter().all(|label| line.contains(label));
        let counts = text.lines().filter(is_counted).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        counts.sum()
    };
    Ok(Scans {
        asked: sum("apiserver_request_total{", &["resource=\"secrets\"", "verb=\"LIST\""]),
        storage: sum("etcd_request_duration_seconds_count{", &["operation=\"list\"", "type=\"*[]core.Secret\""]),
    })
}
