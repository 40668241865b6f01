//! The body of a response from memory.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::{
    gzip::{self, GzipBody},
    list_body::{ListBody, PIECE},
    table_body::TableBody,
    watch_body::WatchBody,
};
use crate::encode::Pretty;

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

/// The last piece of a body of several pieces is small. It is handed over when the client has read the preceding ones,
/// so a response only ends when the client has read nearly all of it.
const LAST_PIECE: usize = 1 << 10;
/// A response of at most this many bytes is a single piece.
const ONE_PIECE: usize = 16 << 10;
/// An estimate of the memory for compressing a single response, in bytes (a deflate window and its tables).
const COMPRESSOR: usize = 300 << 10;

impl Body {
    pub(super) fn json(json: Bytes, pretty: bool) -> Self {
        Self::Json(if pretty { Pretty::default().push(&json).into() } else { json })
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
