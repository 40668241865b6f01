//! The servers' objects while responses are compared.

use anyhow::Result;
use http::Method;
use serde_json::{Value, json};

use crate::{client::Endpoint, gateway::PATIENCE, servers::POLL};

/// Namespaces that sort differently as `namespace/name` and as a pair.
pub(crate) const NAMESPACES: [&str; 3] = ["conf", "conf-b", "other"];

/// Creates definitions of custom resources, on either server.
pub(crate) async fn define(api: &Endpoint, selectable_fields: bool) -> Result<()> {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.create(definitions, &definition("widgets", "Widget", "Namespaced", selectable_fields)).await?;
    api.create(definitions, &definition("zones", "Zone", "Cluster", selectable_fields)).await?;
    for plural in ["widgets", "zones"] {
        for version in ["v1", "v1beta1"] {
            served(api, &format!("/apis/conf.example.com/{version}/{plural}")).await?;
        }
    }
    Ok(())
}

/// Returns when a collection is served, which takes a moment after its definition.
pub(crate) async fn served(api: &Endpoint, collection: &str) -> Result<()> {
    let started = tokio::time::Instant::now();
    while api.get(&format!("{collection}?resourceVersion=0")).await?.status != 200 {
        anyhow::ensure!(started.elapsed() < PATIENCE, "{collection} is not served");
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// A definition with two versions, the older one deprecated.
pub(crate) fn definition(plural: &str, kind: &str, scope: &str, selectable_fields: bool) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "color": {"type": "string"}, "size": {"type": "integer"}, "on": {"type": "boolean"}, "text": {"type": "string"},
    }}}}});
    // If the schemas of all versions are equal, the server treats them as one schema for all versions, and nothing is
    // selectable.
    let mut older = schema.clone();
    older["openAPIV3Schema"]["properties"]["spec"]["properties"]["older"] = json!({"type": "string"});
    let mut versions = vec![
        json!({"name": "v1", "served": true, "storage": true, "schema": schema}),
        json!({"name": "v1beta1", "served": true, "storage": false, "deprecated": true, "schema": older}),
    ];
    if selectable_fields {
        versions[0]["selectableFields"] =
            json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}, {"jsonPath": ".spec.on"}]);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.conf.example.com")},
        "spec": {
            "group": "conf.example.com", "scope": scope, "versions": versions,
            "names": {
                "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"),
            },
        },
    })
}

/// Creates custom resources; the namespaces need not exist.
pub(crate) async fn seed_custom(api: &Endpoint) -> Result<()> {
    for (number, namespace) in NAMESPACES.iter().cycle().take(12).enumerate() {
        let color = ["red", "green", "blue"][number % 3];
        let mut widget = json!({
            "apiVersion": "conf.example.com/v1", "kind": "Widget",
            "metadata": {"name": format!("w-{number:02}"), "labels": {"color": color, "number": number.to_string()}},
            "spec": {"color": color, "size": number, "on": number.is_multiple_of(2), "text": "a<b>&\u{2028}é\"\\"},
        });
        if number == 7 {
            widget["spec"] = json!({});
        }
        api.create(&format!("/apis/conf.example.com/v1/namespaces/{namespace}/widgets"), &widget).await?;
        if number < 5 {
            let zone = json!({
                "apiVersion": "conf.example.com/v1", "kind": "Zone",
                "metadata": {"name": format!("z-{number}"), "labels": {"color": color}}, "spec": {"color": color},
            });
            api.create("/apis/conf.example.com/v1/zones", &zone).await?;
        }
    }
    Ok(())
}

