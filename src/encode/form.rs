//! In which form one request's objects are written: whole, or their metadata only.

use bytes::Bytes;

use super::partial::{NotPartial, Partial};
use super::{BookmarkTemplate, added, frame, object};
use crate::apimachinery::{GroupResource, Representation, View};
use crate::store::{Change, FrameKind, Object, Shape};

/// Writes the objects of a store for one request.
#[derive(Clone, Debug)]
pub enum Form {
    Whole(Shape),
    Partial(Representation, Partial),
}

impl Form {
    /// `None` where another store has to answer.
    pub fn new(representation: Representation, shape: &Shape, resource: &GroupResource) -> Option<Self> {
        match representation.view {
            View::Whole if representation.encoding == shape.encoding() => Some(Self::Whole(shape.clone())),
            View::Whole => None,
            View::Partial(version) => {
                let partial = Partial::new(representation.encoding, version, shape, resource)?;
                Some(Self::Partial(representation, partial))
            }
        }
    }

    /// One object as a get answers it.
    pub fn object(&self, one: &Object) -> Result<Bytes, NotPartial> {
        match self {
            Self::Whole(shape) => Ok(object(one, shape)),
            Self::Partial(_, partial) => partial.object(one),
        }
    }

    /// The synthetic event of an object that is there when a watch starts.
    pub fn added(&self, object: &Object) -> Result<Bytes, NotPartial> {
        match self {
            Self::Whole(shape) => Ok(added(object, shape)),
            Self::Partial(_, partial) => partial.added(object),
        }
    }

    /// The frame of `change` for watchers who see it as `kind`: made once, shared by all who see it so.
    pub fn frame(&self, change: &Change, kind: FrameKind) -> Result<Bytes, NotPartial> {
        match self {
            Self::Whole(shape) => Ok(change.frame(kind, |change| frame(change, kind, shape))),
            Self::Partial(form, partial) => change.frame_in(*form, kind, |change| partial.frame(change, kind)),
        }
    }

    /// What bookmarks look like, from the resource's own.
    pub fn bookmark(&self, template: &BookmarkTemplate) -> Result<BookmarkTemplate, NotPartial> {
        match (self, template) {
            (Self::Whole(_), template) => Ok(template.clone()),
            (Self::Partial(_, Partial::Json(partial)), BookmarkTemplate::Json(template)) => {
                partial.bookmark(template).map(BookmarkTemplate::Json)
            }
            (Self::Partial(_, Partial::Json(_)), BookmarkTemplate::Protobuf(_)) => Err(NotPartial),
            (Self::Partial(_, Partial::Protobuf(partial)), BookmarkTemplate::Protobuf(template)) => {
                Ok(BookmarkTemplate::Protobuf(partial.bookmark(Some(template))))
            }
            // A custom resource's: its metadata in protobuf is a zero value, too.
            (Self::Partial(_, Partial::Protobuf(partial)), BookmarkTemplate::Json(_)) => {
                Ok(BookmarkTemplate::Protobuf(partial.bookmark(None)))
            }
        }
    }
}
