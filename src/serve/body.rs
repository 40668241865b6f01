//! The body of a response from memory.

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
    table::TableBody,
    watch::WatchBody,
};
use crate::{
    encode::{Form, Pretty},
    store::Leaf,
};

/// The body of a response. One concrete type, so that no piece is boxed.
#[derive(Debug)]
pub enum Body {
    /// A body that is complete in memory, whatever its encoding. Sent with its length, in as few pieces as possible.
    Json(Bytes),
    List(Box<ListBody>),
    Table(Box<TableBody>),
    /// One of the above, compressed.
    Gzip(GzipBody),
    Watch(Box<WatchBody>),
}

/// A list in pieces: head, leaves, tail. Only head and tail are owned; the leaves are shared.
#[derive(Debug)]
pub struct ListBody {
    head: Bytes,
    leaves: vec::IntoIter<Arc<Leaf>>,
    /// A leaf that was sent partly, and the number of its next item.
    begun: Option<(Arc<Leaf>, usize)>,
    form: Form,
    is_first: bool,
    tail: Bytes,
    /// The length of the whole list in bytes, before indentation.
    length: usize,
    pretty: Option<Pretty>,
}

/// The number of bytes handed to a connection at a time: a connection whose client does not read holds one such piece.
pub(super) const PIECE: usize = 64 << 10;
/// The last piece of a body of several pieces is small. It is handed over when the client has read the preceding ones,
/// so a response only ends when the client has read nearly all of it.
const LAST_PIECE: usize = 1 << 10;
/// A response of at most this many bytes is a single piece.
const ONE_PIECE: usize = 16 << 10;
/// An estimate of the memory for compressing a single response, in bytes (a deflate window and its tables).
const COMPRESSOR: usize = 300 << 10;

/// The message of a panic that cannot happen: a leaf's items, or a Table's rows, are only made after their length was
/// computed, which fails if they cannot be made.
pub(super) const CAN_BE_MADE: &str = "items whose length is known can be made";

impl Body {
    pub(super) fn json(json: Bytes, pretty: bool) -> Self {
        Self::Json(if pretty { Pretty::default().push(&json).into() } else { json })
    }

    /// A list with that head and tail. The items of `leaves` have `items_len` bytes in total in that form.
    pub(super) fn list(
        (head, tail): (Bytes, Bytes),
        leaves: Vec<Arc<Leaf>>,
        items_len: usize,
        form: Form,
        pretty: bool,
    ) -> Self {
        // The separator in front of the first item is not sent.
        let length = head.len() + items_len.saturating_sub(form.separator_len()) + tail.len();
        let (leaves, pretty) = (leaves.into_iter(), pretty.then(Pretty::default));
        Self::List(Box::new(ListBody { head, leaves, begun: None, form, is_first: true, tail, length, pretty }))
    }

    /// Bytes that the response holds for itself while it is sent, including those that are made on the way.
    pub fn own_bytes(&self) -> usize {
        match self {
            Self::Json(json) => json.len(),
            Self::List(list) => list.own_bytes(),
            Self::Table(table) => table.own_bytes(),
            Self::Gzip(gzip) => gzip.own_bytes() + COMPRESSOR,
            // Frames are shared. The pieces of the initial state take room one at a time, while the watch goes on.
            Self::Watch(watch) => watch.own_bytes(),
        }
    }

    /// Whether the body is large enough to be compressed for clients that accept it.
    pub(super) fn is_worth_gzip(&self) -> bool {
        match self {
            Self::Json(json) => json.len() > gzip::THRESHOLD,
            Self::List(list) => list.is_longer_than(gzip::THRESHOLD),
            // A shorter one is in one piece.
            Self::Table(_) => true,
            Self::Gzip(_) | Self::Watch(_) => false,
        }
    }

    /// The body compressed with gzip.
    pub(super) fn into_gzip(self) -> Self {
        match self {
            Self::Json(json) => Self::Gzip(GzipBody::json(json)),
            Self::List(list) => Self::Gzip(GzipBody::list(list)),
            Self::Table(table) => Self::Gzip(GzipBody::table(table)),
            other @ (Self::Gzip(_) | Self::Watch(_)) => other,
        }
    }
}

impl ListBody {
    pub(super) fn own_bytes(&self) -> usize {
        let leaf = |leaf: &Arc<Leaf>| size_of::<Arc<Leaf>>() + leaf.own_bytes();
        let leaves = self.leaves.as_slice().iter().map(leaf).sum::<usize>();
        self.head.len() + self.tail.len() + leaves + 2 * PIECE
    }

    pub(super) fn is_pretty(&self) -> bool {
        self.pretty.is_some()
    }

    pub(super) fn form(&self) -> &Form {
        &self.form
    }

    pub(super) fn tail(&self) -> &Bytes {
        &self.tail
    }

    /// The part before the leaves, on the first call.
    pub(super) fn take_head(&mut self) -> Option<Bytes> {
        Some(mem::take(&mut self.head)).filter(|head| !head.is_empty())
    }

    /// The next leaf, and whether it is the first one.
    pub(super) fn next_leaf(&mut self) -> Option<(Arc<Leaf>, bool)> {
        let leaf = self.leaves.next()?;
        Some((leaf, mem::take(&mut self.is_first)))
    }

    /// Whether the body has more than `limit` bytes. Must be called before anything is sent. Indentation only makes the
    /// body longer.
    fn is_longer_than(&self, limit: usize) -> bool {
        self.length > limit || self.is_pretty() && self.indented_len() > limit
    }

    fn indented_len(&self) -> usize {
        let items = self.leaves.as_slice().iter().map(|leaf| self.form.leaf_items_once(leaf).expect(CAN_BE_MADE));
        let items = items.enumerate().map(|(at, items)| if at == 0 { self.first(&items) } else { items });
        let mut pretty = Pretty::default();
        [self.head.clone()]
            .into_iter()
            .chain(items)
            .chain([self.tail.clone()])
            .map(|piece| pretty.push(&piece).len())
            .sum()
    }

    /// The first leaf's items without the separator in front of them.
    fn first(&self, items: &Bytes) -> Bytes {
        items.slice(self.form.separator_len()..)
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
        let begun = self.begun.take().map(|begun| (begun, false));
        let next = begun.or_else(|| self.next_leaf().map(|(leaf, is_first)| ((leaf, 0), is_first)));
        let Some(((leaf, at), is_first)) = next else {
            return Some(mem::take(&mut self.tail)).filter(|tail| !tail.is_empty());
        };
        let (items, next) = self.form.leaf_piece(&leaf, at).expect(CAN_BE_MADE);
        if next < leaf.objects().len() {
            self.begun = Some((leaf, next));
        }
        Some(if is_first { self.first(&items) } else { items })
    }
}

fn next_piece(json: &mut Bytes) -> Option<Bytes> {
    let length = match json.len() {
        0 => return None,
        length @ ..=ONE_PIECE => length,
        length => (length - LAST_PIECE).min(PIECE),
    };
    Some(json.split_to(length))
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match self.get_mut() {
            Self::Json(json) => next_piece(json),
            Self::List(list) => list.next(),
            Self::Table(table) => table.next(),
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
            Self::List(_) | Self::Table(_) | Self::Gzip(_) | Self::Watch(_) => SizeHint::default(),
        }
    }
}
