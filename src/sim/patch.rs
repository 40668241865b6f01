//! The patch formats: JSON patch, merge patch, and a small part of strategic merge.

use serde_json::Value;

use crate::{definition::Definition, failure::Failure, write::unfit_patch};

#[derive(Clone, Debug)]
pub(crate) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    /// # Errors
    /// 415 for server-side apply and formats that the resource does not accept, 400 for a body that is not a patch.
    pub(crate) fn parse(definition: &Definition, content_type: &str, body: &[u8]) -> Result<Self, Failure> {
        let unreadable = |error: serde_json::Error| Failure::bad_request(format!("error decoding patch: {error}"));
        match content_type {
            "application/json-patch+json" => serde_json::from_slice(body).map(Self::Json).map_err(unreadable),
            "application/merge-patch+json" => serde_json::from_slice(body).map(Self::Merge).map_err(unreadable),
            "application/strategic-merge-patch+json" if !definition.custom => {
                serde_json::from_slice(body).map(Self::Strategic).map_err(unreadable)
            }
            _ if definition.custom => Err(Failure::unsupported_media_type(concat!(
                "application/json-patch+json, application/merge-patch+json ",
                "(the embedded server knows no server-side apply)"
            ))),
            _ => Err(Failure::unsupported_media_type(concat!(
                "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json ",
                "(the embedded server knows no server-side apply)"
            ))),
        }
    }

    pub(crate) fn apply(&self, object: &Value) -> Result<Value, Failure> {
        let mut patched = object.clone();
        match self {
            Self::Json(patch) => {
                json_patch::patch(&mut patched, patch).map_err(|error| unfit_patch(&error.to_string()))?;
            }
            Self::Merge(patch) => json_patch::merge(&mut patched, patch),
            Self::Strategic(patch) => merge_strategically(&mut patched, patch),
        }
        if patched.is_object() { Ok(patched) } else { Err(unfit_patch("nothing is left of it")) }
    }
}

/// Like a merge patch, but lists of named objects are merged by name, as most lists of built-in types are. Directives
/// other than `$patch: delete` are ignored.
fn merge_strategically(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    for (key, value) in fields.iter().filter(|(key, _)| !key.starts_with('$')) {
        if value.is_null() {
            target.as_object_mut().and_then(|target| target.shift_remove(key));
        } else if let (Some(items), Some(patches)) = (target[key].as_array_mut(), value.as_array())
            && patches.iter().chain(&*items).all(|item| item.get("name").is_some())
        {
            merge_named(items, patches);
        } else {
            merge_strategically(&mut target[key], value);
        }
    }
}

fn merge_named(items: &mut Vec<Value>, patches: &[Value]) {
    for patch in patches {
        let at = items.iter().position(|item| item["name"] == patch["name"]);
        match (at, patch.get("$patch").and_then(Value::as_str)) {
            (Some(at), Some("delete")) => drop(items.remove(at)),
            (Some(at), _) => merge_strategically(&mut items[at], patch),
            (None, Some("delete")) => {}
            (None, _) => {
                let mut item = Value::Null;
                merge_strategically(&mut item, patch);
                items.push(item);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strategic_merge_keeps_other_containers() {
        let object = json!({"a": {"x": 1}, "containers": [{"name": "c", "image": "1", "p": 1}, {"name": "d"}]});
        let patch = json!({"a": null, "$setElementOrder/containers": [{"name": "c"}], "list": [1],
            "containers": [{"name": "c", "image": "2"}, {"name": "d", "$patch": "delete"}, {"name": "e", "z": null}]});
        let patched = Patch::Strategic(patch).apply(&object).unwrap();
        let expected = json!({"containers": [{"name": "c", "image": "2", "p": 1}, {"name": "e"}], "list": [1]});
        assert_eq!(patched, expected);
    }
}
