//! Pods: most objects of every cluster.

use fastrand::Rng;
use serde_json::{Value, json};

use super::{Application, managed_by, suffix};
use crate::write::now;

/// A running pod of an application on one of `nodes` nodes.
pub(super) fn pod(application: &Application, nodes: usize, rng: &mut Rng) -> Value {
    let Application { namespace, name, .. } = application;
    let hash = format!("{:09x}", name.bytes().fold(5381, |hash: u32, byte| hash.wrapping_mul(33) ^ u32::from(byte)));
    let pod_name = format!("{name}-{hash}-{}", suffix(rng, 5));
    let spec = spec(application, &format!("node-{}", rng.usize(..nodes)), rng);
    let status = status(&spec, rng);
    let mut labels = application.labels();
    labels["pod-template-hash"] = hash.as_str().into();
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{name}-{hash}"),
        "uid": uuid(rng), "controller": true, "blockOwnerDeletion": true}]);
    let written = json!({"metadata": {"labels": labels, "ownerReferences": owner}, "spec": spec});
    let managed = [
        managed_by("kube-controller-manager", None, &written),
        managed_by("kubelet", Some("status"), &json!({"status": status})),
    ];
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": pod_name,
            "generateName": format!("{name}-{hash}-"),
            "namespace": namespace,
            "labels": labels,
            "annotations": {
                "prometheus.io/port": "9090",
                "prometheus.io/scrape": "true",
                "checksum/config": format!("{:032x}{:032x}", rng.u128(..), rng.u128(..)),
            },
            "ownerReferences": owner,
            "managedFields": managed,
        },
        "spec": spec,
        "status": status,
    })
}

fn spec(application: &Application, node: &str, rng: &mut Rng) -> Value {
    let mut containers = vec![container(application, rng)];
    if rng.bool() {
        containers.push(json!({"name": "proxy", "image": "images.example.com/mesh/proxy:2.4.0", "resources": {},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent"}));
    }
    json!({
        "volumes": [
            {"name": "config", "configMap": {"name": format!("{}-config", application.name), "defaultMode": 420}},
            {"name": "kube-api-access", "projected": {"sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            ], "defaultMode": 420}},
        ],
        "containers": containers,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": application.name,
        "nodeName": node,
        "securityContext": {"runAsUser": 1000, "runAsNonRoot": true, "fsGroup": 1000},
        "schedulerName": "default-scheduler",
        "tolerations": [
            toleration("node.kubernetes.io/not-ready"),
            toleration("node.kubernetes.io/unreachable"),
        ],
        "priority": 0,
        "enableServiceLinks": true,
        "preemptionPolicy": "PreemptLowerPriority",
    })
}

/// As the API server's admission plug-in `DefaultTolerationSeconds` adds it.
fn toleration(key: &str) -> Value {
    json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
}

fn container(application: &Application, rng: &mut Rng) -> Value {
    let name = &application.name;
    let variables = ["LOG_LEVEL", "REGION", "CACHE_URL", "DATABASE_URL", "QUEUE_URL", "TRACE_SAMPLING", "FEATURES"];
    let count = rng.usize(2..=variables.len());
    let env: Vec<_> = variables[..count]
        .iter()
        .map(|variable| {
            let value = format!("{variable}.{}", application.namespace).to_lowercase();
            json!({"name": variable, "value": value})
        })
        .collect();
    let probe = |path: &str| {
        json!({"httpGet": {"path": path, "port": "http", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
            "successThreshold": 1, "failureThreshold": 3})
    };
    json!({
        "name": name,
        "image": format!("images.example.com/{}/{name}:1.{}.0", application.namespace, rng.u8(..40)),
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": env,
        "resources": {"limits": {"cpu": "1", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "volumeMounts": [
            {"name": "config", "readOnly": true, "mountPath": "/etc/config"},
            {"name": "kube-api-access", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
        ],
        "livenessProbe": probe("/livez"),
        "readinessProbe": probe("/readyz"),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    })
}

fn status(spec: &Value, rng: &mut Rng) -> Value {
    let now = now();
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let containers = spec["containers"].as_array().into_iter().flatten();
    let running = |container: &Value| {
        json!({
            "name": container["name"],
            "state": {"running": {"startedAt": now}},
            "lastState": {},
            "ready": true,
            "restartCount": 0,
            "image": container["image"],
            "imageID": format!("images.example.com@sha256:{:032x}{:032x}", rng.u128(..), rng.u128(..)),
            "containerID": format!("containerd://{:032x}{:032x}", rng.u128(..), rng.u128(..)),
            "started": true,
        })
    };
    let statuses: Vec<_> = containers.map(running).collect();
    let ip = format!("10.{}.{}.{}", rng.u8(1..250), rng.u8(..), rng.u8(1..255));
    json!({
        "phase": "Running",
        "conditions": conditions.map(condition),
        "hostIP": "192.0.2.10",
        "hostIPs": [{"ip": "192.0.2.10"}],
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": now,
        "containerStatuses": statuses,
        "qosClass": "Burstable",
    })
}

/// The uid of an object that does not exist itself.
fn uuid(rng: &mut Rng) -> String {
    uuid::Builder::from_random_bytes(rng.u128(..).to_be_bytes()).into_uuid().to_string()
}
