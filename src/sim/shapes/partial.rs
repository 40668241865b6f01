//! Objects without anything but their metadata.

use serde_json::{Value, json};

use super::order;

/// The metadata of an object, as an object of its own: with the keys in the order of the type, for all resources.
pub(super) fn partial(version: &str, object: &Value) -> Value {
    let mut metadata = object["metadata"].clone();
    order::arrange_metadata(&mut metadata);
    json!({"kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata})
}
