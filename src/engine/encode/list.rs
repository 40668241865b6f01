//! A list: head, items as upstream wrote them, tail (read-path 4.1).

use std::sync::Arc;

use bytes::Bytes;

use super::{partial::Partial, protobuf};
use crate::store::{Leaf, Object, Shape, Thaw};
use base::apimachinery::{Encoding, GroupVersionResource, ResourceVersion, ShardSelector};

/// The bytes around the items of one resource's lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListEnvelope {
    Json(JsonList),
    Protobuf(protobuf::ListEnvelope),
    /// The envelope of a `PartialObjectMetadataList`.
    Partial(Arc<Partial>),
}

impl ListEnvelope {
    /// `kind` is the kind of the list, for example `PodList`.
    pub fn new(kind: impl Into<String>, resource: &GroupVersionResource, shape: &Shape) -> Self {
        let (kind, api_version) = (kind.into(), resource.api_version());
        match shape {
            Shape::Protobuf { .. } => Self::Protobuf(protobuf::ListEnvelope::new(&kind, &api_version)),
            Shape::Typed { .. } => Self::Json(JsonList { kind, api_version, custom: false }),
            Shape::Custom => Self::Json(JsonList { kind, api_version, custom: true }),
        }
    }

    /// Everything before the first item. `items_len` is the total length of the items in bytes, which a protobuf list
    /// states at its start; a JSON list only needs to know whether it is zero.
    pub fn head(&self, position: &ListPosition, items_len: usize) -> Bytes {
        match self {
            Self::Json(list) => list.head(position),
            Self::Protobuf(list) => list.head(position, items_len),
            Self::Partial(partial) => partial.head(position, items_len),
        }
    }

    /// Everything after the last item of that list.
    pub fn tail(&self, position: &ListPosition, items_len: usize) -> Bytes {
        match self {
            Self::Json(list) => list.tail(position),
            Self::Protobuf(list) => list.tail(position),
            Self::Partial(partial) => partial.tail(position, items_len),
        }
    }
}

/// The metadata of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPosition {
    pub version: ResourceVersion,
    /// The token of the next page; `None` on the last page.
    pub continue_token: Option<String>,
    pub remaining_item_count: Option<u64>,
    /// The shards that were selected, for the lists that say so: those of whole objects of built-in types (read-path
    /// 5.5).
    pub shards: Option<ShardSelector>,
}

impl ListPosition {
    /// The position of a whole collection.
    pub fn of(version: ResourceVersion) -> Self {
        Self { version, continue_token: None, remaining_item_count: None, shards: None }
    }

    /// The metadata of a list that is written in the order of the Go struct.
    pub(super) fn list_meta(&self) -> String {
        let Self { version, continue_token, remaining_item_count, shards } = self;
        let token = continue_token.as_ref().map_or(String::new(), |token| format!(",\"continue\":\"{token}\""));
        let rest = remaining_item_count.map_or(String::new(), |count| format!(",\"remainingItemCount\":{count}"));
        let info = |shards| format!(",\"shardInfo\":{{\"selector\":\"{shards}\"}}");
        let shards = shards.as_ref().map_or(String::new(), info);
        format!("{{\"resourceVersion\":\"{version}\"{token}{rest}{shards}}}")
    }
}

/// The envelope of a list in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonList {
    /// For example `PodList`.
    kind: String,
    /// For example `v1` or `apps/v1`.
    api_version: String,
    custom: bool,
}

impl JsonList {
    /// Everything before the first item.
    fn head(&self, position: &ListPosition) -> Bytes {
        let (kind, api_version) = (&self.kind, &self.api_version);
        if self.custom {
            return format!("{{\"apiVersion\":\"{api_version}\",\"items\":[").into();
        }
        let metadata = position.list_meta();
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[").into()
    }

    /// Everything after the last item.
    fn tail(&self, position: &ListPosition) -> Bytes {
        if !self.custom {
            return Bytes::from_static(b"]}\n");
        }
        let ListPosition { version, continue_token, remaining_item_count, .. } = position;
        let token = continue_token.as_deref().unwrap_or_default();
        let rest = remaining_item_count.map_or(String::new(), |count| format!(",\"remainingItemCount\":{count}"));
        let kind = &self.kind;
        let metadata = format!("{{\"continue\":\"{token}\"{rest},\"resourceVersion\":\"{version}\"}}");
        format!("],\"kind\":\"{kind}\",\"metadata\":{metadata}}}\n").into()
    }
}

/// The objects joined as items of a list. In JSON every item follows a comma, even the first one.
pub(super) fn items<'a>(
    objects: impl Iterator<Item = &'a Arc<Object>> + Clone,
    shape: &Shape,
    thaw: &mut Thaw,
) -> Bytes {
    let mut items = Vec::with_capacity(objects.clone().map(|object| item_len(object, shape)).sum());
    for object in objects {
        object.thaw(thaw);
        put_item(&mut items, object, shape);
    }
    items.into()
}

