//! Gateways that cache less than the cluster.
//!
//! * Beside an application: its service account has a Role in three namespaces, and nothing else. Every answer equals
//!   the API server's own to the same service account; lists and watches of a namespace are served from one upstream
//!   watch for each namespace and resource.
//! * With `cache.scope: requested`: namespaces, and the pods of a node.

use std::{collections::HashMap, path::Path};

use anyhow::{Context, Result};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    Side, cases,
    certificates::Certificates,
    client::{Ask, Endpoint, version_of},
    compare::{Rules, differences},
    gateway::{Gateway, PATIENCE, unique_agent},
    reads,
    report::Tally,
    servers::POLL,
};

const NAMESPACES: [&str; 2] = ["scope-a", "scope-b"];
const RESOURCES: [(&str, &str); 3] =
    [("/api/v1", "configmaps"), ("/apis/apps/v1", "deployments"), ("/apis/conf.example.com/v1", "widgets")];
/// Watches of each collection.
const WATCHES: usize = 25;

pub(crate) async fn run(side: &Side, certificates: &Certificates) -> Result<Tally> {
    let direct = &side.server.endpoint;
    let token = account(direct).await?;
    let kubeconfig = certificates.kubeconfig_of("scopes-upstream", &direct.base, &token)?;
    let fields = "cache: {trustedGroups: [apps, batch, conf.example.com]}";
    let folder = &certificates.folder;
    let gateway = Gateway::start_in_front_of("scopes", fields, &kubeconfig, certificates, folder).await?;
    let mut tally = Tally::default();
    let has_widgets = direct.get("/apis/conf.example.com/v1/widgets").await?.status == 200;
    let resources = &RESOURCES[..if has_widgets { 3 } else { 2 }];
    let mut watches = Vec::new();
    for namespace in NAMESPACES {
        for (group, resource) in resources {
            let collection = format!("{group}/namespaces/{namespace}/{resource}");
            gateway.warm(&collection).await?;
            for _ in 0..WATCHES {
                let path = format!("{collection}?watch=1&resourceVersion=0&timeoutSeconds=300");
                watches.push(opened(&gateway, &path, &mut tally).await?);
            }
        }
    }
    let authority = certificates.file("ca.crt");
    let as_account = Endpoint::with_token(&direct.base, Path::new(&authority), &token)?;
    for (path, any_version) in paths(resources) {
        let own = as_account.get(&path).await?;
        let agent = unique_agent("scopes");
        let answer = gateway.endpoint.send(&Ask::get(&path).header("user-agent", &agent)).await?;
        tally.answered(&gateway.outcome(&agent).await?);
        let rules = Rules { any_order: true, any_version };
        tally.compared(&format!("GET {path}"), differences(rules, &own, &answer));
    }
    let caches = caches(&gateway).await?;
    for namespace in NAMESPACES {
        for (_, resource) in resources {
            let of = |cache: &&Value| {
                cache["scope"] == namespace && cache["resource"].as_str().is_some_and(|name| name.starts_with(resource))
            };
            let shown = caches.iter().find(of).map(|cache| (&cache["watchers"], &cache["upstreamWatches"]));
            tally.equal(&format!("watches of {resource} in {namespace}"), &Some((&json!(WATCHES), &json!(1))), &shown);
        }
    }
    drop(watches);
    let collections = reads::BUILTIN.iter().chain(&reads::CUSTOM);
    let cases = reads::of_namespace(&side.server, &gateway, collections).await?;
    tally.merge(cases::compare_all(cases, &as_account, &gateway, !side.server.has_watch_list).await?);
    covers_no_cluster(&gateway, &mut tally).await?;
    withdrawn(direct, &gateway, &mut tally).await?;
    for namespace in NAMESPACES {
        direct.delete(&format!("/api/v1/namespaces/{namespace}")).await?;
    }
    for object in ["rolebindings/app", "roles/app"] {
        direct.delete(&format!("/apis/rbac.authorization.k8s.io/v1/namespaces/conf/{object}")).await?;
    }
    Ok(tally)
}

