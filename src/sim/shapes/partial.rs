//! Objects with only their metadata.

use serde_json::{Value, json};

use crate::key_order;

/// The metadata of an object as a `PartialObjectMetadata`, with the keys in the order of the Go struct for all
/// resources.
pub(super) fn partial(version: &str, object: &Value) -> Value {
    let mut metadata = object["metadata"].clone();
    key_order::arrange_metadata(&mut metadata);
    json!({"kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata})
}
