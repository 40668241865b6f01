//! CustomResourceDefinitions: the resources that they define, and the status that they get.

use serde_json::{Value, json};

use crate::definition::{Definition, Version};

/// The resource that a CustomResourceDefinition describes. `None` if it lacks required fields.
pub(crate) fn definition(crd: &Value) -> Option<Definition> {
    let spec = crd.get("spec")?;
    let names = spec.get("names")?;
    let name = |key: &str| names.get(key).and_then(Value::as_str).map(str::to_owned);
    let list = |key: &str| -> Vec<String> {
        let texts = names.get(key).and_then(Value::as_array).into_iter().flatten();
        texts.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let group = spec.get("group")?.as_str()?.to_owned();
    let kind = name("kind")?;
    let mut served: Vec<_> = spec.get("versions")?.as_array()?.iter().filter(|version| is(version, "served")).collect();
    served.sort_by_key(|version| !is(version, "storage"));
    let versions: Vec<_> = served.into_iter().map(|served| version(served, &group, &kind)).collect();
    if versions.is_empty() {
        return None;
    }
    Some(Definition {
        singular: name("singular").unwrap_or_else(|| kind.to_lowercase()),
        list_kind: name("listKind").unwrap_or_else(|| format!("{kind}List")),
        plural: name("plural")?,
        short_names: list("shortNames"),
        categories: list("categories"),
        namespaced: spec.get("scope")?.as_str()? == "Namespaced",
        custom: true,
        group,
        kind,
        versions,
    })
}

/// Adds what the API server's own controllers write into a new definition.
pub(crate) fn accept(crd: &mut Value, now: &str) {
    let names = crd["spec"]["names"].clone();
    let stored = crd["spec"]["versions"].as_array().into_iter().flatten().find(|version| is(version, "storage"));
    let stored: Vec<_> = stored.and_then(|version| version.get("name")).into_iter().cloned().collect();
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message,
        })
    };
    crd["status"] = json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": names,
        "storedVersions": stored,
    });
}

fn version(served: &Value, group: &str, kind: &str) -> Version {
    let name = served.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let paths = served.get("selectableFields").and_then(Value::as_array).into_iter().flatten();
    let paths = paths.filter_map(|field| field.get("jsonPath")?.as_str());
    let warning = served.get("deprecationWarning").and_then(Value::as_str);
    let deprecation = is(served, "deprecated").then(|| match warning {
        Some(text) => text.to_owned(),
        None => format!("{group}/{name} {kind} is deprecated"),
    });
    Version {
        status: served.pointer("/subresources/status").is_some(),
        selectable: paths.map(|path| path.trim_start_matches('.').to_owned()).collect(),
        deprecation,
        name,
    }
}

fn is(version: &Value, flag: &str) -> bool {
    version.get(flag).and_then(Value::as_bool).unwrap_or(false)
}
