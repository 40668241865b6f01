//! A list: envelope, `ListMeta`, items as upstream wrote them (read-path 4.1).

use bytes::Bytes;
use prost::Message as _;

use super::{
    envelope::{CLOSING, put_envelope_head},
    meta::ListMeta,
};
use crate::{
    apimachinery::MetaVersion,
    encode::ListPosition,
    store::{
        Object, Shape,
        wire::{bytes_len, put_bytes},
    },
};

/// What stands around the items of one resource's lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEnvelope {
    opening: Bytes,
    /// Fields of the list. They are written in the order of their numbers.
    metadata: u32,
    items: u32,
}

impl ListEnvelope {
    /// `PodList`, `v1`
    pub fn new(kind: &str, api_version: &str) -> Self {
        let opening = Bytes::copy_from_slice(Shape::protobuf(kind, api_version).object_opening());
        Self { opening, metadata: 1, items: 2 }
    }

    /// A list of `PartialObjectMetadata`. In `v1beta1` the items come before the metadata.
    pub fn partial(version: MetaVersion) -> Self {
        let list = Self::new("PartialObjectMetadataList", version.api_version());
        match version {
            MetaVersion::V1 => list,
            MetaVersion::V1beta1 => Self { metadata: 2, items: 1, ..list },
        }
    }

    /// The field number of the items, for [`put_item`] and its like.
    pub fn item_field(&self) -> u32 {
        self.items
    }

    /// Everything before the first item. `items_len` are the bytes of all items, tags and lengths included.
    pub fn head(&self, position: &ListPosition, items_len: usize) -> Bytes {
        let metadata = self.metadata(position);
        let mut head = Vec::with_capacity(self.opening.len() + metadata.len() + 12);
        put_envelope_head(&mut head, &self.opening, metadata.len() + items_len);
        if self.metadata < self.items {
            head.extend_from_slice(&metadata);
        }
        head.into()
    }

    /// Everything behind the last item.
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
        };
        let mut field = Vec::new();
        put_bytes(&mut field, self.metadata, &message.encode_to_vec());
        field
    }
}

/// Appends one object as an item.
pub fn put_item(items: &mut Vec<u8>, object: &Object, field: u32) {
    put_bytes(items, field, object.tail());
}

/// How many bytes [`put_item`] appends: lengths of lists are known before they are built.
pub fn item_len(object: &Object, field: u32) -> usize {
    bytes_len(field, object.tail().len())
}
