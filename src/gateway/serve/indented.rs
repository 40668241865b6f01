//! JSON that is indented while it is sent, in pieces of bounded length: indentation can make nested values thousands of
//! times as long.

use bytes::Bytes;

use super::chunk::{PIECE, chunk_len};
use engine::encode::Pretty;

/// Indents what a body is made of.
#[derive(Debug, Default)]
pub(super) struct Indent {
    pretty: Pretty,
    /// What is indented next.
    rest: Bytes,
}

/// JSON that is complete in memory before it is indented.
#[derive(Debug)]
pub struct Indented {
    indent: Indent,
    /// The number of indented bytes that have not been taken.
    left: u64,
}

impl Indent {
    /// The next bytes, at most [`PIECE`], of a body that `source` gives; `None` at the end.
    pub(super) fn next(&mut self, source: impl FnMut() -> Option<Bytes>) -> Option<Bytes> {
        self.next_within(PIECE, source)
    }

    fn next_within(&mut self, most: usize, mut source: impl FnMut() -> Option<Bytes>) -> Option<Bytes> {
        loop {
            if self.rest.is_empty() {
                self.rest = source()?;
            }
            let piece = self.pretty.push(&mut self.rest, most);
            // Empty if it was white space.
            if !piece.is_empty() {
                return Some(piece);
            }
        }
    }
}

impl Indented {
    pub(super) fn new(json: Bytes) -> Self {
        let left = Pretty::default().count(&json);
        Self { indent: Indent { pretty: Pretty::default(), rest: json }, left }
    }

    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Bytes that it holds, including those that are made on the way.
    pub(super) fn own_bytes(&self) -> usize {
        self.indent.rest.len() + 2 * PIECE
    }

    pub(super) fn next(&mut self) -> Option<Bytes> {
        let piece = self.indent.next_within(chunk_len(self.left)?, || None)?;
        self.left = self.left.saturating_sub(piece.len() as u64);
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use http_body_util::BodyExt;

    use super::*;
    use crate::serve::Body;

    /// An array of numbers at that depth.
    fn nested(depth: usize, numbers: usize) -> Bytes {
        [vec![b'['; depth], b"1,".repeat(numbers), b"1".to_vec(), vec![b']'; depth], b"\n".to_vec()].concat().into()
    }

    async fn frame(body: &mut Body) -> usize {
        body.frame().await.unwrap().unwrap().into_data().unwrap().len()
    }

    /// As deep as API servers accept it: 1.4 MB, which are 14 GB when they are indented.
    #[tokio::test]
    async fn deeply_nested_json_is_indented_in_pieces() {
        const DEPTH: usize = 10_000;
        const NUMBERS: usize = 700_000;
        let json = nested(DEPTH, NUMBERS);
        let mut body = Body::json(json.clone(), true);
        assert!(body.own_bytes() <= json.len() + 2 * PIECE, "{}", body.own_bytes());
        let length = body.size_hint().exact().unwrap();
        assert!(length > 2 * (NUMBERS * DEPTH) as u64, "{length}");
        for _ in 0..100 {
            assert_eq!(frame(&mut body).await, PIECE);
        }
        assert_eq!(body.size_hint().exact().unwrap(), length - 100 * PIECE as u64);
        assert!(!body.is_end_stream());

        let body = Body::json(json.clone(), true);
        assert!(body.is_worth_gzip());
        let mut gzip = body.into_gzip();
        assert!(gzip.own_bytes() < json.len() + (1 << 20), "{}", gzip.own_bytes());
        assert!(frame(&mut gzip).await <= PIECE);
    }

    #[tokio::test]
    async fn the_pieces_have_the_length_that_was_announced() {
        for numbers in [1, 10, 200, 201, 2_000, 20_000] {
            let json = nested(20, numbers);
            let mut body = Body::json(json.clone(), true);
            let length = body.size_hint().exact().unwrap();
            let mut whole = Vec::new();
            while let Some(frame) = body.frame().await {
                whole.extend_from_slice(&frame.unwrap().into_data().unwrap());
            }
            assert!(body.is_end_stream());
            assert_eq!(whole.len() as u64, length, "{numbers} numbers");
            let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
            assert!(whole == serde_json::to_vec_pretty(&value).unwrap(), "{numbers} numbers");
        }
    }

    #[test]
    fn sources_of_any_pieces_are_indented_in_bounded_ones() {
        let json = nested(100, 5_000);
        for size in [1, 1_000, json.len()] {
            let mut source: Vec<_> = json.chunks(size).map(Bytes::copy_from_slice).collect();
            source.reverse();
            let mut indent = Indent::default();
            let pieces: Vec<_> = std::iter::from_fn(|| indent.next(|| source.pop())).collect();
            assert!(pieces.iter().all(|piece| (1..=PIECE).contains(&piece.len())));
            let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
            assert!(pieces.concat() == serde_json::to_vec_pretty(&value).unwrap(), "pieces of {size}");
        }
    }
}
