//! The form in which the objects of one request are written: whole, or only their metadata.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    BookmarkTemplate, added_len, deflated_items, frame, list, object,
    partial::{NotPartial, Partial},
    put_added,
};
use crate::store::{Change, Deflated, FrameKind, Leaf, Object, Shape, Thaw};
use base::apimachinery::{Encoding, GroupResource, Representation, View};

/// The maximum number of bytes of whole objects that are joined at a time. A larger object is not copied.
const PIECE: usize = 64 << 10;

/// A part of a leaf's items.
#[derive(Debug)]
pub struct LeafChunk {
    pub bytes: Bytes,
    /// What follows: bytes of a large object that the store holds, too. Usually empty.
    pub shared: Bytes,
    /// The number of the item after it.
    pub next: usize,
}

/// Writes the objects of a store for one request.
#[derive(Clone, Debug)]
pub enum Form {
    Whole(Shape),
    /// Shared to keep `Form` small: every watch holds a form as long as it lasts, and few of them use this variant.
    Partial(Representation, Arc<Partial>),
}

impl Form {
    /// `None` if the request has to be answered from another store.
    pub fn new(representation: Representation, shape: &Shape, resource: &GroupResource) -> Option<Self> {
        match representation.view {
            View::Whole if representation.encoding == shape.encoding() => Some(Self::Whole(shape.clone())),
            // A Table consists of rows, and only the object in a row has a form.
            View::Whole | View::Table(_) => None,
            View::Partial(version) => {
                let partial = Partial::new(representation.encoding, version, shape, resource)?;
                Some(Self::Partial(representation, Arc::new(partial)))
            }
        }
    }

    /// One object, as in the response to a get.
    pub fn object(&self, one: &Object) -> Result<Bytes, NotPartial> {
        match self {
            Self::Whole(shape) => Ok(object(one, shape)),
            Self::Partial(_, partial) => partial.object(one),
        }
    }

