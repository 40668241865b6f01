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
    table::TableBody,
    watch::WatchBody,
};
use crate::{
    encode::{Form, Pretty},
    store::Leaf,
};

/// What is sent. One concrete type, so that nothing is boxed per piece.
#[derive(Debug)]
pub enum Body {
    /// In as few pieces as it has to be sent in, with its length.
    Json(Bytes),
    List(Box<ListBody>),
    Table(Box<TableBody>),
    /// One of those above, compressed.
    Gzip(GzipBody),
    Watch(Box<WatchBody>),
}

/// A list in pieces: head, leaves, tail. Holds no bytes of its own but those two.
#[derive(Debug)]
pub struct ListBody {
    head: Bytes,
    leaves: vec::IntoIter<Arc<Leaf>>,
    /// A leaf of which not all has been sent, and the number of its next item.
    begun: Option<(Arc<Leaf>, usize)>,
    form: Form,
    is_first: bool,
    tail: Bytes,
    /// Of the whole list, as long as nothing indents it.
    length: usize,
    pretty: Option<Pretty>,
}

/// What is handed to a connection at a time: a connection that is not read keeps one such piece.
pub(super) const PIECE: usize = 64 << 10;
/// The end of a body of several pieces is a small one: it is handed over when the client has read what comes before, so that an
/// answer ends only when nearly all of it has been read.
const LAST_PIECE: usize = 1 << 10;
/// An answer of no more bytes than this is one piece.
const ONE_PIECE: usize = 16 << 10;
/// What an answer holds beside its bytes while it is compressed for it alone (a deflate window and its tables).
const COMPRESSOR: usize = 300 << 10;

/// A list asks for a leaf's items, and a Table for its rows, only after its own length has been found.
pub(super) const CAN_BE_MADE: &str = "items whose length is known can be made";

impl Body {
    pub(super) fn json(json: Bytes, pretty: bool) -> Self {
        Self::Json(if pretty { Pretty::default().push(&json).into() } else { json })
    }

    /// Head and tail stand around leaves whose items have together `items_len` bytes, as the form says.
    pub(super) fn list(
        (head, tail): (Bytes, Bytes),
        leaves: Vec<Arc<Leaf>>,
        items_len: usize,
        form: Form,
        pretty: bool,
    ) -> Self {
        // The first item's separator is not sent.
        let length = head.len() + items_len.saturating_sub(form.separator_len()) + tail.len();
        let (leaves, pretty) = (leaves.into_iter(), pretty.then(Pretty::default));
        Self::List(Box::new(ListBody { head, leaves, begun: None, form, is_first: true, tail, length, pretty }))
    }

    /// Bytes that the answer holds for itself while it is sent, those that are made on the way included.
    pub fn own_bytes(&self) -> usize {
        match self {
            Self::Json(json) => json.len(),
            Self::List(list) => list.own_bytes(),
            Self::Table(table) => table.own_bytes(),
            Self::Gzip(gzip) => gzip.own_bytes() + COMPRESSOR,
            // Frames are shared, and the first state is framed a piece at a time.
            Self::Watch(_) => 0,
        }
    }

    /// Whether it is large enough to be compressed for who accepts that.
    pub(super) fn is_worth_gzip(&self) -> bool {
        match self {
            Self::Json(json) => json.len() > gzip::THRESHOLD,
            Self::List(list) => list.is_longer_than(gzip::THRESHOLD),
            Self::Table(table) => table.is_longer_than(gzip::THRESHOLD),
            Self::Gzip(_) | Self::Watch(_) => false,
        }
    }

    /// The same in gzip.
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

    /// What stands before the leaves, once.
    pub(super) fn take_head(&mut self) -> Option<Bytes> {
        Some(mem::take(&mut self.head)).filter(|head| !head.is_empty())
    }

    /// The next leaf, and whether it is the first.
    pub(super) fn next_leaf(&mut self) -> Option<(Arc<Leaf>, bool)> {
        let leaf = self.leaves.next()?;
        Some((leaf, mem::take(&mut self.is_first)))
    }

    /// Asked before anything is sent. Indenting makes it longer still.
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

    /// Without what would separate it from the leaf before.
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
