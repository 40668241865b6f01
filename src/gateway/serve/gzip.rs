//! Responses in gzip (read-path 4.3): which ones are compressed, and how they are sent.

use std::{
    mem,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, header};

use super::{
    indented::Indented,
    list_body::{CAN_BE_MADE, ListBody},
    table_body::TableBody,
};
use engine::encode::{self, GzipMember, GzipStream};

/// Larger bodies, in bytes, are compressed for clients that accept it.
pub(super) const THRESHOLD: usize = 128 << 10;

/// The number of bytes that are compressed before other tasks get their turn: about a millisecond of work.
const STEP: usize = 128 << 10;

/// Whether the client accepts gzip. The API server reads only the first line of the header and ignores `q`; a response
/// that it would not compress is not compressed here, either.
pub(super) fn is_accepted(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::ACCEPT_ENCODING) else { return false };
    let mut tokens = value.as_bytes().split(|byte| *byte == b',').filter_map(|token| str::from_utf8(token).ok());
    tokens.any(|token| token.trim() == "gzip")
}

/// One gzip member that is made while it is sent.
#[derive(Debug)]
pub enum GzipBody {
    /// Made of the leaves' compressed blocks, which all lists share.
    Leaves(Box<GzipLeaves>),
    /// Compressed for this response alone.
    Flow(Box<GzipFlow>),
}

/// Compressed blocks of leaves between an uncompressed head and tail.
#[derive(Debug)]
pub struct GzipLeaves {
    list: Box<ListBody>,
    /// `None` at the end.
    member: Option<GzipMember>,
    /// Whether the last leaf had to be compressed.
    has_worked: bool,
}

/// An uncompressed body and the stream that compresses it.
#[derive(Debug)]
pub struct GzipFlow {
    source: Source,
    /// The part of the source that is compressed next.
    piece: Bytes,
    /// `None` at the end.
    stream: Option<GzipStream>,
}

/// An uncompressed body, a piece at a time.
#[derive(Debug)]
enum Source {
    Json(Bytes),
    Indented(Box<Indented>),
    List(Box<ListBody>),
    Table(Box<TableBody>),
}

impl GzipBody {
    pub(super) fn json(json: Bytes) -> Self {
        Self::flow(Source::Json(json))
    }

    pub(super) fn indented(json: Box<Indented>) -> Self {
        Self::flow(Source::Indented(json))
    }

    pub(super) fn list(list: Box<ListBody>) -> Self {
        if list.is_pretty() {
            return Self::flow(Source::List(list));
        }
        Self::Leaves(Box::new(GzipLeaves { list, member: Some(GzipMember::default()), has_worked: false }))
    }

    pub(super) fn table(table: Box<TableBody>) -> Self {
        Self::flow(Source::Table(table))
    }

    fn flow(source: Source) -> Self {
        Self::Flow(Box::new(GzipFlow { source, piece: Bytes::new(), stream: Some(GzipStream::new()) }))
    }

    /// Bytes that the uncompressed body holds for itself.
    pub(super) fn own_bytes(&self) -> usize {
        match self {
            // One leaf may wait for the client, and the next one is made meanwhile.
            Self::Leaves(leaves) => leaves.list.own_bytes() + 2 * leaves.list.own_leaf_max(),
            Self::Flow(flow) => flow.piece.len() + flow.source.own_bytes(),
        }
    }

    /// Whether the next bytes have to be compressed.
    pub(super) fn is_work(&self) -> bool {
        match self {
            Self::Leaves(leaves) => leaves.list.is_next_uncompressed(),
            Self::Flow(_) => true,
        }
    }

    /// The next bytes; `None` at the end. After compressing, it is pending once, so that other tasks get their turn.
    pub(super) fn poll_next(&mut self, context: &Context<'_>) -> Poll<Option<Bytes>> {
        let next = match self {
            Self::Leaves(leaves) => leaves.step(),
            Self::Flow(flow) => flow.step(),
        };
        if next.is_pending() {
            context.waker().wake_by_ref();
        }
        next
    }
}

impl GzipLeaves {
    /// Pending after compressing a leaf, so that other tasks get their turn.
    fn step(&mut self) -> Poll<Option<Bytes>> {
        if mem::take(&mut self.has_worked) { Poll::Pending } else { Poll::Ready(self.next()) }
    }

