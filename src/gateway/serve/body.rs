//! The body of a response from memory.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::{
    chunk::{ONE_PIECE, chunk_len},
    gzip::{self, GzipBody},
    indented::Indented,
    list_body::ListBody,
    state::StateBody,
    table_body::TableBody,
    watch_body::WatchBody,
};

/// The body of a response. One concrete type, so that no piece is boxed.
#[derive(Debug)]
pub enum Body {
    /// A body that is complete in memory, whatever its encoding. Sent with its length, in as few pieces as possible.
    Json(Bytes),
    /// The same, indented while it is sent.
    Indented(Box<Indented>),
    List(Box<ListBody>),
    Table(Box<TableBody>),
    /// One of the above, compressed.
    Gzip(GzipBody),
    Watch(Box<WatchBody>),
    /// For another gateway.
    State(Box<StateBody>),
}

/// An estimate of the memory for compressing a single response, in bytes (a deflate window and its tables).
const COMPRESSOR: usize = 300 << 10;

impl Body {
    pub(super) fn json(json: Bytes, pretty: bool) -> Self {
        if !pretty {
            return Self::Json(json);
        }
        let mut indented = Indented::new(json);
        if indented.left() <= ONE_PIECE {
            return Self::Json(indented.next().unwrap_or_default());
        }
        Self::Indented(Box::new(indented))
    }

    /// Bytes that the response holds for itself while it is sent, including those that are made on the way.
    pub fn own_bytes(&self) -> usize {
        match self {
            Self::Json(json) => json.len(),
            Self::Indented(json) => json.own_bytes(),
            Self::List(list) => list.own_bytes(),
            Self::Table(table) => table.own_bytes(),
            Self::State(state) => state.own_bytes(),
            Self::Gzip(gzip) => gzip.own_bytes() + COMPRESSOR,
            // Frames are shared. The pieces of the initial state take room one at a time, while the watch goes on.
            Self::Watch(watch) => watch.own_bytes(),
        }
    }

    /// Whether making the next piece takes more time than copying it.
    pub fn is_work(&self) -> bool {
        match self {
            Self::Json(_) => false,
            Self::List(list) => list.is_pretty(),
            Self::Indented(_) | Self::Table(_) | Self::State(_) => true,
            Self::Gzip(gzip) => gzip.is_work(),
            Self::Watch(watch) => watch.is_working(),
        }
    }

    /// Whether the body is large enough to be compressed for clients that accept it.
    pub(super) fn is_worth_gzip(&self) -> bool {
        match self {
            Self::Json(json) => json.len() > gzip::THRESHOLD,
            Self::Indented(json) => json.left() > gzip::THRESHOLD as u64,
            Self::List(list) => list.is_longer_than(gzip::THRESHOLD),
            // A shorter one is in one piece.
            Self::Table(_) => true,
            Self::Gzip(_) | Self::Watch(_) | Self::State(_) => false,
        }
    }

    /// The body compressed with gzip.
    pub(super) fn into_gzip(self) -> Self {
        match self {
            Self::Json(json) => Self::Gzip(GzipBody::json(json)),
            Self::Indented(json) => Self::Gzip(GzipBody::indented(json)),
            Self::List(list) => Self::Gzip(GzipBody::list(list)),
            Self::Table(table) => Self::Gzip(GzipBody::table(table)),
            other @ (Self::Gzip(_) | Self::Watch(_) | Self::State(_)) => other,
        }
    }
}

fn next_chunk(json: &mut Bytes) -> Option<Bytes> {
    Some(json.split_to(chunk_len(json.len() as u64)?))
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match self.get_mut() {
            Self::Json(json) => next_chunk(json),
            Self::Indented(json) => json.next(),
            Self::List(list) => list.next(),
            Self::Table(table) => table.next(),
            Self::State(state) => state.next(),
            Self::Gzip(gzip) => ready!(gzip.poll_next(context)),
            Self::Watch(watch) => ready!(watch.poll_next(context)),
        };
        Poll::Ready(piece.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Json(json) => json.is_empty(),
            Self::Indented(json) => json.left() == 0,
            Self::List(_) | Self::Table(_) | Self::Gzip(_) | Self::Watch(_) | Self::State(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Json(json) => SizeHint::with_exact(json.len() as u64),
            Self::Indented(json) => SizeHint::with_exact(json.left()),
            Self::List(_) | Self::Table(_) | Self::Gzip(_) | Self::Watch(_) | Self::State(_) => SizeHint::default(),
        }
    }
}
