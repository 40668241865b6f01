//! The objects that the tool writes: of a given size, similar to real ones, and labelled so that they can be found and
//! deleted.

use fastrand::Rng;
use serde_json::{Value, json};

use crate::{
    frames::{SENT, stamp},
    profile::{ChurnResource, ChurnWork},
    workload,
};

/// The label of all objects of the tool.
pub(super) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "kube-fanout-load");
/// The label that identifies the run of an object.
pub(super) const RUN: &str = "load.kube-fanout.io/run";
/// The scheduler of pods that must not run. No scheduler has this name.
pub(super) const NO_SCHEDULER: &str = "load.kube-fanout.io";
/// The prefix of the names of nodes, which do not exist.
const NODE: &str = "load-node-";
/// The number of applications to which pods belong.
const APPLICATIONS: usize = 50;
/// The words of filler text, which compresses about as well as real objects do.
const WORDS: [&str; 8] = ["service", "endpoint", "example", "internal", "timeout", "retries", "zone", "8080"];

/// The namespace of a run.
pub(super) fn namespace(run: &str) -> Value {
    let name = namespace_name(run);
    let labels: Value = labels(run).into_iter().collect();
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

pub(super) fn namespace_name(run: &str) -> String {
    format!("kube-fanout-load-{run}")
}

/// The labels of every object.
pub(super) fn labels(run: &str) -> [(&'static str, &str); 2] {
    [MANAGED_BY, (RUN, run)]
}

/// The name of the node with that number.
pub(super) fn node_name(number: usize) -> String {
    format!("{NODE}{number}")
}

/// The number of the node with that name; `None` if it is no node of the tool.
pub(super) fn node_number(name: &str) -> Option<usize> {
    number(name.strip_prefix(NODE)?)
}

/// A number at the end of a name, as the tool writes it.
pub(super) fn number(text: &str) -> Option<usize> {
    text.parse().ok().filter(|number: &usize| number.to_string() == text)
}

/// Object `index` with the timestamp `now`.
pub(super) fn object(work: &ChurnWork, run: &str, name: &str, index: usize, now: u64) -> Value {
    let mut rng = Rng::with_seed(index as u64);
    let mut object = match work.resource {
        ChurnResource::ConfigMaps => json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {},
            "metadata": {"name": name, "labels": {}, "annotations": {}},
        }),
        ChurnResource::Pods => pod(work.nodes, name, index),
    };
    object["metadata"]["namespace"] = namespace_name(run).into();
    object["metadata"]["annotations"][SENT] = stamp(now, run).into();
    for (key, value) in labels(run) {
        object["metadata"]["labels"][key] = value.into();
    }
    let bytes = usize::try_from(work.bytes).unwrap_or(usize::MAX);
    let missing = bytes.saturating_sub(object.to_string().len() + "{\"filling\":\"\"}".len());
    match work.resource {
        ChurnResource::ConfigMaps => object["data"]["filling"] = filling(&mut rng, missing).into(),
        ChurnResource::Pods => {
            if let Value::Array(env) = &mut object["spec"]["containers"][0]["env"] {
                env.extend(variables(&mut rng, missing));
            }
        }
    }
    object
}

/// The merge patch that changes an object.
pub(super) fn change(run: &str, now: u64) -> Value {
    json!({"metadata": {"annotations": {SENT: stamp(now, run)}}})
}

fn pod(nodes: usize, name: &str, index: usize) -> Value {
    let mut pod = workload::pod(index % APPLICATIONS, index);
    pod["metadata"]["name"] = name.into();
    pod["spec"]["schedulerName"] = NO_SCHEDULER.into();
    pod["spec"]["terminationGracePeriodSeconds"] = 0.into();
    pod["spec"]["automountServiceAccountToken"] = false.into();
    if nodes > 0 {
        pod["spec"]["nodeName"] = node_name(index % nodes).into();
    }
    pod
}

/// Environment variables of about `bytes` bytes. They are few, since the server lists each of them in `managedFields`.
fn variables(rng: &mut Rng, bytes: usize) -> Vec<Value> {
    const EACH: usize = 400;
    let variable = |index: usize| json!({"name": format!("SETTING_{index}"), "value": filling(rng, EACH - 35)});
    (0..bytes / EACH).map(variable).collect()
}

fn filling(rng: &mut Rng, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        if rng.bool() {
            text.push_str(WORDS[rng.usize(..WORDS.len())]);
        } else {
            text.push_str(&format!("{:x}", rng.u16(..)));
        }
        text.push('.');
    }
    text.truncate(bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_about_the_requested_size() {
        for (resource, from) in [(ChurnResource::ConfigMaps, 500), (ChurnResource::Pods, 3_000)] {
            for bytes in [from, 10_000, 100_000] {
                let work = ChurnWork { resource, objects: 1, bytes, updates: 1, creates: 0, deletes: 0, nodes: 3 };
                let size = object(&work, "run", "name", 7, 1_763_811_471_000_000_123).to_string().len();
                assert!((bytes * 4 / 5..=bytes).contains(&(size as u64)), "{resource:?}: {size} of {bytes}");
            }
        }
    }
}
