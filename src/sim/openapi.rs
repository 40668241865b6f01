//! Just enough OpenAPI v3 for kubectl to leave validation to the server: which resources support `fieldValidation`.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::definition::Definition;

/// `/openapi/v3`: the locations of the documents of all versions.
pub(crate) fn index(definitions: &[Arc<Definition>]) -> Value {
    let mut paths = Map::new();
    for definition in definitions {
        for version in &definition.versions {
            let path = version_path(&definition.group, &version.name);
            let location = format!("/openapi/v3/{path}");
            paths.insert(path, json!({"serverRelativeURL": location}));
        }
    }
    json!({"paths": paths})
}

/// `/openapi/v3/api/v1`, `/openapi/v3/apis/GROUP/VERSION`
pub(crate) fn document(definitions: &[Arc<Definition>], group: &str, version: &str) -> Option<Value> {
    let mut paths = Map::new();
    for definition in definitions.iter().filter(|definition| definition.group == group) {
        if definition.version(version).is_none() {
            continue;
        }
        let namespace = if definition.namespaced { "namespaces/{namespace}/" } else { "" };
        let path = format!("/{}/{namespace}{}/{{name}}", version_path(group, version), definition.plural);
        let parameter = json!({"name": "fieldValidation", "in": "query", "schema": {"type": "string"}});
        let kind = json!({"group": group, "version": version, "kind": definition.kind});
        let patch = json!({"parameters": [parameter], "responses": {}, "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": kind});
        paths.insert(path, json!({"patch": patch}));
    }
    if paths.is_empty() {
        return None;
    }
    let info = json!({"title": "kube-fanout-sim", "version": crate::GIT_VERSION});
    Some(json!({"openapi": "3.0.0", "info": info, "paths": paths}))
}

fn version_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}
