//! The bytes of an answer from memory.

use std::{
    convert::Infallible,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    vec,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::{
    gzip::{self, GzipBody},
    watch::WatchBody,
};
use crate::{
    encode::{self, Pretty},
    store::{Leaf, Schema, Shape},
};

/// What is sent. One concrete type, so that nothing is boxed per piece.
#[derive(Debug)]
pub enum Body {
    /// In one piece, with its length.
    Json(Bytes),
    List(Box<ListBody>),
    /// One of the two above, compressed.
    Gzip(GzipBody),
    Watch(Box<WatchBody>),
}

/// A list in pieces: head, leaves, tail. Holds no bytes of its own but those two.
#[derive(Debug)]
pub struct ListBody {
    head: Bytes,
    leaves: vec::IntoIter<Arc<Leaf>>,
    schema: Arc<Schema>,
    is_first: bool,
    tail: Bytes,
    pretty: Option<Pretty>,
}

impl Body {
    pub(super) fn json(json: Bytes, pretty: bool) -> Self {
        Self::Json(if pretty { Pretty::default().push(&json).into() } else { json })
    }

    pub(super) fn list(head: Bytes, leaves: Vec<Arc<Leaf>>, schema: Arc<Schema>, tail: Bytes, pretty: bool) -> Self {
        let pretty = pretty.then(Pretty::default);
        Self::List(Box::new(ListBody { head, leaves: leaves.into_iter(), schema, is_first: true, tail, pretty }))
    }

    /// Whether it is large enough to be compressed for who accepts that.
    pub(super) fn is_worth_gzip(&self) -> bool {
        match self {
            Self::Json(json) => json.len() > gzip::THRESHOLD,
            Self::List(list) => list.is_longer_than(gzip::THRESHOLD),
            Self::Gzip(_) | Self::Watch(_) => false,
        }
    }

    /// The same in gzip.
    pub(super) fn into_gzip(self) -> Self {
        match self {
            Self::Json(json) => Self::Gzip(GzipBody::json(json)),
            Self::List(list) => Self::Gzip(GzipBody::list(*list)),
            other @ (Self::Gzip(_) | Self::Watch(_)) => other,
        }
    }
}

impl ListBody {
    pub(super) fn is_pretty(&self) -> bool {
        self.pretty.is_some()
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.schema.shape
    }

    pub(super) fn tail(&self) -> &Bytes {
        &self.tail
    }

    /// What stands before the leaves, once.
    pub(super) fn take_head(&mut self) -> Option<Bytes> {
        Some(mem::take(&mut self.head)).filter(|head| !head.is_empty())
    }

    /// The next leaf, and whether it is the first.
    pub(super) fn next_leaf(&mut self) -> Option<(Arc<Leaf>, bool)> {
        let leaf = self.leaves.next()?;
        Some((leaf, mem::take(&mut self.is_first)))
    }

    /// Asked before anything is sent. Looks at no more of the objects than it takes to know.
    fn is_longer_than(&self, limit: usize) -> bool {
        let mut length = self.head.len() + self.tail.len();
        let mut leaves = self.leaves.as_slice().iter();
        let is_longer = leaves.any(|leaf| {
            length += encode::leaf_items_len(leaf.objects(), self.shape());
            // The first item's separator is not sent.
            length > limit + encode::separator_len(self.shape())
        });
        // Indenting makes it longer still.
        is_longer || self.is_pretty() && self.indented_len() > limit
    }

    fn indented_len(&self) -> usize {
        let items = self.leaves.as_slice().iter().map(|leaf| encode::leaf_items(leaf.objects(), self.shape()));
        let items = items.enumerate().map(|(at, items)| if at == 0 { items.slice(1..) } else { items });
        let mut pretty = Pretty::default();
        [self.head.clone()]
            .into_iter()
            .chain(items)
            .chain([self.tail.clone()])
            .map(|piece| pretty.push(&piece).len())
            .sum()
    }

    pub(super) fn next(&mut self) -> Option<Bytes> {
        let piece = self.next_piece()?;
        match &mut self.pretty {
            Some(pretty) => Some(pretty.push(&piece).into()),
            None => Some(piece),
        }
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        if let Some(head) = self.take_head() {
            return Some(head);
        }
        let Some((leaf, is_first)) = self.next_leaf() else {
            return Some(mem::take(&mut self.tail)).filter(|tail| !tail.is_empty());
        };
        let items = leaf.joined(|objects| encode::leaf_items(objects, self.shape()));
        // The joined items begin with what separates them from the leaf before.
        Some(if is_first { items.slice(encode::separator_len(self.shape())..) } else { items })
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match self.get_mut() {
            Self::Json(json) => Some(mem::take(json)).filter(|json| !json.is_empty()),
            Self::List(list) => list.next(),
            Self::Gzip(gzip) => ready!(gzip.poll_next(context)),
            Self::Watch(watch) => ready!(watch.poll_next(context)),
        };
        Poll::Ready(piece.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Json(json) if json.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Json(json) => SizeHint::with_exact(json.len() as u64),
            Self::List(_) | Self::Gzip(_) | Self::Watch(_) => SizeHint::default(),
        }
    }
}
