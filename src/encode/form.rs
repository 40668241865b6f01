//! In which form one request's objects are written: whole, or their metadata only.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    BookmarkTemplate, deflated_items, frame, list, object,
    partial::{NotPartial, Partial},
    put_added,
};
use crate::{
    apimachinery::{Encoding, GroupResource, Representation, View},
    store::{Change, Deflated, FrameKind, Leaf, Object, Shape},
};

/// Bytes of whole objects that are joined at a time, but for the largest ones.
const PIECE: usize = 64 << 10;

/// Writes the objects of a store for one request.
#[derive(Clone, Debug)]
pub enum Form {
    Whole(Shape),
    /// Shared: every watch has its form for as long as it lasts, few have this one.
    Partial(Representation, Arc<Partial>),
}

impl Form {
    /// `None` where another store has to answer.
    pub fn new(representation: Representation, shape: &Shape, resource: &GroupResource) -> Option<Self> {
        match representation.view {
            View::Whole if representation.encoding == shape.encoding() => Some(Self::Whole(shape.clone())),
            // A Table is made of rows, each of which has a form.
            View::Whole | View::Table(_) => None,
            View::Partial(version) => {
                let partial = Partial::new(representation.encoding, version, shape, resource)?;
                Some(Self::Partial(representation, Arc::new(partial)))
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

    /// Objects as they follow each other in a list.
    pub fn items<'a>(&self, objects: impl Iterator<Item = &'a Arc<Object>> + Clone) -> Result<Bytes, NotPartial> {
        let items = match self {
            Self::Whole(shape) => list::items(objects, shape),
            Self::Partial(_, partial) => partial.items(objects)?,
        };
        Ok(if items.is_empty() { items } else { items.slice(self.separator_len()..) })
    }

    /// Bytes that separate an item from the one before.
    pub fn separator_len(&self) -> usize {
        match self.representation().encoding {
            Encoding::Json => 1,
            Encoding::Protobuf => 0,
        }
    }

    /// A leaf's items from number `at` on, as many as are sent at a time, and the number of the next one. In JSON each is
    /// behind a comma, the first too: they then follow each other as they are, and the first of a list is cut by
    /// [`Self::separator_len`].
    ///
    /// Those of metadata are made once, and shared by all lists. Whole objects are joined for each list anew: that costs
    /// little beside their encryption, since what was just joined is still near, and to keep it would cost the memory of
    /// all objects again.
    pub fn leaf_piece(&self, leaf: &Leaf, at: usize) -> Result<(Bytes, usize), NotPartial> {
        match self {
            Self::Whole(shape) => {
                let next = at + list::items_within(&leaf.objects()[at..], shape, PIECE);
                Ok((list::items(leaf.objects()[at..next].iter(), shape), next))
            }
            Self::Partial(..) => Ok((self.leaf_items(leaf)?, leaf.objects().len())),
        }
    }

    /// All of a leaf's items, kept for the lists to come.
    pub fn leaf_items(&self, leaf: &Leaf) -> Result<Bytes, NotPartial> {
        leaf.joined(self.representation(), |objects| self.join(objects)).ok_or(NotPartial)
    }

    /// All of a leaf's items, if somebody has them, or made for this once.
    pub fn leaf_items_once(&self, leaf: &Leaf) -> Result<Bytes, NotPartial> {
        leaf.joined_now(self.representation()).or_else(|| self.join(leaf.objects())).ok_or(NotPartial)
    }

    /// How long they are, if that is known before they are made; then they can be made.
    pub fn leaf_items_len(&self, leaf: &Leaf) -> Option<usize> {
        let computed = match self {
            Self::Whole(shape) => Some(list::items_len(leaf, shape)),
            Self::Partial(_, partial) => partial.leaf_items_len(leaf.objects()),
        };
        let form = self.representation();
        let joined = || Some(leaf.joined_now(form)?.len());
        let deflated = || Some(usize::try_from(leaf.deflated_now(form)?.length).ok()? + self.separator_len());
        computed.or_else(joined).or_else(deflated)
    }

    /// A leaf's items compressed, the first of them without its comma. Shared by all lists; `made` is told if they
    /// had to be made.
    pub fn deflated_leaf(&self, leaf: &Leaf, made: impl FnOnce()) -> Result<Deflated, NotPartial> {
        let deflate = |leaf: &Leaf| {
            made();
            let items = self.leaf_items_once(leaf).ok()?.slice(self.separator_len()..);
            Some(deflated_items(&items))
        };
        leaf.deflated(self.representation(), deflate).ok_or(NotPartial)
    }

    fn join(&self, objects: &[Arc<Object>]) -> Option<Bytes> {
        match self {
            Self::Whole(shape) => Some(list::items(objects.iter(), shape)),
            Self::Partial(_, partial) => partial.leaf_items(objects).ok(),
        }
    }

    /// What is written.
    pub fn representation(&self) -> Representation {
        match self {
            Self::Whole(shape) => Representation { encoding: shape.encoding(), view: View::Whole },
            Self::Partial(representation, _) => *representation,
        }
    }

    /// The synthetic event of an object that is there when a watch starts, put behind others.
    pub fn put_added(&self, object: &Object, events: &mut Vec<u8>) -> Result<(), NotPartial> {
        match self {
            Self::Whole(shape) => put_added(events, object, shape),
            Self::Partial(_, partial) => events.extend_from_slice(&partial.added(object)?),
        }
        Ok(())
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
        let Self::Partial(_, partial) = self else { return Ok(template.clone()) };
        match (&**partial, template) {
            (Partial::Json(partial), BookmarkTemplate::Json(template)) => {
                partial.bookmark(template).map(BookmarkTemplate::Json)
            }
            (Partial::Json(_), BookmarkTemplate::Protobuf(_)) => Err(NotPartial),
            (Partial::Protobuf(partial), BookmarkTemplate::Protobuf(template)) => {
                Ok(BookmarkTemplate::Protobuf(partial.bookmark(Some(template))))
            }
            // A custom resource's: its metadata in protobuf is a zero value, too.
            (Partial::Protobuf(partial), BookmarkTemplate::Json(_)) => {
                Ok(BookmarkTemplate::Protobuf(partial.bookmark(None)))
            }
        }
    }
}