    /// The objects joined as items of a list, without the separator in front of the first.
    pub fn items<'a>(&self, objects: impl Iterator<Item = &'a Arc<Object>> + Clone) -> Result<Bytes, NotPartial> {
        let items = match self {
            Self::Whole(shape) => list::items(objects, shape, &mut Thaw::default()),
            Self::Partial(_, partial) => partial.items(objects)?,
        };
        Ok(if items.is_empty() { items } else { items.slice(self.separator_len()..) })
    }

    /// The number of bytes that separate two items.
    pub fn separator_len(&self) -> usize {
        match self.representation().encoding {
            Encoding::Json => 1,
            Encoding::Protobuf => 0,
        }
    }

    /// A piece of a leaf's items that begins with item number `at`. In JSON every item follows a comma, even the first
    /// one, so that pieces can be concatenated; the separator of a list's first item is removed with
    /// [`Self::separator_len`].
    ///
    /// The items of metadata are joined once and shared by all lists. Whole objects are joined again for each list:
    /// this costs little compared with encrypting them, since the joined bytes are still in the CPU's cache, and
    /// keeping them would take the memory of all objects once more.
    pub fn leaf_chunk(&self, leaf: &Leaf, at: usize, thaw: &mut Thaw) -> Result<LeafChunk, NotPartial> {
        let Self::Whole(shape) = self else {
            return Ok(LeafChunk { bytes: self.leaf_items(leaf)?, shared: Bytes::new(), next: leaf.objects().len() });
        };
        let objects = &leaf.objects()[at..];
        let mut count = list::items_within(objects.iter(), shape, PIECE);
        // The objects of a selection may all be in different blocks: a piece takes the time of one of these.
        if leaf.is_private() {
            count = objects[..count].chunk_by(|one, next| one.is_beside(next)).next().map_or(0, <[_]>::len);
        }
        Ok(match count {
            0 => match objects.first() {
                Some(large) => {
                    large.thaw(thaw);
                    LeafChunk { bytes: list::item_opening(large, shape), shared: large.tail(), next: at + 1 }
                }
                None => LeafChunk { bytes: Bytes::new(), shared: Bytes::new(), next: at },
            },
            count => {
                let bytes = list::items(objects[..count].iter(), shape, thaw);
                LeafChunk { bytes, shared: Bytes::new(), next: at + count }
            }
        })
    }

    /// All items of a leaf, kept for later lists.
    pub fn leaf_items(&self, leaf: &Leaf) -> Result<Bytes, NotPartial> {
        leaf.joined(self.representation(), |objects| self.join(objects)).ok_or(NotPartial)
    }

    /// All items of a leaf: the kept ones if there are any, otherwise joined and not kept.
    pub fn leaf_items_once(&self, leaf: &Leaf) -> Result<Bytes, NotPartial> {
        leaf.joined_now(self.representation()).or_else(|| self.join(leaf.objects())).ok_or(NotPartial)
    }

    /// The length of a leaf's items in bytes, if it is known before they are joined. If it is known, joining them
    /// succeeds.
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

    /// The compressed items of a leaf, the first of them without its comma. Shared by all lists; `made` is called if
    /// they had to be compressed.
    pub fn deflated_leaf(&self, leaf: &Leaf, made: impl FnOnce()) -> Result<Deflated, NotPartial> {
        let deflate = |leaf: &Leaf| {
            made();
            let items = self.leaf_items_once(leaf).ok()?.slice(self.separator_len()..);
            Some(deflated_items(&items))
        };
        leaf.deflated(self.representation(), deflate).ok_or(NotPartial)
    }

    /// The same for a single use: the kept ones if there are any, otherwise compressed and not kept.
    pub fn deflated_leaf_once(&self, leaf: &Leaf) -> Result<Deflated, NotPartial> {
        let made = || Ok(deflated_items(&self.leaf_items_once(leaf)?.slice(self.separator_len()..)));
        leaf.deflated_now(self.representation()).map_or_else(made, Ok)
    }

    fn join(&self, objects: &[Arc<Object>]) -> Option<Bytes> {
        match self {
            Self::Whole(shape) => Some(list::items(objects.iter(), shape, &mut Thaw::default())),
            Self::Partial(_, partial) => partial.leaf_items(objects).ok(),
        }
    }

    /// The representation that is written.
    pub fn representation(&self) -> Representation {
        match self {
            Self::Whole(shape) => Representation { encoding: shape.encoding(), view: View::Whole },
            Self::Partial(representation, _) => *representation,
        }
    }

    /// The length in bytes of the event that [`Self::put_added`] appends. If it is known, appending succeeds.
    pub fn added_len(&self, object: &Object) -> Result<usize, NotPartial> {
        match self {
            Self::Whole(shape) => Ok(added_len(object, shape)),
            Self::Partial(_, partial) => partial.added_len(object),
        }
    }

    /// Appends the synthetic ADDED event of an object that exists when a watch starts.
    pub fn put_added(&self, object: &Object, events: &mut Vec<u8>) -> Result<(), NotPartial> {
        match self {
            Self::Whole(shape) => put_added(events, object, shape),
            Self::Partial(_, partial) => events.extend_from_slice(&partial.added(object)?),
        }
        Ok(())
    }

    /// The frame of `change` for watchers that see it as `kind`: made once, and shared by all of them. `thaw` goes from
    /// change to change.
    pub fn frame(&self, change: &Change, kind: FrameKind, thaw: &mut Thaw) -> Result<Bytes, NotPartial> {
        change.frame(self.representation(), kind, |change| {
            change.source(kind).thaw(thaw);
            match self {
                Self::Whole(shape) => Ok(frame(change, kind, shape)),
                Self::Partial(_, partial) => partial.frame(change, kind),
            }
        })
    }

    /// The bookmark template for this form, derived from the resource's own.
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
            // A custom resource, whose bookmark in protobuf has the metadata of a zero value, too.
            (Partial::Protobuf(partial), BookmarkTemplate::Json(_)) => {
                Ok(BookmarkTemplate::Protobuf(partial.bookmark(None)))
            }
        }
    }
}
