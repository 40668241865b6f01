//! Informers in three languages: each ends with exactly the server's state.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt::Debug,
    hash::Hash,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use futures_util::{StreamExt, future};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::{
        Controller, WatchStreamExt,
        controller::Action,
        reflector::{Store, store::Writer},
        watcher::{self, watcher},
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    Side,
    client::{self, Endpoint, version_of},
    events::key_of,
    foreign,
    gateway::PATIENCE,
    report::Tally,
    servers::POLL,
};

/// The versions of the objects of this scenario by name.
type State = BTreeMap<String, u64>;

const CONFIG_MAPS: &str = "/api/v1/namespaces/conf/configmaps";
const WIDGETS: &str = "/apis/conf.example.com/v1/namespaces/conf/widgets";
const LABEL: &str = "informers=yes";
/// The last object that is created.
const LAST: &str = "conf/informer-last";
const CHANGES: usize = 300;

/// The Python program: an informer that prints its state as `name version` lines once it has seen the last object.
const PYTHON: &str = r#"
import os, sys, time
from kubernetes import client, config
from kubernetes.informer import SharedInformer
config.load_kube_config(config_file=sys.argv[1])
core = client.CoreV1Api()
informer = SharedInformer(core.list_namespaced_config_map, namespace="conf", label_selector="informers=yes")
informer.start()
deadline = time.time() + 60
while time.time() < deadline and not any(o.metadata.name == "informer-last" for o in informer.cache.list()):
    time.sleep(0.05)
for o in informer.cache.list():
    print("conf/" + o.metadata.name, o.metadata.resource_version)
sys.stdout.flush()
# The informer's own end waits for the next event, and the last one may have come before its list.
os._exit(0)
"#;

/// The same in JavaScript.
const JAVASCRIPT: &str = r#"
import * as k8s from "@kubernetes/client-node";
const config = new k8s.KubeConfig();
config.loadFromFile(process.argv[2]);
// Otherwise it does not accept HTTP, not even on loopback.
config.clusters = config.clusters.map((cluster) => ({ ...cluster, skipTLSVerify: true }));
const core = config.makeApiClient(k8s.CoreV1Api);
const labelSelector = "informers=yes";
const list = () => core.listNamespacedConfigMap({ namespace: "conf", labelSelector });
const informer = k8s.makeInformer(config, "/api/v1/namespaces/conf/configmaps", list, labelSelector);
informer.on("error", () => setTimeout(() => informer.start(), 100));
await informer.start();
const deadline = Date.now() + 60000;
while (Date.now() < deadline && !informer.list().some((o) => o.metadata.name === "informer-last")) {
  await new Promise((resolve) => setTimeout(resolve, 50));
}
for (const o of informer.list()) console.log(`conf/${o.metadata.name} ${o.metadata.resourceVersion}`);
process.exit(0);
"#;

/// kube-rs, Python and JavaScript with built-in types.
pub(crate) async fn builtin(side: &Side) -> Result<Tally> {
    let kubeconfig = &side.gateway.kubeconfig;
    let client = client::kube(kubeconfig).await?;
    let api: Api<ConfigMap> = Api::namespaced(client, "conf");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let direct = &side.server.endpoint;
    let paged = watcher::Config::default().labels(LABEL).page_size(50);
    let (stored, reconciled, python, javascript, made) = tokio::join!(
        reflected(api.clone(), paged, ()),
        reconciled(api),
        foreign::python(PYTHON, kubeconfig),
        foreign::javascript(JAVASCRIPT, kubeconfig),
        changes(direct, CONFIG_MAPS, &object),
    );
    made?;
    let expected = state(direct, CONFIG_MAPS).await?;
    let mut tally = Tally::default();
    tally.equal("a kube-rs reflector", &expected, &stored?);
    tally.equal("a kube-rs controller", &expected, &reconciled?);
    tally.equal("a Python informer", &expected, &informed(&python?));
    match javascript? {
        Some(text) => tally.equal("a JavaScript informer", &expected, &informed(&text)),
        None => tally.note("!!! NO Node.js: THE JAVASCRIPT INFORMER IS LEFT OUT".to_owned()),
    }
    Ok(tally)
}

