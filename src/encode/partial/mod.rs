//! `PartialObjectMetadata`: objects without spec and status (read-path 3.8, 4.1).
//!
//! What upstream wrote is sliced where it can be. It cannot where a custom resource's alphabetical JSON becomes
//! the order of the Go struct, or a message, and where a type writes annotations that its metadata does not have:
//! then the metadata is made once per object, and kept with it.

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
    apimachinery::{Encoding, GroupResource, MetaVersion},
    encode::ListPosition,
    store::{Change, Derived, FrameKind, Object, Shape},
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
        match self {
            Self::Json(json) => json.object(object),
            Self::Protobuf(protobuf) => protobuf.object(object),
        }
    }

    /// A whole list.
    pub fn list<'a>(
        &self,
        objects: impl Iterator<Item = &'a Arc<Object>>,
        position: &ListPosition,
    ) -> Result<Bytes, NotPartial> {
        let mut items = Vec::new();
        for object in objects {
            self.put_item(&mut items, object)?;
        }
        Ok([&*self.head(position, items.len()), &items, &*self.tail(position, items.len())].concat().into())
    }

    /// Appends an item of a list; in JSON behind a comma if it is not the first.
    pub fn put_item(&self, items: &mut Vec<u8>, object: &Object) -> Result<(), NotPartial> {
        match self {
            Self::Json(json) => json.put_item(items, object),
            Self::Protobuf(protobuf) => protobuf.put_item(items, object),
        }
    }

    /// How many bytes [`Self::put_item`] appends, without a comma.
    pub fn item_len(&self, object: &Object) -> Result<usize, NotPartial> {
        match self {
            Self::Json(json) => json.item_len(object),
            Self::Protobuf(protobuf) => protobuf.item_len(object),
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
        match self {
            Self::Json(json) => json.event(name, object, version),
            Self::Protobuf(protobuf) => protobuf.event(name, object, version),
        }
    }

    /// The synthetic event of an object that is there when a watch starts.
    pub fn added(&self, object: &Object) -> Result<Bytes, NotPartial> {
        match self {
            Self::Json(json) => json.event("ADDED", object, None),
            Self::Protobuf(protobuf) => protobuf.event("ADDED", object, None),
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
}

/// The metadata as upstream wrote it.
fn slice(object: &Object) -> Derived {
    let (metadata, version) = (object.metadata_at(), object.version_at());
    Derived { bytes: object.metadata(), version_at: version.start - metadata.start..version.end - metadata.start }
}
