//! Decides whether a cluster is meant for tests. Load can bring a control plane down, and written objects are real.
//!
//! A loopback address proves nothing: the gateway itself listens there in front of production clusters, as `kubectl
//! proxy` and tunnels do. Only what the cluster reports about itself counts.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use base::apimachinery::Status;

use crate::{
    channel::Channel,
    endpoint::Endpoint,
    endpoint::RequestSpec,
    failure::{Failure, plain},
    profile::HttpVersion,
};

/// The label of the namespace `default` that marks a cluster as a test cluster.
pub const TEST_CLUSTER: &str = "load.kube-fanout.io/test-cluster";
/// Part of the version that the embedded API server reports.
const EMBEDDED: &str = "kube-fanout-sim";
const ASK_MAX: Duration = Duration::from_secs(10);
/// The maximum number of characters of a text that is not an API server's.
const WORDS_MAX: usize = 200;
/// The maximum number of nodes that are checked. Clusters in containers have few.
const NODES: usize = 20;

/// What a cluster looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    ForTests,
    /// With what could not be read, and would have shown it: empty if everything could.
    Strange(Vec<String>),
}

/// Whether load may be put on the cluster behind an endpoint: it is the embedded API server, its namespace `default`
/// has the label, or all its nodes are containers of kind, k3d or minikube, or simulated by kwok.
///
/// # Errors
/// The endpoint does not answer.
pub(super) async fn is_for_tests(endpoint: &Arc<Endpoint>) -> Result<Looks, Failure> {
    let connection = Channel::new(endpoint.clone(), HttpVersion::Http1);
    let version = fetch(&connection, "/version").await?;
    if version["gitVersion"].as_str().is_some_and(|version| version.contains(EMBEDDED)) {
        return Ok(Looks::ForTests);
    }
    let mut unread = Vec::new();
    // What cannot be read is named if nothing else decides.
    let mut known = |what: &str, answer: Result<Value, Failure>| {
        answer.unwrap_or_else(|failure| {
            unread.push(format!("{what} cannot be read ({})", words(&failure)));
            Value::Null
        })
    };
    let namespace = known("its namespace \"default\"", fetch(&connection, "/api/v1/namespaces/default").await);
    if namespace["metadata"]["labels"][TEST_CLUSTER] == "true" {
        return Ok(Looks::ForTests);
    }
    let nodes = known("its nodes", fetch(&connection, &format!("/api/v1/nodes?limit={NODES}")).await);
    let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
    if !nodes.is_empty() && nodes.iter().all(is_test_node) {
        return Ok(Looks::ForTests);
    }
    Ok(Looks::Strange(unread))
}

/// The message of a refusal, in place of its whole document; of any other text its first line.
pub(super) fn words(failure: &Failure) -> String {
    let first = || failure.message.lines().next().unwrap_or_default().chars().take(WORDS_MAX).collect();
    let message: String = Status::message_in(failure.message.as_bytes()).unwrap_or_else(first);
    format!("{}: {}", failure.kind, plain(&message))
}

pub(super) async fn fetch(connection: &Channel, path: &str) -> Result<Value, Failure> {
    let body = connection.within(ASK_MAX, &RequestSpec::get(path)).await?;
    serde_json::from_slice(&body).map_err(|error| Failure::stream(&error))
}

fn is_test_node(node: &Value) -> bool {
    let provider = node["spec"]["providerID"].as_str().unwrap_or_default();
    let metadata = &node["metadata"];
    let is_k3d = provider.starts_with("k3s://k3d-");
    let is_minikube = metadata["labels"]["minikube.k8s.io/name"].is_string();
    let is_kwok = metadata["annotations"]["kwok.x-k8s.io/node"].is_string();
    provider.starts_with("kind://") || is_k3d || is_minikube || is_kwok
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nodes_of_test_clusters_are_recognized() {
        for (node, expected) in [
            (json!({"spec": {"providerID": "kind://podman/kind/kind-worker"}}), true),
            (json!({"spec": {"providerID": "k3s://k3d-test-server-0"}}), true),
            (json!({"metadata": {"labels": {"minikube.k8s.io/name": "minikube"}}}), true),
            (json!({"metadata": {"annotations": {"kwok.x-k8s.io/node": "fake"}}}), true),
            (json!({"spec": {"providerID": "k3s://server-0"}}), false),
            (json!({"spec": {"providerID": "aws:///eu-west-1a/i-0123"}}), false),
            (json!({}), false),
        ] {
            assert_eq!(is_test_node(&node), expected, "{node}");
        }
    }
}
