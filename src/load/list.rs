//! Reads the metadata of a list from its start and its end, in JSON and protobuf, plain and in gzip. Pure.

use std::io::{self, Write};

use flate2::write::GzDecoder;
use http::header;
use memchr::memmem;
use prost::Message;
use serde::Deserialize;
use serde_json::Deserializer;

use crate::{
    channel::OpenResponse,
    failure::{ErrorKind, Failure},
    version::MAGIC,
};

/// The numbers of bytes at the start and at the end of a list that are kept: where its metadata is depends on its type.
const HEAD_BYTES: usize = 16 << 10;
const TAIL_BYTES: usize = 4 << 10;
const METADATA: &[u8] = b"\"metadata\":";

/// The metadata of a list.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ListMeta {
    #[prost(string, tag = "2")]
    pub(super) resource_version: String,
    /// The token of the next page, in base64url; empty on the last one.
    #[prost(string, tag = "3")]
    #[serde(rename = "continue")]
    next_page: String,
}

impl ListMeta {
    /// The query of the next page.
    pub(super) fn next_page(&self) -> Option<String> {
        (!self.next_page.is_empty()).then(|| format!("continue={}", self.next_page))
    }
}

/// The body of a list, which is decompressed while it arrives.
#[derive(Debug)]
pub(super) enum List {
    Plain(Ends),
    Gzip(Box<GzDecoder<Ends>>),
}

impl List {
    pub(super) fn of(answer: &OpenResponse) -> Self {
        let coding = answer.response.headers().get(header::CONTENT_ENCODING);
        if coding.is_some_and(|coding| coding == "gzip") {
            Self::Gzip(Box::new(GzDecoder::new(Ends::default())))
        } else {
            Self::Plain(Ends::default())
        }
    }

    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), Failure> {
        let written = match self {
            Self::Plain(ends) => ends.write_all(piece),
            Self::Gzip(decoder) => decoder.write_all(piece),
        };
        written.map_err(|error| Failure::stream(&error))
    }

    /// The metadata of the complete list.
    pub(super) fn metadata(self) -> Result<ListMeta, Failure> {
        let ends = match self {
            Self::Plain(ends) => ends,
            Self::Gzip(decoder) => decoder.finish().map_err(|error| Failure::stream(&error))?,
        };
        ends.metadata().ok_or_else(|| Failure::of(ErrorKind::Stream, "the list has no metadata with a resourceVersion"))
    }
}

/// The start and the end of a list. The list is written to it in pieces.
#[derive(Debug, Default)]
pub(super) struct Ends {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Ends {
    /// The metadata of the list; `None` if it has no version.
    fn metadata(&self) -> Option<ListMeta> {
        let metadata = if let Some(message) = self.head.strip_prefix(MAGIC) {
            protobuf(message)
        } else {
            let items = memmem::find(&self.head, b"\"items\":").unwrap_or(self.head.len());
            // The metadata of a list is in front of its items for built-in types, and behind them for custom resources.
            json(&self.head[..items], memmem::find(&self.head[..items], METADATA))
                .or_else(|| json(&self.tail, memmem::rfind(&self.tail, METADATA)))
        };
        metadata.filter(|metadata| !metadata.resource_version.is_empty())
    }
}

/// The metadata of a list in JSON, from the member at this offset.
fn json(text: &[u8], at: Option<usize>) -> Option<ListMeta> {
    Deserializer::from_slice(&text[at? + METADATA.len()..]).into_iter().next()?.ok()
}

/// The metadata of a list in the first bytes of an `Unknown`: the first field of the list.
fn protobuf(message: &[u8]) -> Option<ListMeta> {
    let (type_meta, rest) = field(message, 1)?;
    let list = start_of(rest.get(type_meta..)?, 2)?;
    let (length, metadata) = field(list, 1)?;
    ListMeta::decode(metadata.get(..length)?).ok()
}

/// The length of a length-delimited field, and the bytes after the length.
fn field(message: &[u8], tag: u8) -> Option<(usize, &[u8])> {
    // Wire type 2: length-delimited.
    let mut rest = message.strip_prefix(&[tag << 3 | 2])?;
    let length = prost::encoding::decode_varint(&mut rest).ok()?;
    Some((usize::try_from(length).ok()?, rest))
}

fn start_of(message: &[u8], tag: u8) -> Option<&[u8]> {
    field(message, tag).map(|(_, rest)| rest)
}

impl Write for Ends {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let room = HEAD_BYTES.saturating_sub(self.head.len()).min(piece.len());
        self.head.extend_from_slice(&piece[..room]);
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(TAIL_BYTES)..]);
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::{super::version::tests::unknown, *};

    /// The version of a list and the query of its next page, read in pieces of this size.
    fn read(body: &[u8], piece: usize, is_gzip: bool) -> Option<(String, Option<String>)> {
        let ends = Ends::default();
        let mut list = if is_gzip { List::Gzip(Box::new(GzDecoder::new(ends))) } else { List::Plain(ends) };
        body.chunks(piece).try_for_each(|piece| list.push(piece)).ok()?;
        let metadata = list.metadata().ok()?;
        Some((metadata.resource_version.clone(), metadata.next_page()))
    }

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn protobuf_list(version: &str, next_page: &str) -> Vec<u8> {
        let metadata = ListMeta { resource_version: version.to_owned(), next_page: next_page.to_owned() };
        let metadata = metadata.encode_to_vec();
        let length = u8::try_from(metadata.len()).unwrap();
        unknown([&[0x0a, length][..], &metadata, &[0x12, 3, 1, 2, 3].repeat(9_000)].concat())
    }

    #[test]
    fn metadata_is_found_in_front_of_the_items_and_behind_them() {
        let item = r#"{"metadata":{"resourceVersion":"9","continue":"no"}},"#.repeat(2_000);
        let items = item.trim_end_matches(',');
        let typed = |metadata: &str| {
            format!(r#"{{"kind":"PodList","metadata":{{{metadata}}},"items":[{items}]}}"#).into_bytes()
        };
        let custom = |metadata: &str, items: &str| {
            format!(r#"{{"apiVersion":"a/v1","items":[{items}],"kind":"L","metadata":{{{metadata}}}}}"#).into_bytes()
        };
        let more = r#""resourceVersion":"5","continue":"eyJ2-_","remainingItemCount":5"#;
        let all = r#""continue":"","resourceVersion":"5""#;
        let version = r#""resourceVersion":"5""#;
        for (list, next_page) in [
            (typed(more), Some("continue=eyJ2-_")),
            (typed(all), None),
            (typed(version), None),
            (custom(more, items), Some("continue=eyJ2-_")),
            (custom(all, items), None),
            (custom(version, ""), None),
            (protobuf_list("5", "eyJ2-_"), Some("continue=eyJ2-_")),
            (protobuf_list("5", ""), None),
        ] {
            let expected = Some(("5".to_owned(), next_page.map(str::to_owned)));
            for piece in [1, 1000, 1 << 20] {
                assert_eq!(read(&list, piece, false), expected);
                assert_eq!(read(&gzip(&list), piece, true), expected);
            }
        }
    }

    #[test]
    fn a_broken_list_has_no_metadata() {
        for broken in [&b""[..], b"{", b"k8s\0", b"k8s\0\x0a\xff", b"{\"metadata\":{\"resourceVersion\":\"5"] {
            assert_eq!(read(broken, 3, false), None);
        }
        let list = gzip(br#"{"metadata":{"resourceVersion":"5"},"items":[]}"#);
        assert_eq!(read(&list[..list.len() - 5], 3, true), None);
    }
}