/// The number of objects from the start whose items have at most `bytes` bytes in total.
pub(super) fn items_within<'a>(objects: impl Iterator<Item = &'a Arc<Object>>, shape: &Shape, bytes: usize) -> usize {
    let mut length = 0;
    let fits = |object: &&'a Arc<Object>| {
        length += item_len(object, shape);
        length <= bytes
    };
    objects.take_while(fits).count()
}

/// The length of the [`items`] of a leaf in bytes. In JSON computed without visiting the objects.
pub(super) fn items_len(leaf: &Leaf, shape: &Shape) -> usize {
    match shape.encoding() {
        Encoding::Json => leaf.bytes() + leaf.objects().len() * (1 + shape.item_opening().len()),
        Encoding::Protobuf => leaf.objects().iter().map(|object| item_len(object, shape)).sum(),
    }
}

/// What comes before an object's tail in the [`items`].
pub(super) fn item_opening(object: &Object, shape: &Shape) -> Bytes {
    let mut opening = Vec::new();
    put_item_opening(&mut opening, object, shape);
    opening.into()
}

fn put_item(items: &mut Vec<u8>, object: &Object, shape: &Shape) {
    put_item_opening(items, object, shape);
    items.extend_from_slice(&object.tail());
}

fn put_item_opening(items: &mut Vec<u8>, object: &Object, shape: &Shape) {
    match shape.encoding() {
        Encoding::Json => {
            items.push(b',');
            items.extend_from_slice(shape.item_opening());
        }
        Encoding::Protobuf => protobuf::put_item_opening(items, object, protobuf::LIST_ITEMS),
    }
}

pub(super) fn item_len(object: &Object, shape: &Shape) -> usize {
    match shape.encoding() {
        Encoding::Json => 1 + shape.item_opening().len() + object.tail_len(),
        Encoding::Protobuf => protobuf::item_len(object, protobuf::LIST_ITEMS),
    }
}

/// One object, as in the response to a get; in JSON with its newline.
pub fn object(object: &Object, shape: &Shape) -> Bytes {
    match shape.encoding() {
        Encoding::Json => [shape.object_opening(), &object.tail(), b"\n"].concat().into(),
        Encoding::Protobuf => protobuf::object(object, shape),
    }
}

/// A Status, as in the response to a get. `status` is its JSON, whatever the encoding.
pub fn status(status: Bytes, encoding: Encoding) -> Bytes {
    match encoding {
        Encoding::Json => status,
        Encoding::Protobuf => protobuf::status(&status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Schema;

    #[derive(serde::Deserialize)]
    struct Recorded<'a> {
        #[serde(borrow)]
        items: Vec<&'a serde_json::value::RawValue>,
    }

    /// Two ranges of the page of shards that a server with `ShardedListAndWatch` sent.
    #[test]
    fn pages_of_shards_equal_those_of_upstream() {
        let built_in = include_bytes!("../../../tests/data/golden/v1.36/shards/configmaps.json");
        let custom = include_bytes!("../../../tests/data/golden/v1.36/shards/widgets.json");
        let resource = |group: &str, resource: &str| GroupVersionResource {
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
        };
        let range = |start, end| format!("shardRange(object.metadata.uid, '0x{start}', '0x{end}')");
        let low = range("0000000000000000", "8000000000000000");
        let shards = format!("{low}||{}", range("ff00000000000000", "10000000000000000"));
        let shards = ShardSelector::parse(&shards).unwrap();
        for (page, kind, resource, shape, token, rest) in [
            (
                &built_in[..],
                "ConfigMapList",
                resource("", "configmaps"),
                Shape::typed("ConfigMap", "v1"),
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzQ5LCJzdGFydCI6Ii9jNFx1MDAwMCJ9",
                3,
            ),
            (
                &custom[..],
                "WidgetList",
                resource("x.io", "widgets"),
                Shape::Custom,
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzQ5LCJzdGFydCI6Ii9kZWZhdWx0L3cxXHUwMDAwIn0",
                2,
            ),
        ] {
            let envelope = ListEnvelope::new(kind, &resource, &shape);
            let schema = Schema::new(shape, Vec::new());
            let recorded: Recorded<'_> = serde_json::from_slice(page).unwrap();
            let read = |item: &&serde_json::value::RawValue| {
                Arc::new(Object::from_item(Bytes::copy_from_slice(item.get().as_bytes()), &schema).unwrap())
            };
            let objects: Vec<_> = recorded.items.iter().map(read).collect();
            assert!(objects.iter().all(|object| object.is_in(&shards)));
            let position = ListPosition {
                continue_token: Some(token.to_owned()),
                remaining_item_count: Some(rest),
                shards: Some(shards.clone()),
                ..ListPosition::of(ResourceVersion::new(349).unwrap())
            };
            let items = items(objects.iter(), &schema.shape, &mut Thaw::default());
            let list = [&*envelope.head(&position, items.len()), &items[1..], &envelope.tail(&position, items.len())];
            assert_eq!(String::from_utf8(list.concat()).unwrap().as_bytes(), page, "{kind}");
        }
    }
}
