//! The objects besides pods: nodes, deployments, services, config maps, and a custom resource.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::{Application, managed_by, suffix};
use crate::write::now;

pub(super) fn node(index: usize) -> Value {
    let name = format!("node-{index}");
    let now = now();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now, "reason": reason,
            "message": format!("kubelet says: {reason}")})
    };
    let resources = json!({"cpu": "16", "ephemeral-storage": "101430960Ki", "memory": "65848180Ki", "pods": "110"});
    let status = json!({
        "capacity": resources,
        "allocatable": resources,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            condition("Ready", "True", "KubeletReady"),
        ],
        "addresses": [{"type": "InternalIP", "address": format!("192.0.2.{}", index % 250 + 1)},
            {"type": "Hostname", "address": name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {"machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "6.12.0", "osImage": "Debian",
            "containerRuntimeVersion": "containerd://2.1.0", "kubeletVersion": "v1.36.0", "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": "amd64"},
    });
    json!({
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": format!("zone-{}", index % 3)},
            "managedFields": [managed_by("kubelet", Some("status"), &json!({"status": status}))],
        },
        "spec": {"podCIDR": format!("10.{}.0.0/24", index % 250)},
        "status": status,
    })
}

pub(super) fn deployment(application: &Application) -> Value {
    let labels = application.labels();
    let image = format!("images.example.com/{}/{}:1.0.0", application.namespace, application.name);
    let spec = json!({
        "replicas": 14,
        "selector": {"matchLabels": {"app.kubernetes.io/name": application.name}},
        "template": {"metadata": {"labels": labels}, "spec": {
            "containers": [{"name": application.name, "image": image, "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent"}],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "securityContext": {}, "schedulerName": "default-scheduler"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    });
    let managed = managed_by("helm", None, &json!({"metadata": {"labels": labels}, "spec": spec}));
    json!({
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": application.name, "namespace": application.namespace, "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": "1"}, "managedFields": [managed]},
        "spec": spec,
        "status": {"observedGeneration": 1, "replicas": 14, "updatedReplicas": 14, "readyReplicas": 14,
            "availableReplicas": 14},
    })
}

pub(super) fn service(application: &Application, index: usize) -> Value {
    let ip = format!("10.96.{}.{}", index / 250 % 250, index % 250 + 1);
    json!({
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": application.name, "namespace": application.namespace, "labels": application.labels()},
        "spec": {
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": "http"}],
            "selector": {"app.kubernetes.io/name": application.name},
            "clusterIP": ip,
            "clusterIPs": [ip],
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
        },
        "status": {"loadBalancer": {}},
    })
}

pub(super) fn config_map(application: &Application, part: &str, rng: &mut Rng) -> Value {
    let entries = (0..rng.usize(3..12)).map(|entry| (format!("{part}.{entry}"), Value::from(suffix(rng, 80))));
    let data: Map<_, _> = entries.collect();
    json!({
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": format!("{}-{part}", application.name), "namespace": application.namespace,
            "labels": application.labels()},
        "data": data,
    })
}

/// The definition of a custom resource with a selectable field.
pub(super) fn backup_definition() -> Value {
    json!({
        "kind": "CustomResourceDefinition",
        "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "backups.demo.kube-fanout.io"},
        "spec": {
            "group": "demo.kube-fanout.io",
            "names": {"plural": "backups", "singular": "backup", "shortNames": ["bk"], "kind": "Backup",
                "listKind": "BackupList"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "subresources": {"status": {}},
                "selectableFields": [{"jsonPath": ".spec.schedule"}],
            }],
            "conversion": {"strategy": "None"},
        },
    })
}

pub(super) fn backup(application: &Application, index: usize) -> Value {
    let schedule = ["hourly", "daily", "weekly"][index % 3];
    json!({
        "apiVersion": "demo.kube-fanout.io/v1",
        "kind": "Backup",
        "metadata": {"name": application.name, "namespace": application.namespace, "labels": application.labels()},
        "spec": {"schedule": schedule, "keep": index % 7 + 1,
            "volumes": ["data", "journal"]},
        "status": {"phase": "Completed", "bytes": index * 4096},
    })
}
