//! The discovery documents, in the aggregated and the older format.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::definition::{Definition, Version};

/// `/api`
pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis`
pub(crate) fn groups(definitions: &[Arc<Definition>]) -> Value {
    let groups: Vec<_> =
        by_group(definitions).into_iter().map(|(group, members)| group_entry(group, &members)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`
pub(crate) fn group(definitions: &[Arc<Definition>], group: &str) -> Option<Value> {
    let members = by_group(definitions).remove(group)?;
    let mut document = json!({"kind": "APIGroup", "apiVersion": "v1"});
    let entry = group_entry(group, &members);
    for (key, value) in entry.as_object()? {
        document[key] = value.clone();
    }
    Some(document)
}

/// `/api/v1`, `/apis/GROUP/VERSION`
pub(crate) fn resources(definitions: &[Arc<Definition>], group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for definition in definitions.iter().filter(|definition| definition.group == group) {
        let Some(version) = definition.version(version) else { continue };
        let names = json!({"name": definition.plural, "singularName": definition.singular});
        resources.push(resource(definition, names, definition.verbs()));
        if version.status {
            let names = json!({"name": format!("{}/status", definition.plural), "singularName": ""});
            resources.push(subresource(definition, names));
        }
    }
    if resources.is_empty() {
        return None;
    }
    let mut document = json!({"kind": "APIResourceList"});
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    document["groupVersion"] = if group.is_empty() { version.into() } else { format!("{group}/{version}").into() };
    document["resources"] = resources.into();
    Some(document)
}

/// `/api` or `/apis` as one document with everything.
pub(crate) fn aggregated(definitions: &[Arc<Definition>], core: bool) -> Value {
    let mut items = Vec::new();
    if core {
        let members: Vec<_> = definitions.iter().filter(|definition| definition.group.is_empty()).collect();
        items.push(json!({"metadata": {}, "versions": aggregated_versions(&members)}));
    } else {
        for (group, members) in by_group(definitions) {
            items.push(json!({"metadata": {"name": group}, "versions": aggregated_versions(&members)}));
        }
    }
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn by_group(definitions: &[Arc<Definition>]) -> BTreeMap<&str, Vec<&Arc<Definition>>> {
    let mut groups: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for definition in definitions.iter().filter(|definition| !definition.group.is_empty()) {
        groups.entry(&definition.group).or_default().push(definition);
    }
    groups
}

/// All versions that any member has, in the members' order.
fn version_names<'a>(members: &[&'a Arc<Definition>]) -> Vec<&'a str> {
    let mut names = Vec::new();
    for version in members.iter().flat_map(|definition| &definition.versions) {
        if !names.contains(&&*version.name) {
            names.push(&*version.name);
        }
    }
    names
}

fn group_entry(group: &str, members: &[&Arc<Definition>]) -> Value {
    let entry = |name: &&str| json!({"groupVersion": format!("{group}/{name}"), "version": name});
    let versions: Vec<_> = version_names(members).iter().map(entry).collect();
    json!({"name": group, "preferredVersion": versions[0], "versions": versions})
}

fn resource(definition: &Definition, mut document: Value, verbs: &[&str]) -> Value {
    document["namespaced"] = definition.namespaced.into();
    document["kind"] = definition.kind.as_str().into();
    document["verbs"] = verbs.into();
    add_names(definition, &mut document);
    document
}

fn subresource(definition: &Definition, mut document: Value) -> Value {
    document["namespaced"] = definition.namespaced.into();
    document["kind"] = definition.kind.as_str().into();
    document["verbs"] = STATUS_VERBS.into();
    document
}

fn aggregated_versions(members: &[&Arc<Definition>]) -> Value {
    let versions = version_names(members).into_iter().map(|name| {
        let resources: Vec<_> = members
            .iter()
            .filter_map(|definition| Some(aggregated_resource(definition, definition.version(name)?)))
            .collect();
        json!({"version": name, "resources": resources, "freshness": "Current"})
    });
    versions.collect()
}

fn aggregated_resource(definition: &Definition, version: &Version) -> Value {
    // Only custom resources state the group and version of their kind.
    let (group, of_version) =
        if definition.custom { (definition.group.as_str(), version.name.as_str()) } else { ("", "") };
    let kind = json!({"group": group, "version": of_version, "kind": definition.kind});
    let mut document = json!({
        "resource": definition.plural,
        "responseKind": kind,
        "scope": if definition.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": definition.singular,
        "verbs": definition.verbs(),
    });
    add_names(definition, &mut document);
    if version.status {
        document["subresources"] = json!([{"subresource": "status", "responseKind": kind, "verbs": STATUS_VERBS}]);
    }
    document
}

fn add_names(definition: &Definition, document: &mut Value) {
    for (key, names) in [("shortNames", &definition.short_names), ("categories", &definition.categories)] {
        if !names.is_empty() {
            document[key] = names.as_slice().into();
        }
    }
}

const STATUS_VERBS: &[&str] = &["get", "patch", "update"];