    fn next(&mut self) -> Option<Bytes> {
        let member = self.member.as_mut()?;
        if let Some(head) = self.list.take_head() {
            return Some([GzipMember::header(), member.append(&encode::stored(&head))].concat().into());
        }
        let Some((leaf, is_first)) = self.list.next_leaf() else {
            let tail = member.append(&encode::stored(self.list.tail()));
            return self.member.take().map(|member| [tail, member.end()].concat().into());
        };
        let (form, has_worked) = (self.list.form(), &mut self.has_worked);
        let items = form.deflated_leaf(&leaf, || *has_worked = true).expect(CAN_BE_MADE);
        let is_separated = !is_first && form.separator_len() > 0;
        Some(if is_separated { member.next_item(&items) } else { member.first_item(&items) })
    }
}

impl GzipFlow {
    /// Pending if there is nothing to send yet.
    fn step(&mut self) -> Poll<Option<Bytes>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
        if self.piece.is_empty() {
            match self.source.next() {
                Some(piece) => self.piece = piece,
                None => return Poll::Ready(self.stream.take().map(GzipStream::end)),
            }
        }
        let bytes = stream.push(&self.piece.split_to(self.piece.len().min(STEP)));
        if bytes.is_empty() { Poll::Pending } else { Poll::Ready(Some(bytes)) }
    }
}

impl Source {
    fn own_bytes(&self) -> usize {
        match self {
            Self::Json(json) => json.len(),
            Self::Indented(json) => json.own_bytes(),
            Self::List(list) => list.own_bytes(),
            Self::Table(table) => table.own_bytes(),
        }
    }

