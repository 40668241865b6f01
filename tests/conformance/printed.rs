//! Tables of built-in resources: objects in all states, printed by both sides and compared byte by byte.
//!
//! Ages of seconds and minutes are compared by their form alone, older ones as they are.

use std::collections::HashMap;

use anyhow::{Context, Result};
use futures_util::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::{Value, json};

use crate::{
    Side, cases,
    client::{Endpoint, version_of},
    odd::{Chance, Odd},
    report::Tally,
};

const NAMESPACE: &str = "odd";
/// The same in every run, so that a difference can be reproduced.
const SEED: u64 = 7;
/// The number of concurrent requests while objects are created.
const AT_ONCE: usize = 12;
/// The maximum number of statuses, of some 800, that the server may refuse.
const REFUSED_MAX: usize = 20;
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
/// A watch-list of the state.
const STATE: &str =
    "resourceVersion=0&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
const KUBECTL: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

/// A resource whose Tables are printed here.
struct Printed {
    group_version: &'static str,
    plural: &'static str,
    is_namespaced: bool,
}

const fn of(group_version: &'static str, plural: &'static str) -> Printed {
    Printed { group_version, plural, is_namespaced: true }
}

const PRINTED: [Printed; 18] = [
    of("/api/v1", "pods"),
    Printed { is_namespaced: false, ..of("/api/v1", "nodes") },
    of("/api/v1", "services"),
    of("/apis/apps/v1", "deployments"),
    of("/apis/apps/v1", "replicasets"),
    of("/apis/apps/v1", "daemonsets"),
    of("/apis/apps/v1", "statefulsets"),
    of("/apis/batch/v1", "jobs"),
    of("/api/v1", "configmaps"),
    of("/api/v1", "secrets"),
    of("/api/v1", "serviceaccounts"),
    Printed { is_namespaced: false, ..of("/api/v1", "namespaces") },
    Printed { is_namespaced: false, ..of("/api/v1", "persistentvolumes") },
    of("/api/v1", "persistentvolumeclaims"),
    of("/apis/networking.k8s.io/v1", "ingresses"),
    // Not in 1.20.
    of("/apis/batch/v1", "cronjobs"),
    of("/apis/discovery.k8s.io/v1", "endpointslices"),
    of("/apis/autoscaling/v2", "horizontalpodautoscalers"),
];

/// `{t}` is how a Table is asked for, `{rv}` the version of the collection. Servers before 1.23 indent in another way.
const ROWS: &str = "
    = {c}?resourceVersion=0 | accept: {t}
    = {p}?resourceVersion=0 | accept: {t}
    = {p}/{name}?resourceVersion=0 | accept: {t}
    = {c}?resourceVersion=0&includeObject=None | accept: {t}
    = {c}?resourceVersion=0&includeObject=Metadata | accept: {t}
    = {c}?resourceVersion=0&includeObject=Object | accept: {t}
    = {p}/{name}?resourceVersion=0&includeObject=None | accept: {t}
    = {p}/{name}?resourceVersion=0&includeObject=Object | accept: {t}
    > {c}?resourceVersion=0&includeObject=Foo | accept: {t}
    = {c}?resourceVersion={rv}&limit=3 | accept: {t}
    > {c} | accept: {t}
    > {p}/{name} | accept: {t}
    > {p}/nope?resourceVersion=0 | accept: {t}
    = {c}?resourceVersion=0&labelSelector=odd=a | accept: {t}
    = {c}?resourceVersion=0&labelSelector=odd=none | accept: {t}
    ~ {c}?resourceVersion=0&pretty=1 | accept: {t}
    = {c}?watch=1&resourceVersion=0&timeoutSeconds=1 | accept: {t}
    ~ {c}?watch=1&{state}&timeoutSeconds=1 | accept: {t}
    ~ {p}?watch=1&{state}&timeoutSeconds=1&includeObject=None&labelSelector=odd=none | accept: {t}
    ~ {p}?watch=1&{state}&timeoutSeconds=1&includeObject=Object&labelSelector=odd=none | accept: {t}
    = {p}?watch=1&resourceVersion=0&timeoutSeconds=1&includeObject=Object | accept: {t}
    = {c}?resourceVersion=0 | accept: {t} | accept-encoding: gzip
    = {c}?resourceVersion=0&includeObject=Object | accept: {t} | accept-encoding: gzip
";

pub(crate) async fn run(side: &Side) -> Result<Tally> {
    let direct = &side.server.endpoint;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    direct.create("/api/v1/namespaces", &namespace).await?;
    let mut tally = Tally::default();
    let mut refused = Vec::new();
    let mut served = Vec::new();
    for printed in &PRINTED {
        match printed.is_served(direct).await? {
            true => served.push(printed),
            false => tally.note(format!("not compared, since the server does not have it: {}", printed.collection())),
        }
    }
    for printed in &served {
        refused.extend(seed(direct, printed).await.with_context(|| printed.plural)?);
        tally.merge(compared(side, printed).await?);
    }
    // Newer servers refuse some statuses as impossible.
    tally.holds("nearly all statuses are accepted", refused.len() <= REFUSED_MAX, || refused.join("; "));
    let counts: Vec<_> =
        served.iter().map(|printed| format!("{} {}", objects(printed).len(), printed.plural)).collect();
    tally.note(format!("made of each: {}", counts.join(", ")));
    for printed in served {
        remove(direct, printed).await.with_context(|| printed.plural)?;
    }
    direct.delete(&format!("/api/v1/namespaces/{NAMESPACE}")).await?;
    Ok(tally)
}

