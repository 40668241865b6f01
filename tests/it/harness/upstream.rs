//! The embedded API server without a connection, and the objects that tests write to it. Shared with the simulation.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use kube_fanout::{apimachinery::GroupResource, sim::Sim};
use serde_json::{Value, json};

/// Its response: status and body.
pub(crate) async fn directly(sim: &Sim, path: &str) -> (u16, String) {
    let response = sim.handle(Request::get(path).body(Full::<Bytes>::default()).unwrap()).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

pub(crate) fn pods() -> GroupResource {
    GroupResource { group: "".into(), resource: "pods".into() }
}

pub(crate) fn pod(namespace: &str, name: &str, app: &str) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
        "spec": {"nodeName": format!("node-{app}"), "containers": [{"name": "main", "image": "image"}]},
        "status": {"phase": "Running"},
    })
}
