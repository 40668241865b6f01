//! A list: envelope, `ListMeta`, items as upstream wrote them (read-path 4.1).

use bytes::Bytes;
use prost::Message as _;

use super::{
    envelope::{CLOSING, put_envelope_head},
    meta::{ListMeta, ShardInfo},
};
use crate::{
    encode::ListPosition,
    store::{
        Object, Shape,
        wire::{bytes_len, put_bytes, put_length},
    },
};
use base::apimachinery::MetaVersion;

/// The bytes around the items of one resource's lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEnvelope {
    opening: Bytes,
    /// Field numbers of the list. The fields are written in the order of their numbers.
    metadata: u32,
    items: u32,
}

impl ListEnvelope {
    /// For example `PodList` and `v1`.
    pub fn new(kind: &str, api_version: &str) -> Self {
        let opening = Bytes::copy_from_slice(Shape::protobuf(kind, api_version).object_opening());
        Self { opening, metadata: 1, items: 2 }
    }

    /// The envelope of a `PartialObjectMetadataList`. In `v1beta1` the items come before the metadata.
    pub fn partial(version: MetaVersion) -> Self {
        let list = Self::new("PartialObjectMetadataList", version.api_version());
        match version {
            MetaVersion::V1 => list,
            MetaVersion::V1beta1 => Self { metadata: 2, items: 1, ..list },
        }
    }

    /// The field number of the items, to be passed to [`put_item_opening`] and [`item_len`].
    pub fn item_field(&self) -> u32 {
        self.items
    }

    /// Everything before the first item. `items_len` is the total length of the items in bytes, including their tags
    /// and lengths.
    pub fn head(&self, position: &ListPosition, items_len: usize) -> Bytes {
        let metadata = self.metadata(position);
        let mut head = Vec::with_capacity(self.opening.len() + metadata.len() + 12);
        put_envelope_head(&mut head, &self.opening, metadata.len() + items_len);
        if self.metadata < self.items {
            head.extend_from_slice(&metadata);
        }
        head.into()
    }

    /// Everything after the last item.
    pub fn tail(&self, position: &ListPosition) -> Bytes {
        if self.metadata < self.items {
            return Bytes::from_static(CLOSING);
        }
        [&*self.metadata(position), CLOSING].concat().into()
    }

    fn metadata(&self, position: &ListPosition) -> Vec<u8> {
        let message = ListMeta {
            self_link: String::new(),
            resource_version: position.version.to_string(),
            r#continue: position.continue_token.clone().unwrap_or_default(),
            remaining_item_count: position.remaining_item_count.map(|count| i64::try_from(count).unwrap_or(i64::MAX)),
            shard_info: position.shards.as_ref().map(|shards| ShardInfo { selector: shards.to_string() }),
        };
        let mut field = Vec::new();
        put_bytes(&mut field, self.metadata, &message.encode_to_vec());
        field
    }
}

/// Appends what an item has in front of the object's tail.
pub fn put_item_opening(items: &mut Vec<u8>, object: &Object, field: u32) {
    put_length(items, field, object.tail_len());
}

/// The number of bytes of an item: the length of a list must be known before it is built.
pub fn item_len(object: &Object, field: u32) -> usize {
    bytes_len(field, object.tail_len())
}
