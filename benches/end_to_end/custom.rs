//! Custom resources that are similar to pods, on the library of a current API server (`KUBE_FANOUT_CRD_ASSETS`).

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use anyhow::Result;
use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    client::{Ask, Endpoint},
    pods,
    servers::{Upstream, wait},
    sizes::Sizes,
    storm::Scene,
    world::World,
};

const COLLECTION: &str = "/apis/bench.example.com/v1/widgets";
const RESOURCE: &str = "widgets.bench.example.com";
/// The same with its version.
const NAMED: &str = "widgets.v1.bench.example.com";
const WRITERS: usize = 8;

/// A server with as many custom objects as the world has pods; `None` without `KUBE_FANOUT_CRD_ASSETS` or a real API
/// server.
pub(crate) async fn start(world: &World) -> Result<Option<Upstream>> {
    let assets = std::env::var_os("KUBE_FANOUT_CRD_ASSETS");
    let Some(assets) = assets.filter(|_| world.upstream.real.is_some()) else { return Ok(None) };
    let mut upstream =
        Upstream::start_custom(Path::new(&assets), &world.upstream, &world.certificates, world.folder()).await?;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": RESOURCE},
        "spec": {
            "group": "bench.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    upstream.endpoint.connect(false).await?.write(Method::POST, definitions, &definition).await?;
    let (endpoint, ask) = (upstream.endpoint.clone(), Ask::json(format!("{COLLECTION}?resourceVersion=0")));
    wait(upstream.process(), async || endpoint.get(&ask).await.is_ok()).await?;
    seed(&endpoint, &world.sizes).await?;
    Ok(Some(upstream))
}

/// The collection of custom objects on that server.
pub(crate) fn scene<'a>(world: &'a World, upstream: &'a Upstream) -> Scene<'a> {
    Scene { world, upstream, collection: COLLECTION, resource: RESOURCE, named: NAMED, watch_list: true }
}

async fn seed(endpoint: &Endpoint, sizes: &Sizes) -> Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let (endpoint, sizes, next) = (endpoint.clone(), sizes.clone(), next.clone());
        writers.spawn(async move {
            let mut connection = endpoint.connect(false).await?;
            loop {
                let index = next.fetch_add(1, Relaxed);
                if index >= sizes.pods {
                    return Ok::<_, anyhow::Error>(());
                }
                let mut widget = pods::pod(&sizes, index);
                widget["apiVersion"] = "bench.example.com/v1".into();
                widget["kind"] = "Widget".into();
                let namespace = format!("load-{}", index % sizes.namespaces);
                let path = format!("/apis/bench.example.com/v1/namespaces/{namespace}/widgets");
                connection.write(Method::POST, &path, &widget).await?;
            }
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    Ok(())
}
