//! A list: head, items as upstream wrote them, tail (read-path 4.1).

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    apimachinery::{GroupVersionResource, ResourceVersion},
    store::{Object, Shape},
};

/// What stands around the items of one resource's lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEnvelope {
    /// `PodList`
    kind: String,
    /// `v1`, `apps/v1`
    api_version: String,
    custom: bool,
}

/// What the metadata of a list says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPosition {
    pub version: ResourceVersion,
    /// The token that the next page is asked for with.
    pub continue_token: Option<String>,
    pub remaining_item_count: Option<u64>,
}

impl ListEnvelope {
    pub fn new(kind: impl Into<String>, resource: &GroupVersionResource, shape: &Shape) -> Self {
        Self { kind: kind.into(), api_version: resource.api_version(), custom: *shape == Shape::Custom }
    }

    /// Everything before the first item.
    pub fn head(&self, position: &ListPosition) -> Bytes {
        let (kind, api_version) = (&self.kind, &self.api_version);
        if self.custom {
            return format!("{{\"apiVersion\":\"{api_version}\",\"items\":[").into();
        }
        let ListPosition { version, continue_token, remaining_item_count } = position;
        let token = continue_token.as_ref().map_or(String::new(), |token| format!(",\"continue\":\"{token}\""));
        let rest = remaining_item_count.map_or(String::new(), |count| format!(",\"remainingItemCount\":{count}"));
        format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{\"resourceVersion\":\"{version}\"{token}{rest}}},\"items\":["
        )
        .into()
    }

    /// Everything behind the last item.
    pub fn tail(&self, position: &ListPosition) -> Bytes {
        if !self.custom {
            return Bytes::from_static(b"]}\n");
        }
        let ListPosition { version, continue_token, remaining_item_count } = position;
        let token = continue_token.as_deref().unwrap_or_default();
        let rest = remaining_item_count.map_or(String::new(), |count| format!(",\"remainingItemCount\":{count}"));
        let kind = &self.kind;
        format!("],\"kind\":\"{kind}\",\"metadata\":{{\"continue\":\"{token}\"{rest},\"resourceVersion\":\"{version}\"}}}}\n")
            .into()
    }
}

/// The items of a list with commas between them.
pub fn joined<'a>(objects: impl Iterator<Item = &'a Arc<Object>> + Clone, shape: &Shape) -> Bytes {
    let opening = shape.item_opening();
    let length = objects.clone().map(|object| object.tail().len() + opening.len() + 1).sum();
    let mut items = Vec::with_capacity(length);
    for object in objects {
        if !items.is_empty() {
            items.push(b',');
        }
        items.extend_from_slice(opening);
        items.extend_from_slice(object.tail());
    }
    items.into()
}

/// A leaf's items in pieces, each item behind a comma, the first too: leaves then follow each other as they are.
pub fn item_pieces<'a>(objects: &'a [Arc<Object>], shape: &'a Shape) -> impl Iterator<Item = &'a [u8]> + Clone {
    objects.iter().flat_map(|object| [b",", shape.item_opening(), object.tail()])
}

/// A leaf's [`item_pieces`], joined.
pub fn leaf_items(objects: &[Arc<Object>], shape: &Shape) -> Bytes {
    let pieces = item_pieces(objects, shape);
    let mut items = Vec::with_capacity(pieces.clone().map(<[u8]>::len).sum());
    for piece in pieces {
        items.extend_from_slice(piece);
    }
    items.into()
}

/// One object as a get answers it, newline included.
pub fn object(object: &Object, shape: &Shape) -> Bytes {
    [shape.object_opening(), object.tail(), b"\n"].concat().into()
}
