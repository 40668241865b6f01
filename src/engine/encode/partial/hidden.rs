//! Annotations that an object has in its own form, but not in `PartialObjectMetadata`.
//!
//! The API server makes `PartialObjectMetadata` before it converts an object to the requested version, so annotations
//! that are written by that conversion are missing from it.

use std::{borrow::Cow, collections::BTreeMap, ops::Range};

use serde_json::value::RawValue;

use super::slice;
use crate::store::{Metadata, Object, wire::Fields};
use base::apimachinery::GroupResource;

/// The hidden annotations of a resource.
pub(super) fn annotations(resource: &GroupResource) -> &'static [&'static str] {
    match &*resource.resource {
        "daemonsets" => &["deprecated.daemonset.template.generation"],
        "horizontalpodautoscalers" => &[
            "autoscaling.alpha.kubernetes.io/behavior",
            "autoscaling.alpha.kubernetes.io/conditions",
            "autoscaling.alpha.kubernetes.io/current-metrics",
            "autoscaling.alpha.kubernetes.io/metrics",
        ],
        _ => &[],
    }
}

/// The metadata in JSON without the annotations in `hidden`.
pub(super) fn without_in_json(object: &Object, hidden: &[&str]) -> Option<Metadata> {
    let Metadata { bytes: metadata, version_at } = slice(object);
    let Some((range, annotations)) = left_in_json(&metadata, hidden)? else {
        return Some(Metadata { bytes: metadata, version_at });
    };
    let bytes = [&metadata[..range.start], annotations.as_bytes(), &metadata[range.end..]].concat();
    // `annotations` follow the version in the Go struct.
    (version_at.end <= range.start).then(|| Metadata { bytes: bytes.into(), version_at })
}

/// The position of the member `annotations` in the metadata, including the comma in front of it, and the member without
/// the hidden annotations; the inner `Option` is `None` if nothing is hidden.
pub(super) fn left_in_json(metadata: &[u8], hidden: &[&str]) -> Option<Option<(Range<usize>, String)>> {
    #[derive(serde::Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow)]
        annotations: Option<&'a RawValue>,
    }

    let Metadata { annotations: Some(value) } = serde_json::from_slice(metadata).ok()? else { return Some(None) };
    let mut annotations: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(value.get()).ok()?;
    let all = annotations.len();
    annotations.retain(|name, _| !hidden.contains(&&**name));
    if annotations.len() == all {
        return Some(None);
    }
    const NAME: &str = ",\"annotations\":";
    let value_at = value.get().as_ptr() as usize - metadata.as_ptr() as usize;
    let start = value_at.checked_sub(NAME.len()).filter(|start| metadata[*start..].starts_with(NAME.as_bytes()))?;
    // Names of annotations contain nothing to escape, and Go sorts them as bytes.
    let left: Vec<_> = annotations.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    let left = if left.is_empty() { String::new() } else { format!("{NAME}{{{}}}", left.join(",")) };
    Some(Some((start..value_at + value.get().len(), left)))
}

/// The field of `ObjectMeta`, and the field of the key in one of its entries.
const ANNOTATIONS: u32 = 12;
const KEY: u32 = 1;

/// The `ObjectMeta` message without the annotations in `hidden`.
pub(super) fn without_in_protobuf(object: &Object, hidden: &[&str]) -> Option<Metadata> {
    let Metadata { bytes: metadata, version_at } = slice(object);
    let mut bytes = Vec::with_capacity(metadata.len());
    for field in Fields::of(&metadata) {
        let field = field.ok()?;
        let is_hidden = field.number == ANNOTATIONS && {
            let mut entry = Fields::of(field.value.bytes().ok()?).flatten();
            let key = entry.find(|field| field.number == KEY).and_then(|key| key.value.text().ok());
            key.is_some_and(|key| hidden.contains(&key))
        };
        if !is_hidden {
            bytes.extend_from_slice(&metadata[field.whole]);
        } else if version_at.start > bytes.len() {
            return None;
        }
    }
    Some(Metadata { bytes: bytes.into(), version_at })
}