/// Reads of the pods of a node.
const OF_NODE: &str = "
    = {c}
    = {c}&limit=1
    = {c}&limit=2&labelSelector=app
    = {c}&resourceVersionMatch=NotOlderThan
    = {c}&labelSelector=app=web
    = {c}&pretty=0
    = {c} | accept: application/vnd.kubernetes.protobuf
    = {c} | accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io
    ~ {c} | accept: application/json;as=Table;v=v1;g=meta.k8s.io
    = {c} | accept-encoding: gzip
    = {c}&watch=1&timeoutSeconds=1
    = {c}&watch=1&timeoutSeconds=1&labelSelector=app=web
    = {c}&watch=1&timeoutSeconds=1 | accept: application/vnd.kubernetes.protobuf;stream=watch
    = /api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName=node-1,status.phase=Running
    = /api/v1/pods?resourceVersion=0&fieldSelector=status.phase!=Running,spec.nodeName%3D%3Dnode-1
    = /api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName=node-1,metadata.namespace=conf
    = /api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName=node-1,spec.nodeName=node-2
    = /api/v1/pods?resourceVersion={g}&fieldSelector=spec.nodeName=node-1
    = /api/v1/pods?resourceVersion={g}&limit=1000&fieldSelector=spec.nodeName=node-1
    = /api/v1/pods?resourceVersion={g}&limit=1&fieldSelector=spec.nodeName=node-1
    = /api/v1/pods?watch=1&resourceVersion={g}&timeoutSeconds=1&fieldSelector=spec.nodeName=node-1
    > /api/v1/pods?watch=1&resourceVersion=1&timeoutSeconds=1&fieldSelector=spec.nodeName=node-1
    = /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=spec.nodeName=node-1
    = /api/v1/namespaces/conf/pods?resourceVersion=0&limit=1&fieldSelector=spec.nodeName=node-1
    = /api/v1/namespaces/conf/pods?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=spec.nodeName=node-1
    = /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name=pod-01,spec.nodeName=node-1
    = /api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName=
    ~ /api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName=a%5C%2Cb%5C%5C%5C%3Dc
    = /api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName=none
    ~ /api/v1/namespaces/conf/configmaps?resourceVersion=0&fieldSelector=spec.nodeName=node-1
    ~ {c}&fieldSelector=foo=bar
    ~ {c}&labelSelector=!!
    ~ /api/v1/pods?fieldSelector=spec.nodeName=node-1
    ~ /api/v1/pods?limit=1&fieldSelector=spec.nodeName=node-1
    ~ /api/v1/pods?resourceVersion={g}&limit=2&fieldSelector=spec.nodeName=node-1
    ~ /api/v1/pods?resourceVersion={g}&limit=3&fieldSelector=spec.nodeName=node-1
    ~ /api/v1/pods?resourceVersion={g}&limit=4&fieldSelector=spec.nodeName=node-1
    ~ /api/v1/pods?resourceVersion={g}&limit=5&fieldSelector=spec.nodeName=node-1
    ~ /api/v1/pods?resourceVersion={g}&limit=6&fieldSelector=spec.nodeName=node-1
    ~ /api/v1/pods?resourceVersion={g}&limit=7&fieldSelector=spec.nodeName=node-1
    ~ /api/v1/pods?resourceVersion={g}&limit=8&fieldSelector=spec.nodeName=node-1
    ~ /api/v1/pods?resourceVersion={g}&limit=9&fieldSelector=spec.nodeName=node-1
    ~ /api/v1/pods?resourceVersion={g}&limit=10&fieldSelector=spec.nodeName=node-1
    ~ /api/v1/pods?resourceVersion={g}&limit=11&fieldSelector=spec.nodeName=node-1
    ~ /api/v1/pods?resourceVersion={g}&limit=12&fieldSelector=spec.nodeName=node-1
    ~ /api/v1/pods?resourceVersion={g}&resourceVersionMatch=Exact&fieldSelector=spec.nodeName=node-1
    > /api/v1/namespaces/conf-b/pods/nope?resourceVersion=0
    > /api/v1/namespaces/conf-b/pods?resourceVersion=0&fieldSelector=metadata.name=nope
";

/// Namespaces and nodes, each read by itself, with `cache.scope: requested`.
pub(crate) async fn requested(side: &Side, certificates: &Certificates, is_full: bool) -> Result<Tally> {
    let fields = "cache: {scope: requested}";
    let (server, folder) = (&side.server, &certificates.folder);
    let name = format!("requested-{is_full}");
    let gateway = Gateway::start_with(&name, fields, server, certificates, folder).await?;
    let any_order = !server.has_watch_list;
    let mut tally = Tally::default();
    if is_full {
        let node = "/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName=node-1";
        for accept in ["application/json", "application/vnd.kubernetes.protobuf"] {
            gateway.serves(&Ask::get(node).header("accept", accept)).await?;
        }
        let version = version_of(&gateway.endpoint.json(node).await?).to_string();
        let cases = cases::table(OF_NODE, &HashMap::from([("c", node.to_owned()), ("g", version)]))?;
        tally.merge(cases::compare_all(cases, &server.endpoint, &gateway, any_order).await?);
    }
    let builtin = reads::BUILTIN.iter().filter(|_| is_full);
    let cases = reads::of_namespace(server, &gateway, builtin.chain(&reads::CUSTOM)).await?;
    tally.merge(cases::compare_all(cases, &server.endpoint, &gateway, any_order).await?);
    covers_no_cluster(&gateway, &mut tally).await?;
    Ok(tally)
}

