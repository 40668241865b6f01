//! The bytes of an answer from memory.

use std::{
    convert::Infallible,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    vec,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::watch::WatchBody;
use crate::{
    encode::{self, Pretty},
    store::{Leaf, Schema},
};

/// What is sent. One concrete type, so that nothing is boxed per piece.
#[derive(Debug)]
pub enum Body {
    /// In one piece, with its length.
    Json(Bytes),
    List(Box<ListBody>),
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
}

impl ListBody {
    fn next(&mut self) -> Option<Bytes> {
        let piece = self.next_piece()?;
        match &mut self.pretty {
            Some(pretty) => Some(pretty.push(&piece).into()),
            None => Some(piece),
        }
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        if !self.head.is_empty() {
            return Some(mem::take(&mut self.head));
        }
        let Some(leaf) = self.leaves.next() else {
            return Some(mem::take(&mut self.tail)).filter(|tail| !tail.is_empty());
        };
        let shape = &self.schema.shape;
        let items = leaf.joined(|objects| encode::leaf_items(objects, shape));
        // The joined items begin with the comma that separates them from the leaf before.
        Some(if mem::take(&mut self.is_first) { items.slice(1..) } else { items })
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match self.get_mut() {
            Self::Json(json) => Some(mem::take(json)).filter(|json| !json.is_empty()),
            Self::List(list) => list.next(),
            Self::Watch(watch) => match watch.poll_next(context) {
                Poll::Ready(bytes) => bytes,
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(piece.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Json(json) if json.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Json(json) => SizeHint::with_exact(json.len() as u64),
            Self::List(_) | Self::Watch(_) => SizeHint::default(),
        }
    }
}