/// Whether the Tables of a collection come from memory.
pub(crate) fn is_printed(collection: &str) -> bool {
    PRINTED.iter().any(|printed| printed.collection() == collection)
}

impl Printed {
    fn collection(&self) -> String {
        format!("{}/{}", self.group_version, self.plural)
    }

    async fn is_served(&self, direct: &Endpoint) -> Result<bool> {
        Ok(direct.get(&self.collection()).await?.status == 200)
    }

    /// The path of the collection in which objects are created.
    fn part(&self) -> String {
        match self.is_namespaced {
            true => format!("{}/namespaces/{NAMESPACE}/{}", self.group_version, self.plural),
            false => self.collection(),
        }
    }
}

fn objects(printed: &Printed) -> Vec<Odd> {
    let mut chance = Chance::new(SEED);
    let mut made = |count: usize, make: &mut dyn FnMut(&mut Chance, usize) -> Odd| -> Vec<Odd> {
        (0..count).map(|number| make(&mut chance, number)).collect()
    };
    match printed.plural {
        "pods" => made(400, &mut Chance::pod),
        "nodes" => made(60, &mut Chance::node),
        "services" => made(80, &mut Chance::service),
        "deployments" => made(60, &mut |chance, number| chance.workload("Deployment", number)),
        "replicasets" => made(40, &mut |chance, number| chance.workload("ReplicaSet", number)),
        "daemonsets" => made(40, &mut |chance, number| chance.workload("DaemonSet", number)),
        "statefulsets" => made(40, &mut |chance, number| chance.workload("StatefulSet", number)),
        "jobs" => made(80, &mut Chance::job),
        "cronjobs" => made(60, &mut Chance::cron_job),
        "persistentvolumes" => made(60, &mut Chance::volume),
        "persistentvolumeclaims" => made(60, &mut Chance::claim),
        "ingresses" => made(60, &mut Chance::ingress),
        "endpointslices" => made(40, &mut Chance::endpoint_slice),
        "horizontalpodautoscalers" => made(80, &mut Chance::autoscaler),
        "configmaps" => made(12, &mut |chance, number| chance.plain("ConfigMap", number)),
        "secrets" => made(12, &mut |chance, number| chance.plain("Secret", number)),
        "serviceaccounts" => made(8, &mut |chance, number| chance.plain("ServiceAccount", number)),
        _ => Vec::new(),
    }
}

/// Creates the objects. Returns the statuses that the server refused.
async fn seed(direct: &Endpoint, printed: &Printed) -> Result<Vec<String>> {
    let part = &printed.part();
    let made = stream::iter(objects(printed)).map(|Odd { object, status, is_deleted }| async move {
        let mut created = direct.create(part, &object).await.with_context(|| object.to_string())?;
        let one = format!("{part}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
        let mut refused = None;
        if let Some(status) = status {
            created["status"] = status;
            let put = direct.write(Method::PUT, &format!("{one}/status"), &created).await;
            refused = put.err().map(|why| why.to_string());
        }
        if is_deleted {
            direct.write(Method::DELETE, &one, &json!({"gracePeriodSeconds": 30})).await?;
        }
        anyhow::Ok(refused)
    });
    let refused: Vec<_> = made.buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(refused.into_iter().flatten().collect())
}

async fn compared(side: &Side, printed: &Printed) -> Result<Tally> {
    let (all, part) = (printed.collection(), printed.part());
    side.gateway.warm(&all).await?;
    let list = side.server.endpoint.json(&all).await?;
    // Not the version of the collection: that may be of another resource, and a cache behind an older server does not
    // learn it.
    let newest = list["items"].as_array().into_iter().flatten().map(version_of).max().unwrap_or_default();
    side.gateway.reached(&all, newest).await?;
    let newest = side.gateway.endpoint.json(&format!("{all}?resourceVersion={newest}")).await?;
    let name = if printed.plural == "namespaces" { NAMESPACE } else { "odd-05" };
    let mut tally = Tally::default();
    for accept in [TABLE, "application/json;as=Table;g=meta.k8s.io;v=v1beta1", KUBECTL] {
        let values = HashMap::from([
            ("c", all.clone()),
            ("p", part.clone()),
            ("name", if printed.plural == "pods" { "odd-005".to_owned() } else { name.to_owned() }),
            ("rv", version_of(&newest).to_string()),
            ("t", accept.to_owned()),
            ("state", STATE.to_owned()),
        ]);
        tally
            .merge(cases::compare_all(cases::table(ROWS, &values)?, &side.server.endpoint, &side.gateway, true).await?);
    }
    Ok(tally)
}

/// Deletes the objects.
async fn remove(direct: &Endpoint, printed: &Printed) -> Result<()> {
    let part = &printed.part();
    let removed = stream::iter(objects(printed)).map(|Odd { object, is_deleted, .. }| async move {
        let one = format!("{part}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
        if is_deleted {
            direct.patch(&one, &json!({"metadata": {"finalizers": Value::Null}})).await?;
        }
        direct
            .write(Method::DELETE, &one, &json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"}))
            .await
            .or_else(gone)?;
        anyhow::Ok(())
    });
    removed.buffer_unordered(AT_ONCE).try_collect().await
}

/// Accepts 404: the object was deleted together with its finalizer.
fn gone(error: anyhow::Error) -> Result<Value> {
    if error.to_string().contains(": 404 ") { Ok(Value::Null) } else { Err(error) }
}