/// The token of a service account with a Role in each of the namespaces, which have some objects.
async fn account(direct: &Endpoint) -> Result<String> {
    for namespace in NAMESPACES {
        let of = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        direct.create("/api/v1/namespaces", &of("Namespace", namespace)).await?;
        for number in 0..20 {
            let map = of("ConfigMap", &format!("map-{number}"));
            direct.create(&format!("/api/v1/namespaces/{namespace}/configmaps"), &map).await?;
        }
        granted(direct, namespace).await?;
    }
    granted(direct, "conf").await?;
    let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", NAMESPACES[0]);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "app"}});
    direct.create(&accounts, &account).await?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let made = direct.create(&format!("{accounts}/app/token"), &request).await?;
    made["status"]["token"].as_str().map(str::to_owned).context("no token")
}

/// A Role in that namespace.
async fn granted(direct: &Endpoint, namespace: &str) -> Result<()> {
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    let groups = ["", "apps", "batch", "conf.example.com"];
    let resources = ["configmaps", "deployments", "jobs", "pods", "secrets", "services", "widgets"];
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "app"},
        "rules": [{"apiGroups": groups, "resources": resources, "verbs": ["get", "list", "watch"]}]});
    direct.create(&format!("{rbac}/roles"), &role).await?;
    let subject = json!({"kind": "ServiceAccount", "name": "app", "namespace": NAMESPACES[0]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "app"}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "app"}});
    direct.create(&format!("{rbac}/rolebindings"), &binding).await?;
    Ok(())
}

/// Requests, and whether a collection's version may differ.
fn paths(resources: &[(&str, &str)]) -> Vec<(String, bool)> {
    let mut paths = Vec::new();
    for (group, resource) in resources {
        for namespace in ["scope-a", "scope-b", "default", "none"] {
            let collection = format!("{group}/namespaces/{namespace}/{resource}");
            paths.push((format!("{collection}?resourceVersion=0"), true));
            paths.push((format!("{collection}?resourceVersion=0&limit=3"), true));
            paths.push((format!("{collection}?resourceVersion=0&labelSelector=a%3Db"), true));
            paths.push((format!("{collection}?fieldSelector=metadata.name%3Dmap-3&resourceVersion=0"), true));
            paths.push((format!("{collection}/map-1?resourceVersion=0"), false));
            paths.push((format!("{collection}/none"), false));
            paths.push((collection, true));
        }
        paths.push((format!("{group}/{resource}?resourceVersion=0"), true));
        paths.push((format!("{group}/{resource}?watch=1&resourceVersion=0&timeoutSeconds=1"), true));
    }
    paths.extend(
        ["/api/v1/nodes?resourceVersion=0", "/api/v1/namespaces/scope-a", "/version"]
            .map(|path| (path.to_owned(), true)),
    );
    paths
}

/// A watch from memory, with its first event.
async fn opened(gateway: &Gateway, path: &str, tally: &mut Tally) -> Result<http::Response<hyper::body::Incoming>> {
    let mut watch = gateway.endpoint.open(&Ask::get(path)).await?;
    let is_empty = !path.contains("configmaps");
    if !is_empty {
        let frame = watch.frame().await.context("the watch ended")??;
        let is_event = frame.data_ref().is_some_and(|data| data.starts_with(b"{\"type\":\"ADDED\""));
        tally.holds("the first event", is_event, || format!("{frame:?}"));
    }
    Ok(watch)
}

async fn covers_no_cluster(gateway: &Gateway, tally: &mut Tally) -> Result<()> {
    let caches = caches(gateway).await?;
    let whole: Vec<_> = caches.iter().filter(|cache| cache["scope"] == "").map(|cache| &cache["resource"]).collect();
    tally.holds("no cache of the cluster", !caches.is_empty() && whole.is_empty(), || format!("{whole:?}"));
    Ok(())
}

async fn caches(gateway: &Gateway) -> Result<Vec<Value>> {
    let admin = gateway.admin().context("no admin port")?;
    let status = Endpoint::plain(&format!("http://{admin}"))?.json("/status.json").await?;
    status["caches"].as_array().cloned().context("no caches")
}

/// Without its RoleBinding, a namespace has the API server's refusal, and the other one goes on.
async fn withdrawn(direct: &Endpoint, gateway: &Gateway, tally: &mut Tally) -> Result<()> {
    direct.delete("/apis/rbac.authorization.k8s.io/v1/namespaces/scope-b/rolebindings/app").await?;
    // Writes and most-recent reads have the API server's own answer at once.
    let started = Instant::now();
    while gateway.endpoint.get("/api/v1/namespaces/scope-b/configmaps").await?.status != 403 {
        anyhow::ensure!(started.elapsed() < PATIENCE, "the role stays in effect");
        sleep(POLL).await;
    }
    let answer = gateway.endpoint.get("/api/v1/namespaces/scope-a/configmaps?resourceVersion=0").await?;
    tally.equal("the other namespace", &200, &answer.status);
    Ok(())
}
