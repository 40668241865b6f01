//! Pods that compress as those of production clusters do. What differs there from pod to pod (hashes, addresses, times)
//! is random here, what differs from application to application is random for each of these, and the rest is equal: 64
//! of them are deflated to about a twelfth of their bytes.

use fastrand::Rng;
use serde_json::{Value, json};

/// The pod of an application with that number, the same one at each call; without a name and a namespace,
/// and without an owner: a cluster would delete the pods of one that is not there.
pub fn pod(application: usize, index: usize) -> Value {
    let mut own = Rng::with_seed(index as u64);
    let mut shared = Rng::with_seed(!(application as u64));
    let (app, template) = (format!("app-{application}"), word(&mut shared, 10));
    let containers: Vec<_> = ["main", "proxy"].map(|name| container(&app, name, &mut shared, &mut own)).into();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": {
                "app": app, "pod-template-hash": template, "team": format!("team-{}", application % 30),
                "topology.kubernetes.io/zone": format!("zone-{}", own.usize(..3)),
            },
            "annotations": {
                "checksum/config": hash(&mut own), "kubectl.kubernetes.io/restartedAt": time(&mut own),
                "cni.projectcalico.org/containerID": hash(&mut own),
                "cni.projectcalico.org/podIP": format!("{}/32", address(&mut own)),
                "prometheus.io/scrape": "true", "prometheus.io/port": "9090",
            },
        },
        "spec": {
            "containers": containers,
            "volumes": [
                {"name": "config", "configMap": {"name": format!("{app}-config-{}", word(&mut shared, 8))}},
                {"name": "data", "emptyDir": {}},
            ],
            "tolerations": [{
                "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300,
            }],
        },
    })
}

/// What the kubelet writes into the status of that pod.
pub fn status(index: usize) -> Value {
    let mut own = Rng::with_seed(!(index as u64));
    let began = time(&mut own);
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": began}));
    let statuses = ["main", "proxy"].map(|name| {
        let image = format!("registry.example/app/{name}@sha256:{}", hash(&mut own));
        json!({
            "name": name, "ready": true, "started": true, "restartCount": own.u8(..3), "image": image, "imageID": image,
            "containerID": format!("containerd://{}", hash(&mut own)), "state": {"running": {"startedAt": began}},
        })
    });
    let address = address(&mut own);
    json!({"status": {
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": began,
        "conditions": conditions, "containerStatuses": statuses, "qosClass": "Burstable",
    }})
}

fn container(app: &str, name: &str, shared: &mut Rng, own: &mut Rng) -> Value {
    let setting = |part: &str| json!({"name": format!("{part}_{name}"), "value": word(shared, 16)});
    let mut variables: Vec<_> = ["REGION", "FEATURE", "TOPIC"].map(setting).into();
    variables.push(json!({"name": "INSTANCE", "value": uuid(own)}));
    json!({
        "name": name,
        "image": format!("registry.example/{app}/{name}:v{}.{}", shared.u8(..9), shared.u8(..40)),
        "args": ["--config=/etc/app/config.yaml", format!("--peer=http://{app}.svc:{}", shared.u16(1_024..))],
        "env": variables,
        "ports": [{"containerPort": 8080, "name": format!("{name}-http")}],
        "resources": {
            "requests": {"cpu": "250m", "memory": format!("{}Mi", 64 * shared.u16(1..32))},
            "limits": {"memory": "2Gi"},
        },
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 5},
        "volumeMounts": [
            {"name": "config", "mountPath": format!("/etc/{app}")}, {"name": "data", "mountPath": "/data"},
        ],
    })
}

/// Letters and digits as the API server makes names of.
fn word(rng: &mut Rng, length: usize) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..length).map(|_| char::from(LETTERS[rng.usize(..LETTERS.len())])).collect()
}

fn hash(rng: &mut Rng) -> String {
    format!("{:032x}{:032x}", rng.u128(..), rng.u128(..))
}

fn uuid(rng: &mut Rng) -> String {
    let bits = rng.u128(..);
    let part = |shift: u32, digits: u32| (bits >> shift) & ((1 << (4 * digits)) - 1);
    format!("{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}", part(96, 8), part(80, 4), part(64, 3), part(48, 3), part(0, 12))
}

fn address(rng: &mut Rng) -> String {
    format!("10.{}.{}.{}", rng.u8(..), rng.u8(..), rng.u8(..))
}

fn time(rng: &mut Rng) -> String {
    let (day, hour, minute, second) = (rng.u8(10..28), rng.u8(..24), rng.u8(..60), rng.u8(..60));
    format!("2026-0{}-{day}T{hour:02}:{minute:02}:{second:02}Z", rng.u8(1..9))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::{Compression, read::GzEncoder};

    use super::*;

    #[test]
    fn pods_differ_and_compress_as_those_of_production_do() {
        let pods: Vec<_> = (0..64).map(|index| pod(index % 50, index).to_string()).collect();
        assert_eq!(pods[7], pod(7, 7).to_string());
        assert_ne!(pods[0], pods[50]);
        let text = pods.concat();
        let mut deflated = Vec::new();
        GzEncoder::new(text.as_bytes(), Compression::default()).read_to_end(&mut deflated).unwrap();
        let factor = text.len() / deflated.len();
        assert!((4..16).contains(&factor), "{} bytes to {}", text.len(), deflated.len());
    }
}