/// Creates objects of built-in types.
pub(crate) async fn seed_builtin(api: &Endpoint) -> Result<()> {
    for namespace in NAMESPACES {
        let metadata = json!({"name": namespace, "labels": {"team": namespace}});
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        api.create("/api/v1/namespaces", &object).await?;
    }
    for number in 0..5 {
        api.create("/api/v1/nodes", &node(number)).await?;
    }
    for (number, namespace) in NAMESPACES.iter().cycle().take(15).enumerate() {
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        api.create(&pods, &pod(number)).await?;
        if number % 3 != 0 {
            let phase = ["Running", "Succeeded", "Failed"][number % 3];
            let ip = format!("10.1.0.{number}");
            let status = json!({"status": {"phase": phase, "podIP": ip, "podIPs": [{"ip": ip}]}});
            api.patch(&format!("{pods}/pod-{number:02}/status"), &status).await?;
        }
        seed_small(api, namespace, number).await?;
    }
    Ok(())
}

async fn seed_small(api: &Endpoint, namespace: &str, number: usize) -> Result<()> {
    let labels = labels(number);
    let core = format!("/api/v1/namespaces/{namespace}");
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("cm-{number:02}"), "labels": labels},
        "data": {"text": "a<b>&c \u{2028} é \"quoted\" \\ tab\t", "number": number.to_string()},
    });
    api.create(&format!("{core}/configmaps"), &config_map).await?;
    if number >= 8 {
        return Ok(());
    }
    let kind = ["Opaque", "kubernetes.io/basic-auth", "example.com/odd"][number % 3];
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("secret-{number}"), "labels": labels},
        "type": kind, "stringData": {"username": "u", "password": "p"},
    });
    api.create(&format!("{core}/secrets"), &secret).await?;
    let kind = if number.is_multiple_of(2) { "ClusterIP" } else { "NodePort" };
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("svc-{number}"), "labels": labels},
        "spec": {"ports": [{"port": 80}], "type": kind, "selector": {"app": "web"}},
    });
    api.create(&format!("{core}/services"), &service).await?;
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("event-{number}")},
        "reason": "Testing", "type": "Normal", "source": {"component": "conf"},
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": format!("pod-{number:02}")},
    });
    api.create(&format!("{core}/events"), &event).await?;
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": format!("deploy-{number}"), "labels": labels},
        "spec": {"replicas": number, "selector": {"matchLabels": {"app": "web"}}, "template": template()},
    });
    api.create(&format!("/apis/apps/v1/namespaces/{namespace}/deployments"), &deployment).await?;
    let jobs = format!("/apis/batch/v1/namespaces/{namespace}/jobs");
    let mut job_template = template();
    job_template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": format!("job-{number}"), "labels": labels},
        "spec": {"template": job_template},
    });
    api.create(&jobs, &job).await?;
    if number.is_multiple_of(2) {
        api.write(Method::PATCH, &format!("{jobs}/job-{number}/status"), &json!({"status": {"succeeded": number}}))
            .await?;
    }
    Ok(())
}

fn labels(number: usize) -> Value {
    let tier = ["front", "back", ""][number % 3];
    let mut labels =
        json!({"app": if number.is_multiple_of(2) { "web" } else { "db" }, "number": number.to_string(), "tier": tier});
    if number.is_multiple_of(4) {
        labels["canary"] = json!("yes");
    }
    labels
}

fn template() -> Value {
    let container = json!({"name": "c", "image": "example.invalid/c"});
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}})
}

/// A pod on one of three nodes, or on none.
pub(crate) fn pod(number: usize) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{number:02}"), "labels": labels(number),
            "annotations": {"note": "a<b> & \"c\""}},
        "spec": {"containers": [{"name": "c", "image": "example.invalid/c"}], "serviceAccountName": "default",
            "restartPolicy": if number.is_multiple_of(5) { "Never" } else { "Always" }},
    });
    if !number.is_multiple_of(4) {
        pod["spec"]["nodeName"] = json!(format!("node-{}", number % 3));
    }
    pod
}

fn node(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("node-{number}"), "labels": {"zone": format!("z{}", number % 2)}},
        "spec": {"unschedulable": number == 3},
    })
}
