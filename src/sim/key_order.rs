//! The order of an object's keys: that of the Go struct for built-in types, alphabetical for custom resources.
//!
//! For built-in types, the keys at the top and in the metadata are ordered, and the keys of Go maps are sorted; the
//! rest of an object keeps the order in which it was written.

use serde_json::{Map, Value};

/// Puts the keys of an object into the order in which the API server would print them.
pub(crate) fn arrange(object: &mut Value, custom: bool) {
    if custom {
        object.sort_all_objects();
        return;
    }
    let Some(fields) = object.as_object_mut() else { return };
    put_first(fields, TOP);
    arrange_nested(fields);
}

/// Puts the keys of metadata into the order of the Go struct, for any resource.
pub(crate) fn arrange_metadata(metadata: &mut Value) {
    let Some(fields) = metadata.as_object_mut() else { return };
    put_first(fields, METADATA);
    arrange_nested(fields);
}

fn arrange_nested(fields: &mut Map<String, Value>) {
    for (key, value) in fields.iter_mut() {
        match (key.as_str(), value) {
            ("fieldsV1", _) => {}
            (key, Value::Object(inner)) if GO_MAPS.contains(&key) => inner.sort_keys(),
            (key, Value::Object(inner)) => {
                if key == "metadata" {
                    put_first(inner, METADATA);
                }
                arrange_nested(inner);
            }
            (key, Value::Array(items)) => {
                for inner in items.iter_mut().filter_map(Value::as_object_mut) {
                    match key {
                        "managedFields" => put_first(inner, MANAGED_FIELDS),
                        "ownerReferences" => put_first(inner, OWNER_REFERENCE),
                        _ => {}
                    }
                    arrange_nested(inner);
                }
            }
            _ => {}
        }
    }
}

/// Moves the listed keys to the front, in that order; the others follow in their old order.
fn put_first(fields: &mut Map<String, Value>, order: &[&str]) {
    let mut arranged = Map::with_capacity(fields.len());
    for key in order {
        if let Some(value) = fields.get_mut(*key) {
            arranged.insert((*key).into(), value.take());
        }
    }
    for (key, value) in std::mem::take(fields) {
        if !order.contains(&key.as_str()) {
            arranged.insert(key, value);
        }
    }
    *fields = arranged;
}

/// One order serves all built-in types, since no two of them have the same keys in different orders.
const TOP: &[&str] = &[
    "kind",
    "apiVersion",
    "metadata",
    "immutable",
    "data",
    "binaryData",
    "stringData",
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "series",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
    "spec",
    "status",
];

const METADATA: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

const MANAGED_FIELDS: &[&str] =
    &["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];

const OWNER_REFERENCE: &[&str] = &["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

const GO_MAPS: &[&str] = &[
    "labels",
    "annotations",
    "data",
    "binaryData",
    "matchLabels",
    "nodeSelector",
    "limits",
    "requests",
    "capacity",
    "allocatable",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arranged(mut object: Value, custom: bool) -> String {
        arrange(&mut object, custom);
        object.to_string()
    }

    #[test]
    fn built_in_types_have_the_order_of_their_go_struct() {
        let pod = json!({
            "status": {}, "spec": {"z": 1, "a": {"limits": {"memory": "1", "cpu": "1"}}},
            "metadata": {"labels": {"b": "", "a": ""}, "uid": "u", "namespace": "n", "name": "p"},
            "apiVersion": "v1", "kind": "Pod",
        });
        assert_eq!(
            arranged(pod, false),
            concat!(
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"n","uid":"u","#,
                r#""labels":{"a":"","b":""}},"spec":{"z":1,"a":{"limits":{"cpu":"1","memory":"1"}}},"status":{}}"#
            )
        );
    }

    #[test]
    fn custom_resources_are_alphabetical_at_every_level() {
        let widget = json!({"kind": "W", "apiVersion": "v", "spec": {"b": [{"y": 1, "x": 2}], "a": 1}, "data": 1});
        assert_eq!(
            arranged(widget, true),
            r#"{"apiVersion":"v","data":1,"kind":"W","spec":{"a":1,"b":[{"x":2,"y":1}]}}"#
        );
    }
}
