//! `PartialObjectMetadata`: objects without spec and status (read-path 3.8, 4.1).
//!
//! The metadata is a slice of upstream's bytes where possible. This is impossible where the alphabetical JSON of a
//! custom resource has to be written in the order of the Go struct or as a message, and for types with annotations that
//! their metadata lacks. In these cases the metadata is made once per object, and kept with the object while it is in
//! use.

mod custom;
mod hidden;
mod json;
mod object_meta;
mod protobuf;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;

pub use json::PartialJson;
pub use protobuf::PartialProtobuf;

use crate::{
    encode::ListPosition,
    store::{Change, FrameKind, Metadata, Object, Shape, Thaw},
};
use base::apimachinery::{Encoding, GroupResource, MetaVersion, ResourceVersion};

/// The object's metadata is not what Kubernetes writes, so the request has to be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object's metadata is not valid")]
pub struct NotPartial;

/// Writes the objects of one resource as `PartialObjectMetadata`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Partial {
    Json(PartialJson),
    Protobuf(PartialProtobuf),
}

impl Partial {
    /// For a store of that shape. `None` if the request has to be answered from another store: the JSON of a built-in
    /// type cannot be converted to its protobuf, nor the other way round.
    pub fn new(encoding: Encoding, version: MetaVersion, shape: &Shape, resource: &GroupResource) -> Option<Self> {
        let source = Source::new(shape, resource);
        match (encoding, shape) {
            (Encoding::Json, Shape::Typed { .. } | Shape::Custom) => {
                Some(Self::Json(PartialJson::new(version, source)))
            }
            (Encoding::Protobuf, Shape::Protobuf { .. } | Shape::Custom) => {
                Some(Self::Protobuf(PartialProtobuf::new(version, source)))
            }
            (Encoding::Json, Shape::Protobuf { .. }) | (Encoding::Protobuf, Shape::Typed { .. }) => None,
        }
    }

    /// One object, as in the response to a get.
    pub fn object(&self, object: &Object) -> Result<Bytes, NotPartial> {
        let metadata = self.metadata(object)?;
        Ok(match self {
            Self::Json(json) => json.object(&metadata),
            Self::Protobuf(protobuf) => protobuf.object(&metadata),
        })
    }

