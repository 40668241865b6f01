//! Reads the resource version of a list from its start and its end, in JSON and protobuf. Pure.

use std::io;

use memchr::memmem;
use prost::Message;

use super::version::MAGIC;

/// The numbers of bytes at the start and at the end of a list that are kept: where its version is depends on its type.
const HEAD_BYTES: usize = 16 << 10;
const TAIL_BYTES: usize = 4 << 10;
const VERSION: &[u8] = b"\"resourceVersion\":\"";

#[derive(Clone, PartialEq, Message)]
struct ListMeta {
    #[prost(string, tag = "2")]
    resource_version: String,
}

/// The start and the end of a list. The list is written to it in pieces.
#[derive(Debug, Default)]
pub(super) struct Ends {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Ends {
    /// The version of the list.
    pub(super) fn version(&self) -> Option<String> {
        if let Some(message) = self.head.strip_prefix(MAGIC) {
            return protobuf_list(message);
        }
        let items = memmem::find(&self.head, b"\"items\":").unwrap_or(self.head.len());
        // The metadata of a list is before its items for built-in types, and after them for custom resources.
        text(&self.head[..items], memmem::find(&self.head[..items], VERSION))
            .or_else(|| text(&self.tail, memmem::rfind(&self.tail, VERSION)))
    }
}

fn text(json: &[u8], at: Option<usize>) -> Option<String> {
    let rest = &json[at? + VERSION.len()..];
    Some(std::str::from_utf8(&rest[..memchr::memchr(b'"', rest)?]).ok()?.to_owned())
}

/// The version of a list in the first bytes of an `Unknown`. The metadata is the first field of the list.
fn protobuf_list(message: &[u8]) -> Option<String> {
    let (type_meta, rest) = field(message, 1)?;
    let list = start_of(rest.get(type_meta..)?, 2)?;
    let (length, metadata) = field(list, 1)?;
    Some(ListMeta::decode(metadata.get(..length)?).ok()?.resource_version)
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

impl io::Write for Ends {
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
    use std::io::Write;

    use super::{super::version::tests::unknown, *};

    fn list_version(list: &[u8], piece: usize) -> Option<String> {
        let mut ends = Ends::default();
        list.chunks(piece).for_each(|piece| ends.write_all(piece).unwrap());
        ends.version()
    }

    #[test]
    fn the_version_of_a_list_is_found_in_front_of_its_items_and_behind_them() {
        let item = r#"{"metadata":{"resourceVersion":"9"}},"#.repeat(2_000);
        let items = item.trim_end_matches(',');
        let typed = format!(r#"{{"kind":"PodList","metadata":{{"resourceVersion":"77"}},"items":[{items}]}}"#);
        let custom = format!(
            r#"{{"apiVersion":"a/v1","items":[{items}],"kind":"L","metadata":{{"continue":"","resourceVersion":"78"}}}}"#
        );
        let empty = r#"{"apiVersion":"a/v1","items":[],"kind":"L","metadata":{"resourceVersion":"79"}}"#;
        for piece in [1, 1000, 1 << 20] {
            assert_eq!(list_version(typed.as_bytes(), piece).as_deref(), Some("77"));
            assert_eq!(list_version(custom.as_bytes(), piece).as_deref(), Some("78"));
            assert_eq!(list_version(empty.as_bytes(), piece).as_deref(), Some("79"));
        }
        let metadata = ListMeta { resource_version: "80".to_owned() }.encode_to_vec();
        let list =
            [&[0x0a, u8::try_from(metadata.len()).unwrap()][..], &metadata, &[0x12, 3, 1, 2, 3].repeat(9_000)].concat();
        assert_eq!(list_version(&unknown(list), 1000).as_deref(), Some("80"));
        for broken in [&b""[..], b"{", b"k8s\0", b"k8s\0\x0a\xff", b"{\"metadata\":{\"resourceVersion\":\"5"] {
            assert_eq!(list_version(broken, 3), None);
        }
    }
}
