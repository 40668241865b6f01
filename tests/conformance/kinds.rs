//! The resources of a server, and one small object of each kind.

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::client::{Endpoint, version_of};

/// The namespace of created objects.
const NAMESPACE: &str = "conf";
/// The group of the suite's definitions.
const CUSTOM_GROUP: &str = "conf.example.com";

/// A resource that can be listed and watched.
pub(crate) struct Resource {
    /// For example `/apis/apps/v1`.
    pub(crate) group_version: String,
    pub(crate) plural: String,
    kind: String,
    is_namespaced: bool,
}

impl Resource {
    pub(crate) fn collection(&self) -> String {
        format!("{}/{}", self.group_version, self.plural)
    }

    pub(crate) fn is_custom(&self) -> bool {
        self.group_version.contains(CUSTOM_GROUP)
    }

    /// Events are forwarded unless the configuration says otherwise.
    pub(crate) fn is_event(&self) -> bool {
        self.kind == "Event"
    }

    /// Its collection, or the namespace's part of it in which objects are created.
    fn part(&self) -> String {
        let Self { group_version, plural, .. } = self;
        if self.is_namespaced { format!("{group_version}/namespaces/{NAMESPACE}/{plural}") } else { self.collection() }
    }

    /// The path of one object and the newest version of all; `None` if there are no objects.
    pub(crate) async fn first(&self, api: &Endpoint) -> Result<Option<(String, u64)>> {
        let list = api.json(&self.collection()).await?;
        let items = list["items"].as_array().context("a list without items")?;
        let Some(first) = items.first() else { return Ok(None) };
        let newest = items.iter().map(version_of).max().unwrap_or_default();
        let text = |field: &str| first["metadata"][field].as_str().unwrap_or_default();
        let Self { group_version, plural, .. } = self;
        let path = match text("namespace") {
            "" => format!("{group_version}/{plural}/{}", text("name")),
            namespace => format!("{group_version}/namespaces/{namespace}/{plural}/{}", text("name")),
        };
        Ok(Some((path, newest)))
    }

    /// Creates a first object.
    ///
    /// # Errors
    /// As text: the table has no object of the kind, or the server refuses it.
    pub(crate) async fn make_one(&self, api: &Endpoint) -> Result<(), String> {
        let mut object = minimal(&self.kind).ok_or("no minimal object is known")?;
        let api_version = self.group_version.trim_start_matches("/apis/").trim_start_matches("/api/");
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(self.kind);
        object["metadata"] = json!({"name": "minimal", "labels": {"made": "minimal"}, "annotations": {"a": "<b>"}});
        api.create(&self.part(), &object).await.map(|_| ()).map_err(|error| format!("{error:#}"))
    }
}

/// The resources that can be listed and watched, in all versions that the server serves.
pub(crate) async fn discover(api: &Endpoint) -> Result<Vec<Resource>> {
    let mut group_versions = Vec::new();
    if api.get("/api").await?.status == 200 {
        group_versions.push("/api/v1".to_owned());
    }
    let groups = api.get("/apis").await?;
    if groups.status == 200 {
        let groups = groups.expect_success("/apis")?;
        for group in groups["groups"].as_array().context("no groups")? {
            let versions = group["versions"].as_array().context("no versions")?;
            let path = |version: &Value| format!("/apis/{}", version["groupVersion"].as_str().unwrap_or_default());
            group_versions.extend(versions.iter().map(path));
        }
    } else {
        // A server of definitions alone does not list its groups.
        group_versions.extend(
            ["apiextensions.k8s.io/v1", "conf.example.com/v1", "conf.example.com/v1beta1"]
                .map(|group| format!("/apis/{group}")),
        );
    }
    let mut found = Vec::new();
    for group_version in group_versions {
        let document = api.json(&group_version).await?;
        for resource in document["resources"].as_array().context("no resources")? {
            let has = |verb: &str| resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|v| v == verb));
            let text = |field: &str| resource[field].as_str().unwrap_or_default().to_owned();
            if has("list") && has("watch") && !text("name").contains('/') {
                found.push(Resource {
                    group_version: group_version.clone(),
                    plural: text("name"),
                    kind: text("kind"),
                    is_namespaced: resource["namespaced"] == true,
                });
            }
        }
    }
    Ok(found)
}

/// The smallest object that a server accepts, without metadata. Leaves out kinds that the server or the suite creates.
fn minimal(kind: &str) -> Option<Value> {
    let selector = json!({"matchLabels": {"app": "web"}});
    let mut template = json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "example.invalid/c"}]}});
    Some(match kind {
        "Endpoints" => json!({"subsets": [{"addresses": [{"ip": "10.1.0.1"}], "ports": [{"port": 80}]}]}),
        "LimitRange" => json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}),
        "PersistentVolumeClaim" => {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
        }
        "PersistentVolume" => json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/data"}}}),
        "PodTemplate" => json!({"template": template}),
        "ReplicationController" => {
            json!({"spec": {"replicas": 1, "selector": {"app": "web"}, "template": template}})
        }
        "ResourceQuota" => json!({"spec": {"hard": {"pods": "1000"}}}),
        "ServiceAccount" | "ConfigMap" => json!({}),
        // Without webhooks, since these would be called for every write.
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => json!({"webhooks": []}),
        "ControllerRevision" => json!({"data": {"b": [1, "<a>"], "a": null}, "revision": 1}),
        "DaemonSet" | "ReplicaSet" => json!({"spec": {"selector": selector, "template": template}}),
        "StatefulSet" => json!({"spec": {"serviceName": "s", "selector": selector, "template": template}}),
        "HorizontalPodAutoscaler" => json!({"spec": {"maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "deploy-0"}}}),
        "CronJob" => {
            template["spec"]["restartPolicy"] = json!("Never");
            json!({"spec": {"schedule": "0 1 * * *", "jobTemplate": {"spec": {"template": template}}}})
        }
        "CertificateSigningRequest" => json!({"spec": {"request": certificate_request()?,
            "signerName": "example.com/signer", "usages": ["client auth"]}}),
        "Lease" => json!({"spec": {"holderIdentity": "x", "renewTime": "2024-01-02T03:04:05.678901Z"}}),
        "EndpointSlice" => json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.0.1"]}]}),
        "Ingress" => json!({"spec": {"rules": [{"host": "a.example.com"}]}}),
        "IngressClass" => json!({"spec": {"controller": "example.com/controller"}}),
        "NetworkPolicy" => json!({"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": "http"}]}]}}),
        "RuntimeClass" => json!({"handler": "h"}),
        "PodDisruptionBudget" => json!({"spec": {"minAvailable": "50%", "selector": selector}}),
        "PodSecurityPolicy" => json!({"spec": {"seLinux": {"rule": "RunAsAny"}, "runAsUser": {"rule": "RunAsAny"},
            "supplementalGroups": {"rule": "RunAsAny"}, "fsGroup": {"rule": "RunAsAny"}}}),
        "CSIDriver" => json!({"spec": {"attachRequired": false}}),
        "CSINode" => json!({"spec": {"drivers": []}}),
        "StorageClass" => json!({"provisioner": "example.com/p", "parameters": {"z": "1", "a": "2"}}),
        "VolumeAttachment" => json!({"spec": {"attacher": "example.com", "nodeName": "node-0",
            "source": {"persistentVolumeName": "minimal"}}}),
        _ => return None,
    })
}

fn certificate_request() -> Option<String> {
    let key = rcgen::KeyPair::generate().ok()?;
    let request = rcgen::CertificateParams::default().serialize_request(&key).ok()?;
    Some(STANDARD.encode(request.pem().ok()?))
}
