//! The roles of the users at the beginning of the matrix, and how they change.

use anyhow::Result;
use serde_json::{Value, json};

use crate::client::Endpoint;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The role that is granted and revoked.
const POD_READERS: &str = "pod-readers";
/// The binding of further keepers.
const KEEPERS: &str = "further-keepers";
const READ: [&str; 3] = ["get", "list", "watch"];

/// Grants all roles, and creates the service account that is one of the users.
pub(crate) async fn grant(api: &Endpoint) -> Result<()> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}});
    api.create("/api/v1/namespaces/conf/serviceaccounts", &account).await?;

    let gateway = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": READ},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["users", "groups", "serviceaccounts"], "verbs": ["impersonate"]},
        // `userextras` has a subresource for each key, and rules cannot match them by a pattern.
        {"apiGroups": ["authentication.k8s.io"], "resources": ["*"], "verbs": ["impersonate"]},
    ]);
    role(api, None, "gateway", &gateway, &[user("gateway")]).await?;
    let requests = json!([
        {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create"]},
    ]);
    role(api, None, "whoami", &requests, &[group("system:authenticated"), group("system:unauthenticated")]).await?;
    let keeper = json!([{
        "apiGroups": ["", "conf.example.com"], "verbs": ["get", "list", "watch", "create", "delete"],
        "resources": [
            "pods", "pods/log", "pods/status", "secrets", "configmaps", "namespaces", "nodes", "widgets", "zones",
        ],
    }]);
    role(api, None, "keeper", &keeper, &[group("keepers")]).await?;
    let impersonator = json!([
        {"apiGroups": [""], "resources": ["users"], "resourceNames": ["reader"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["groups"], "resourceNames": ["readers"], "verbs": ["impersonate"]},
    ]);
    role(api, None, "impersonator", &impersonator, &[user("impersonator"), user("cert-impersonator")]).await?;

    let pods = json!([
        {"apiGroups": ["", "conf.example.com"], "resources": ["pods", "widgets"], "verbs": READ},
        {"apiGroups": [""], "resources": ["pods/log", "namespaces"], "verbs": ["get"]},
    ]);
    role(api, Some("conf"), POD_READERS, &pods, &readers()).await?;
    let one = json!([{
        "apiGroups": ["", "conf.example.com"], "resources": ["pods", "widgets"], "resourceNames": ["pod-00", "w-00"],
        "verbs": READ,
    }]);
    role(api, Some("conf"), "one-pod", &one, &[user("named")]).await?;
    role(api, None, "one-name", &one, &[user("wide")]).await?;
    let secret = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["secret-0"], "verbs": READ}]);
    role(api, None, "one-secret", &secret, &[user("wide")]).await?;
    let maps = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    role(api, Some("conf"), "staff", &maps, &[group("staff")]).await
}

/// Revokes access to pods from the users who had it, and grants it to those who had not.
pub(super) async fn swap(api: &Endpoint) -> Result<()> {
    let others = [user("outsider"), user("j\u{fc}rgen <b>"), user("system:anonymous")];
    bind(api, POD_READERS, &others).await
}

/// Undoes [`swap`].
pub(super) async fn restore(api: &Endpoint) -> Result<()> {
    bind(api, POD_READERS, &readers()).await
}

/// Grants another user what [`swap`] would, until [`revoke_pods`].
pub(crate) async fn grant_pods(api: &Endpoint, name: &str) -> Result<()> {
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": POD_READERS});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": format!("{POD_READERS}-{name}")}, "roleRef": reference, "subjects": [user(name)],
    });
    api.create(&format!("{RBAC}/namespaces/conf/rolebindings"), &binding).await.map(drop)
}

pub(crate) async fn revoke_pods(api: &Endpoint, name: &str) -> Result<()> {
    api.delete(&format!("{RBAC}/namespaces/conf/rolebindings/{POD_READERS}-{name}")).await.map(drop)
}

/// Grants further users in `conf` what the keeper may do, until [`revoke_keeper`].
pub(crate) async fn grant_keeper(api: &Endpoint, names: &[&str]) -> Result<()> {
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "keeper"});
    let subjects: Vec<_> = names.iter().map(|name| user(name)).collect();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": KEEPERS}, "roleRef": reference, "subjects": subjects,
    });
    api.create(&format!("{RBAC}/namespaces/conf/rolebindings"), &binding).await.map(drop)
}

pub(crate) async fn revoke_keeper(api: &Endpoint) -> Result<()> {
    api.delete(&format!("{RBAC}/namespaces/conf/rolebindings/{KEEPERS}")).await.map(drop)
}

async fn bind(api: &Endpoint, name: &str, subjects: &[Value]) -> Result<()> {
    let path = format!("{RBAC}/namespaces/conf/rolebindings/{name}");
    api.patch(&path, &json!({"subjects": subjects})).await.map(drop)
}

fn readers() -> [Value; 3] {
    let account = json!({"kind": "ServiceAccount", "namespace": "conf", "name": "reader"});
    [group("readers"), group("proxied"), account]
}

fn user(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
}

fn group(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name})
}

/// A role and its binding, in a namespace or in the cluster.
async fn role(api: &Endpoint, namespace: Option<&str>, name: &str, rules: &Value, subjects: &[Value]) -> Result<()> {
    let (kind, paths) = match namespace {
        Some(namespace) => ("Role", ["roles", "rolebindings"].map(|of| format!("{RBAC}/namespaces/{namespace}/{of}"))),
        None => ("ClusterRole", ["clusterroles", "clusterrolebindings"].map(|of| format!("{RBAC}/{of}"))),
    };
    let (version, metadata) = ("rbac.authorization.k8s.io/v1", json!({"name": name}));
    api.create(&paths[0], &json!({"apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules})).await?;
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let binding = json!({
        "apiVersion": version, "kind": format!("{kind}Binding"), "metadata": metadata,
        "roleRef": reference, "subjects": subjects,
    });
    api.create(&paths[1], &binding).await.map(drop)
}