    fn next(&mut self) -> Option<Bytes> {
        match self {
            Self::Json(json) => Some(mem::take(json)).filter(|json| !json.is_empty()),
            Self::Indented(json) => json.next(),
            Self::List(list) => list.next(),
            Self::Table(table) => table.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, sync::Arc, time::Duration};

    use flate2::read::GzDecoder;
    use http::HeaderValue;
    use http_body_util::BodyExt;

    use super::*;
    use crate::serve::Body;
    use base::apimachinery::ResourceVersion;
    use engine::{
        encode::{Form, Settled},
        store::{self, HistoryLimits, Object, Objects, Reader, Schema, Shape},
    };

    fn accepts(lines: &[&[u8]]) -> bool {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::ACCEPT_ENCODING, HeaderValue::from_bytes(line).unwrap());
        }
        is_accepted(&headers)
    }

    #[test]
    fn gzip_is_accepted_only_as_a_plain_word_of_the_first_header() {
        for line in ["gzip", " gzip\t", "br, gzip", "deflate,gzip;q=0,gzip", "\u{a0}gzip", "gzip,"] {
            assert!(accepts(&[line.as_bytes()]), "{line:?}");
        }
        for line in ["", "*", "GZIP", "x-gzip", "gzip;q=1", "gzip br", "gzip;q=0.5, deflate", "identity"] {
            assert!(!accepts(&[line.as_bytes()]), "{line:?}");
        }
        assert!(accepts(&[b"\xff,gzip", b"br"]) && !accepts(&[b"br", b"gzip"]) && !accepts(&[]));
    }

    /// Objects of two namespaces, some of which cannot be compressed.
    fn reader(shape: Shape, count: usize) -> Reader {
        reader_of(shape, count, |rng, _| (0..rng.usize(..3_000)).map(|_| rng.alphanumeric()).collect())
    }

    fn reader_of(shape: Shape, count: usize, mut text: impl FnMut(&mut fastrand::Rng, usize) -> String) -> Reader {
        let schema = Arc::new(Schema::new(shape, Vec::new()));
        let mut rng = fastrand::Rng::with_seed(7);
        let object = |at: usize| {
            let noise = text(&mut rng, at);
            let metadata = format!(r#"{{"name":"n{at:05}","namespace":"ns{}","resourceVersion":"7"}}"#, at % 2);
            let json = format!(r#"{{"kind":"Thing","apiVersion":"v1","metadata":{metadata},"data":"{noise}"}}"#);
            Arc::new(Object::from_event(json.into(), &schema).unwrap())
        };
        let objects = Objects::new((0..count).map(object).collect()).unwrap();
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 1 << 20 };
        store::store(schema, &objects, ResourceVersion::new(7).unwrap(), limits).1
    }

    fn list(reader: &Reader, pretty: bool) -> Body {
        let (head, tail) = (Bytes::from_static(b"{\"items\":["), Bytes::from_static(b"]}\n"));
        let form = Form::Whole(reader.schema().shape.clone());
        let leaves: Vec<_> = reader.snapshot().leaves().cloned().collect();
        let items_len = leaves.iter().map(|leaf| form.leaf_items_len(leaf).unwrap()).sum();
        Body::List(Box::new(ListBody::new(head, tail, leaves, items_len, form, pretty)))
    }

    async fn collected(body: Body) -> Bytes {
        body.collect().await.unwrap().to_bytes()
    }

    fn inflated(gzip: &[u8]) -> Vec<u8> {
        let (mut plain, mut decoder) = (Vec::new(), GzDecoder::new(gzip));
        decoder.read_to_end(&mut plain).unwrap();
        assert!(decoder.into_inner().is_empty(), "something follows the member");
        plain
    }

    #[tokio::test]
    async fn inflated_lists_equal_the_plain_ones() {
        for shape in [Shape::typed("Thing", "v1"), Shape::Custom] {
            for count in [0, 1, 2, 700] {
                let reader = reader(shape.clone(), count);
                for pretty in [false, true] {
                    let plain = collected(list(&reader, pretty)).await;
                    assert_eq!(list(&reader, pretty).is_worth_gzip(), plain.len() > THRESHOLD);
                    // The second list reuses what the first one compressed.
                    for _ in 0..2 {
                        let gzip = collected(list(&reader, pretty).into_gzip()).await;
                        assert!(inflated(&gzip) == plain, "{count} objects, pretty: {pretty}");
                    }
                }
            }
        }
    }

    #[tokio::test]
    async fn leaves_are_compressed_once_and_not_joined_for_it() {
        let reader = reader(Shape::Custom, 300);
        let first = collected(list(&reader, false).into_gzip()).await;
        let size = reader.size();
        assert_eq!((size.joined_bytes, size.deflated_bytes > first.len() - 200), (0, true));
        assert_eq!(collected(list(&reader, false).into_gzip()).await, first);
        assert_eq!(reader.size(), size);
    }

    /// Of JSON and of protobuf, of small and large objects; some leaves are left as they are.
    #[tokio::test]
    async fn lists_of_compressed_objects_are_the_same() {
        for shape in [Shape::typed("Thing", "v1"), Shape::Custom] {
            let reader = reader_of(shape, 300, |rng, at| match at % 40 {
                0 => "large".repeat(300_000),
                20 => "large".repeat(40_000),
                1..30 => "text".repeat(rng.usize(..500)),
                _ => (0..rng.usize(..3_000)).map(|_| rng.alphanumeric()).collect(),
            });
            let all = async || {
                let lists = [list(&reader, false), list(&reader, true), list(&reader, false).into_gzip()];
                let [json, pretty, gzip] = lists.map(collected);
                // Blocks that are kept are cut otherwise than those that a list made.
                [json.await, pretty.await, inflated(&gzip.await).into()]
            };
            let (warm, size) = (all().await, reader.size());
            for _ in 0..2 {
                Settled::of(&reader).iter().for_each(|settled| settled.compress(&reader));
                reader.sweep();
            }
            let cold = reader.size();
            assert!(cold.cold_bytes > size.object_bytes / 2 && cold.joined_bytes == 0, "{cold:?}");
            for _ in 0..3 {
                assert!(all().await == warm);
            }
            // Lists came often, so that the text is kept, until none comes any more.
            assert!(reader.size().joined_bytes >= cold.cold_bytes, "{:?}", reader.size());
            for _ in 0..2 {
                reader.sweep();
            }
            assert_eq!(reader.size(), cold);
        }
    }

    #[tokio::test]
    async fn inflated_single_answers_equal_the_plain_ones() {
        let json: Bytes = reader(Shape::Custom, 400)
            .snapshot()
            .leaves()
            .flat_map(|leaf| leaf.objects())
            .flat_map(|object| object.tail().to_vec())
            .collect();
        let gzip = collected(Body::json(json.clone(), false).into_gzip()).await;
        assert!(gzip.len() < json.len() && inflated(&gzip) == json);
    }

    #[test]
    fn gzip_begins_one_byte_above_the_threshold() {
        for (pretty, around) in [(false, "[\"\"]\n"), (true, "[\n  \"\"\n]")] {
            for (length, worth) in [(THRESHOLD, false), (THRESHOLD + 1, true)] {
                let json = format!("[\"{}\"]\n", "x".repeat(length - around.len()));
                assert_eq!(Body::json(json.into(), pretty).is_worth_gzip(), worth, "{length}, pretty: {pretty}");
            }
        }
    }
}
