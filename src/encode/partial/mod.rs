//! `PartialObjectMetadata`: objects without spec and status (read-path 3.8, 4.1).
//!
//! What upstream wrote is sliced where it can be. It cannot where a custom resource's alphabetical JSON becomes
//! the order of the Go struct, or a message, and where a type writes annotations that its metadata does not have:
//! then the metadata is made once per object, and kept with it for as long as it is asked for.

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
    apimachinery::{Encoding, GroupResource, MetaVersion, ResourceVersion},
    encode::ListPosition,
    store::{Change, FrameKind, Metadata, Object, Shape},
};

/// The object's metadata is not what Kubernetes writes: upstream has to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the metadata of an object is not that of Kubernetes")]
pub struct NotPartial;

/// One resource's objects as those see them who ask for their metadata only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Partial {
    Json(PartialJson),
    Protobuf(PartialProtobuf),
}

impl Partial {
    /// From a store of that shape. `None` where another store has to answer: the JSON of a built-in type is no
    /// source of its protobuf, nor the other way round.
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

    /// One object as a get answers it.
    pub fn object(&self, object: &Object) -> Result<Bytes, NotPartial> {
        let metadata = self.metadata(object)?;
        Ok(match self {
            Self::Json(json) => json.object(&metadata),
            Self::Protobuf(protobuf) => protobuf.object(&metadata),
        })
    }

    /// Objects as they follow each other in a list; in JSON each behind a comma, the first too.
    pub fn items<'a>(&self, objects: impl Iterator<Item = &'a Arc<Object>>) -> Result<Bytes, NotPartial> {
        self.joined(objects.map(|object| self.metadata(object)))
    }

    /// The same of all objects of a leaf, which is kept instead of what it is made from.
    pub fn leaf_items(&self, objects: &[Arc<Object>]) -> Result<Bytes, NotPartial> {
        self.joined(objects.iter().map(|object| self.metadata_once(object)))
    }

    /// How long [`Self::leaf_items`] are, if that is known before they are made; then they can be made.
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

    /// Everything before the first item of a list whose items have `items_len` bytes together.
    pub fn head(&self, position: &ListPosition, items_len: usize) -> Bytes {
        match self {
            Self::Json(json) => json.head(position, items_len),
            Self::Protobuf(protobuf) => protobuf.list().head(position, items_len),
        }
    }

    /// Everything behind the last item of such a list.
    pub fn tail(&self, position: &ListPosition, items_len: usize) -> Bytes {
        match self {
            Self::Json(json) => json.tail(items_len),
            Self::Protobuf(protobuf) => protobuf.list().tail(position),
        }
    }

    /// The frame of `change` for watchers who see it as `kind`.
    pub fn frame(&self, change: &Change, kind: FrameKind) -> Result<Bytes, NotPartial> {
        let (name, object, version) = match kind {
            FrameKind::Added => ("ADDED", &change.object, None),
            FrameKind::Modified => ("MODIFIED", &change.object, None),
            FrameKind::Deleted => ("DELETED", &change.object, None),
            FrameKind::Left => ("DELETED", change.before.as_ref().unwrap_or(&change.object), Some(change.version)),
        };
        // What was before is in nobody's list any more, and this frame is kept.
        Ok(self.event(name, &self.metadata_once(object)?, version))
    }

    /// The synthetic event of an object that is there when a watch starts.
    pub fn added(&self, object: &Object) -> Result<Bytes, NotPartial> {
        Ok(self.event("ADDED", &self.metadata(object)?, None))
    }

    /// `version` is put in the place of the object's own.
    fn event(&self, kind: &str, metadata: &Metadata, version: Option<ResourceVersion>) -> Bytes {
        match self {
            Self::Json(json) => json.event(kind, metadata, version),
            Self::Protobuf(protobuf) => protobuf.event(kind, metadata, version),
        }
    }

    /// The object's metadata; what had to be made is kept.
    fn metadata(&self, object: &Object) -> Result<Metadata, NotPartial> {
        let (source, encoding) = (self.source(), self.encoding());
        if source == Source::Slice {
            return Ok(slice(object));
        }
        object.derived(encoding, |object| source.make(object, encoding)).ok_or(NotPartial)
    }

    /// The same; what has to be made is not kept.
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

/// Where an object's metadata comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// It is as upstream wrote it.
    Slice,
    /// It is that, without these annotations.
    Hide(&'static [&'static str]),
    /// It is made from a custom resource's JSON.
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

    /// The annotations that the metadata does not have.
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