    /// The objects joined as items of a list. In JSON every item follows a comma, even the first one.
    pub fn items<'a>(&self, objects: impl Iterator<Item = &'a Arc<Object>>) -> Result<Bytes, NotPartial> {
        let mut thaw = Thaw::default();
        self.joined(objects.map(|object| {
            object.thaw(&mut thaw);
            let metadata = self.metadata(object)?;
            // Few of a block's objects may be wanted, and a slice would keep the text of all.
            Ok(if object.is_compressed() {
                Metadata { bytes: Bytes::copy_from_slice(&metadata.bytes), ..metadata }
            } else {
                metadata
            })
        }))
    }

    /// The joined items of all objects of a leaf. The items are kept, and the metadata that they are made from is not.
    pub fn leaf_items(&self, objects: &[Arc<Object>]) -> Result<Bytes, NotPartial> {
        let mut thaw = Thaw::default();
        self.joined(objects.iter().map(|object| {
            object.thaw(&mut thaw);
            self.metadata_once(object)
        }))
    }

    /// The length of [`Self::leaf_items`] in bytes, if it is known before they are made. If it is known, making them
    /// succeeds.
    pub fn leaf_items_len(&self, objects: &[Arc<Object>]) -> Option<usize> {
        let is_slice = self.source() == Source::Slice;
        is_slice.then(|| objects.iter().map(|object| self.item_len(object.metadata_at().len())).sum())
    }

    fn joined(&self, metadata: impl Iterator<Item = Result<Metadata, NotPartial>>) -> Result<Bytes, NotPartial> {
        let metadata: Vec<_> = metadata.collect::<Result<_, _>>()?;
        let mut items = Vec::with_capacity(metadata.iter().map(|metadata| self.item_len(metadata.bytes.len())).sum());
        for metadata in &metadata {
            match self {
                Self::Json(json) => json.put_item(&mut items, metadata),
                Self::Protobuf(protobuf) => protobuf.put_item(&mut items, metadata),
            }
        }
        Ok(items.into())
    }

    fn item_len(&self, metadata_len: usize) -> usize {
        match self {
            Self::Json(json) => json.item_len(metadata_len),
            Self::Protobuf(protobuf) => protobuf.item_len(metadata_len),
        }
    }

    /// Everything before the first item of a list whose items have `items_len` bytes in total.
    pub fn head(&self, position: &ListPosition, items_len: usize) -> Bytes {
        match self {
            Self::Json(json) => json.head(position, items_len),
            Self::Protobuf(protobuf) => protobuf.list().head(position, items_len),
        }
    }

    /// Everything after the last item of that list.
    pub fn tail(&self, position: &ListPosition, items_len: usize) -> Bytes {
        match self {
            Self::Json(json) => json.tail(items_len),
            Self::Protobuf(protobuf) => protobuf.list().tail(position),
        }
    }

    /// The frame of `change` for watchers that see it as `kind`.
    pub fn frame(&self, change: &Change, kind: FrameKind) -> Result<Bytes, NotPartial> {
        let (name, object, version) = match kind {
            FrameKind::Added => ("ADDED", &change.object, None),
            FrameKind::Modified => ("MODIFIED", &change.object, None),
            FrameKind::Deleted => ("DELETED", &change.object, None),
            FrameKind::Left => ("DELETED", change.source(kind), Some(change.version)),
        };
        // The previous object is not part of later lists, and this frame is kept, so its metadata need not be.
        Ok(self.event(name, &self.metadata_once(object)?, version))
    }

    /// The length in bytes of what [`Self::added`] returns.
    pub fn added_len(&self, object: &Object) -> Result<usize, NotPartial> {
        let metadata = self.metadata(object)?.bytes.len();
        Ok(match self {
            Self::Json(json) => json.event_len("ADDED", metadata),
            Self::Protobuf(protobuf) => protobuf.event_len("ADDED", metadata),
        })
    }

    /// The synthetic ADDED event of an object that exists when a watch starts.
    pub fn added(&self, object: &Object) -> Result<Bytes, NotPartial> {
        Ok(self.event("ADDED", &self.metadata(object)?, None))
    }

    /// `version` replaces the object's own version if it is given.
    fn event(&self, kind: &str, metadata: &Metadata, version: Option<ResourceVersion>) -> Bytes {
        match self {
            Self::Json(json) => json.event(kind, metadata, version),
            Self::Protobuf(protobuf) => protobuf.event(kind, metadata, version),
        }
    }

    /// The object's metadata. If it is made, it is kept.
    fn metadata(&self, object: &Object) -> Result<Metadata, NotPartial> {
        let (source, encoding) = (self.source(), self.encoding());
        if source == Source::Slice {
            return Ok(slice(object));
        }
        object.derived(encoding, |object| source.make(object, encoding)).ok_or(NotPartial)
    }

    /// The object's metadata. If it is made, it is not kept.
    fn metadata_once(&self, object: &Object) -> Result<Metadata, NotPartial> {
        let (source, encoding) = (self.source(), self.encoding());
        object.derived_once(encoding, |object| source.make(object, encoding)).ok_or(NotPartial)
    }

    fn source(&self) -> Source {
        match self {
            Self::Json(json) => json.source(),
            Self::Protobuf(protobuf) => protobuf.source(),
        }
    }

    fn encoding(&self) -> Encoding {
        match self {
            Self::Json(_) => Encoding::Json,
            Self::Protobuf(_) => Encoding::Protobuf,
        }
    }
}

/// How an object's metadata is obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A slice of upstream's bytes.
    Slice,
    /// Upstream's bytes without these annotations.
    Hide(&'static [&'static str]),
    /// Made from a custom resource's JSON.
    Custom,
}

impl Source {
    fn new(shape: &Shape, resource: &GroupResource) -> Self {
        match (shape, hidden::annotations(resource)) {
            (Shape::Custom, _) => Self::Custom,
            (_, []) => Self::Slice,
            (_, hidden) => Self::Hide(hidden),
        }
    }

    fn make(self, object: &Object, encoding: Encoding) -> Option<Metadata> {
        match (self, encoding) {
            (Self::Slice, _) => Some(slice(object)),
            (Self::Hide(hidden), Encoding::Json) => hidden::without_in_json(object, hidden),
            (Self::Hide(hidden), Encoding::Protobuf) => hidden::without_in_protobuf(object, hidden),
            (Self::Custom, Encoding::Json) => custom::metadata(object),
            (Self::Custom, Encoding::Protobuf) => object_meta::metadata(object),
        }
    }

    /// The annotations that the metadata lacks.
    fn hidden(self) -> &'static [&'static str] {
        match self {
            Self::Hide(hidden) => hidden,
            Self::Slice | Self::Custom => &[],
        }
    }
}

/// The metadata as upstream wrote it.
fn slice(object: &Object) -> Metadata {
    let (metadata, version) = (object.metadata_at(), object.version_at());
    Metadata { bytes: object.metadata(), version_at: version.start - metadata.start..version.end - metadata.start }
}
