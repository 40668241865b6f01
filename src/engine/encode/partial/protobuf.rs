//! `PartialObjectMetadata` in protobuf: a message with an object's `ObjectMeta` and nothing else.

use std::borrow::Cow;

use bytes::Bytes;

use super::Source;
use crate::{
    encode::protobuf::{self, BookmarkTemplate, ListEnvelope},
    store::{
        Metadata, Shape,
        wire::{bytes_len, put_bytes, put_length},
    },
};
use base::apimachinery::{MetaVersion, ResourceVersion};

/// Writes the objects of one resource in protobuf, without spec and status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialProtobuf {
    version: MetaVersion,
    source: Source,
    shape: Shape,
    list: ListEnvelope,
}

/// The field of every object, and the field of its `ObjectMeta`.
const METADATA: u32 = 1;
const RESOURCE_VERSION: u32 = 6;

impl PartialProtobuf {
    pub(super) fn new(version: MetaVersion, source: Source) -> Self {
        let shape = Shape::protobuf("PartialObjectMetadata", version.api_version());
        Self { version, source, shape, list: ListEnvelope::partial(version) }
    }

    pub(super) fn list(&self) -> &ListEnvelope {
        &self.list
    }

    pub(super) fn source(&self) -> Source {
        self.source
    }

    pub(super) fn object(&self, metadata: &Metadata) -> Bytes {
        protobuf::envelope(self.shape.object_opening(), &message(&metadata.bytes))
    }

    pub(super) fn put_item(&self, items: &mut Vec<u8>, metadata: &Metadata) {
        put_length(items, self.list.item_field(), bytes_len(METADATA, metadata.bytes.len()));
        put_bytes(items, METADATA, &metadata.bytes);
    }

    pub(super) fn item_len(&self, metadata_len: usize) -> usize {
        bytes_len(self.list.item_field(), bytes_len(METADATA, metadata_len))
    }

    /// The bookmarks of watches on metadata only, derived from the resource's own. `template` is `None` for a resource
    /// that upstream only has in JSON.
    pub fn bookmark(&self, template: Option<&BookmarkTemplate>) -> BookmarkTemplate {
        template.map_or_else(
            || BookmarkTemplate::partial_zero(self.version),
            |template| template.partial(self.version, self.source.hidden()),
        )
    }

    /// The length in bytes of what [`Self::event`] returns for an object with its own version.
    pub(super) fn event_len(&self, kind: &str, metadata_len: usize) -> usize {
        protobuf::event_len(kind, self.shape.object_opening(), bytes_len(METADATA, metadata_len))
    }

    /// `version` replaces the object's own version if it is given.
    pub(super) fn event(&self, kind: &str, metadata: &Metadata, version: Option<ResourceVersion>) -> Bytes {
        let metadata = version.map_or(Cow::Borrowed(&*metadata.bytes), |version| with_version(metadata, version));
        protobuf::event(kind, self.shape.object_opening(), &message(&metadata))
    }
}

fn message(metadata: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(bytes_len(METADATA, metadata.len()));
    put_bytes(&mut message, METADATA, metadata);
    message
}

fn with_version(Metadata { bytes, version_at }: &Metadata, version: ResourceVersion) -> Cow<'_, [u8]> {
    let mut metadata = bytes[..version_at.end - bytes_len(RESOURCE_VERSION, version_at.len())].to_vec();
    put_bytes(&mut metadata, RESOURCE_VERSION, version.to_string().as_bytes());
    metadata.extend_from_slice(&bytes[version_at.end..]);
    metadata.into()
}