/// kube-rs with a streaming list of custom resources.
pub(crate) async fn custom(side: &Side) -> Result<Tally> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("conf.example.com", "v1", "Widget"));
    let client = client::kube(&side.gateway.kubeconfig).await?;
    let api: Api<DynamicObject> = Api::namespaced_with(client, "conf", &resource);
    let object = json!({"apiVersion": "conf.example.com/v1", "kind": "Widget"});
    let direct = &side.server.endpoint;
    let streaming = watcher::Config::default().labels(LABEL).streaming_lists();
    let (stored, made) = future::join(reflected(api, streaming, resource), changes(direct, WIDGETS, &object)).await;
    made?;
    let mut tally = Tally::default();
    tally.equal("a kube-rs reflector with a streaming list", &state(direct, WIDGETS).await?, &stored?);
    Ok(tally)
}

/// The state of a reflector once it has seen the last object.
async fn reflected<K>(api: Api<K>, config: watcher::Config, kind: K::DynamicType) -> Result<State>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Debug + Eq + Hash + Unpin,
{
    let mut writer = Writer::new(kind);
    let store = writer.as_reader();
    let mut events = pin!(watcher(api, config).default_backoff());
    loop {
        let event = timeout(PATIENCE * 3, events.next()).await.context("no event")?.context("no events")?;
        // Errors are retried.
        if let Ok(event) = event {
            writer.apply_watcher_event(&event);
        }
        let state = stored(&store);
        if state.contains_key(LAST) {
            return Ok(state);
        }
    }
}

fn stored<K>(store: &Store<K>) -> State
where
    K: Resource + Clone + 'static,
    K::DynamicType: Clone + Eq + Hash,
{
    let row = |object: Arc<K>| {
        let version = object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default();
        (format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any()), version)
    };
    store.state().into_iter().map(row).collect()
}

/// The last reconciled versions of the objects that still exist.
async fn reconciled(api: Api<ConfigMap>) -> Result<State> {
    let seen = Arc::new(Mutex::new(State::new()));
    let controller = Controller::new(api, watcher::Config::default().labels(LABEL));
    let store = controller.store();
    let reconcile = |object: Arc<ConfigMap>, seen: Arc<Mutex<State>>| {
        let version = object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default();
        let key = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
        seen.lock().unwrap_or_else(PoisonError::into_inner).insert(key, version);
        future::ready(Ok::<_, Infallible>(Action::await_change()))
    };
    let on_error = |_, _: &Infallible, _| Action::requeue(Duration::from_secs(1));
    let running = controller.run(reconcile, on_error, seen.clone()).for_each(|_| future::ready(()));
    let complete = async {
        let started = Instant::now();
        loop {
            let stored = stored(&store);
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
            seen.retain(|key, _| stored.contains_key(key));
            if stored.contains_key(LAST) && stored == seen || started.elapsed() > PATIENCE * 3 {
                return seen;
            }
            sleep(POLL).await;
        }
    };
    tokio::select! {
        () = running => anyhow::bail!("the controller ended"),
        state = complete => Ok(state),
    }
}

async fn changes(api: &Endpoint, collection: &str, object: &Value) -> Result<()> {
    let make = |name: String| {
        let mut object = object.clone();
        object["metadata"] = json!({"name": name, "labels": {"informers": "yes"}});
        object
    };
    for number in 0..CHANGES {
        // Twenty names: created, changed several times, moved out of and into the selector, deleted, created again.
        let name = format!("informer-{}", number % 20);
        let path = format!("{collection}/{name}");
        match (number / 20) % 5 {
            0 => drop(api.create(collection, &make(name)).await?),
            2 if number % 3 == 0 => {
                drop(api.patch(&path, &json!({"metadata": {"labels": {"informers": "no"}}})).await?)
            }
            3 => drop(api.patch(&path, &json!({"metadata": {"labels": {"informers": "yes"}}})).await?),
            4 if number + 20 < CHANGES || number % 2 == 0 => drop(api.delete(&path).await?),
            _ => drop(api.patch(&path, &json!({"metadata": {"annotations": {"n": number.to_string()}}})).await?),
        }
    }
    api.create(collection, &make(LAST.trim_start_matches("conf/").to_owned())).await?;
    Ok(())
}

async fn state(api: &Endpoint, collection: &str) -> Result<State> {
    let list = api.json(&format!("{collection}?labelSelector={LABEL}")).await?;
    let items = list["items"].as_array().context("no items")?;
    Ok(items.iter().map(|item| (key_of(item), version_of(item))).collect())
}

/// Parses the lines that an informer in another language prints.
fn informed(text: &str) -> State {
    let row =
        |line: &str| line.split_once(' ').and_then(|(key, version)| Some((key.to_owned(), version.parse().ok()?)));
    text.lines().filter_map(row).collect()
}
