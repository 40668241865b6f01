//! A list in JSON, taken apart while it comes: each item is given out when all of it is there, so that no list is ever in
//! memory twice. What stands around the items is kept: the list without them.

use std::mem;

use bytes::Bytes;
use wide::u8x64;

use super::Failure;

/// Bytes that are looked at together, a bit of a word for each.
const BLOCK: usize = 64;
/// The most that a list may say beside its items.
const AROUND_MAX: usize = 1 << 20;

/// The state between two pieces of a list.
#[derive(Debug, Default)]
pub(super) struct ListItems {
    around: Vec<u8>,
    place: Place,
    nesting: Nesting,
    /// An item of which not all has come.
    begun: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Around,
    /// Where the next item begins, or their end.
    Between,
    Item,
}

/// How deep in braces, and whether in a string.
#[derive(Debug, Default, PartialEq, Eq)]
struct Nesting {
    depth: usize,
    in_string: bool,
    /// The next byte of the string means nothing.
    is_escaped: bool,
}

impl ListItems {
    /// Takes the next piece; each item that ends in it goes to `take`, in an allocation of its own: it may live long, the
    /// list must not live with it.
    pub(super) fn push(&mut self, mut piece: &[u8], mut take: impl FnMut(Bytes)) -> Result<(), Failure> {
        while let Some(&next) = piece.first() {
            match self.place {
                Place::Around => piece = self.walk_around(piece)?,
                Place::Between if next == b'{' => self.place = Place::Item,
                Place::Between if next == b']' => {
                    self.place = Place::Around;
                    self.around.push(next);
                    self.nesting.depth = 1;
                    piece = &piece[1..];
                }
                Place::Between if next == b',' || next.is_ascii_whitespace() => piece = &piece[1..],
                Place::Between => return Err(Failure::Malformed),
                Place::Item => {
                    let Some(end) = self.nesting.end(piece) else {
                        self.begun.extend_from_slice(piece);
                        return Ok(());
                    };
                    let (item, rest) = piece.split_at(end);
                    if self.begun.is_empty() {
                        take(Bytes::copy_from_slice(item));
                    } else {
                        self.begun.extend_from_slice(item);
                        take(Bytes::copy_from_slice(&self.begun));
                        self.begun.clear();
                    }
                    (piece, self.place) = (rest, Place::Between);
                }
            }
        }
        Ok(())
    }

    /// The list without its items, when all of it has come. Whether it is one, its reader has to see.
    pub(super) fn end(self) -> Bytes {
        self.around.into()
    }

    /// Up to where the items begin; gives back what lies behind.
    fn walk_around<'a>(&mut self, piece: &'a [u8]) -> Result<&'a [u8], Failure> {
        for (at, &byte) in piece.iter().enumerate() {
            let is_items = byte == b'[' && self.nesting.depth == 1 && !self.nesting.in_string && self.names_items();
            self.around.push(byte);
            if is_items {
                self.place = Place::Between;
                // Items count their own.
                self.nesting.depth = 0;
                return Ok(&piece[at + 1..]);
            }
            self.nesting.see(byte);
        }
        if self.around.len() > AROUND_MAX { Err(Failure::Malformed) } else { Ok(&[]) }
    }

    fn names_items(&self) -> bool {
        let before = self.around.trim_ascii_end().strip_suffix(b":");
        before.is_some_and(|before| before.trim_ascii_end().ends_with(b"\"items\""))
    }
}

impl Nesting {
    fn see(&mut self, byte: u8) {
        if mem::take(&mut self.is_escaped) {
            return;
        }
        match (self.in_string, byte) {
            (true, b'\\') => self.is_escaped = true,
            (_, b'"') => self.in_string = !self.in_string,
            (false, b'{') => self.depth += 1,
            (false, b'}') => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// Behind the brace that closes the first one of all; `None` if it is still to come.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for (at, block) in blocks.iter().enumerate() {
            if let Some(end) = self.end_in(block, BLOCK) {
                return Some(at * BLOCK + end);
            }
        }
        let mut last = [0; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        self.end_in(&last, rest.len()).map(|end| blocks.len() * BLOCK + end)
    }

    /// The same in the first `length` bytes of a block, of which the others are zeros.
    fn end_in(&mut self, block: &[u8; BLOCK], length: usize) -> Option<usize> {
        let block = u8x64::from(*block);
        let places = |byte| block.simd_eq(u8x64::splat(byte)).to_bitmask();
        let escaped = self.escaped(places(b'\\'), length);
        let in_string = between(places(b'"') & !escaped) ^ if self.in_string { u64::MAX } else { 0 };
        self.in_string = in_string >> (BLOCK - 1) == 1;
        let (opening, closing) = (places(b'{') & !in_string, places(b'}') & !in_string);
        // Most blocks cannot close that many.
        if self.depth > closing.count_ones() as usize {
            self.depth = self.depth + opening.count_ones() as usize - closing.count_ones() as usize;
            return None;
        }
        let mut braces = opening | closing;
        while braces != 0 {
            let brace = braces & braces.wrapping_neg();
            self.depth = if opening & brace != 0 { self.depth + 1 } else { self.depth.saturating_sub(1) };
            if self.depth == 0 {
                // What stands behind it in the block is read again.
                *self = Self::default();
                return Some(brace.trailing_zeros() as usize + 1);
            }
            braces ^= brace;
        }
        None
    }

    /// Which bytes of a block mean nothing, for they stand behind a backslash that does.
    fn escaped(&mut self, mut backslashes: u64, length: usize) -> u64 {
        if length == 0 {
            return 0;
        }
        let mut escaped = u64::from(mem::take(&mut self.is_escaped));
        backslashes &= !escaped;
        while backslashes != 0 {
            let behind = backslashes.trailing_zeros() as usize + 1;
            if behind == length {
                self.is_escaped = true;
                break;
            }
            escaped |= 1 << behind;
            backslashes &= !(0b11 << (behind - 1));
        }
        escaped
    }
}

/// From each odd one of `bits`, itself included, up to the next one.
fn between(mut bits: u64) -> u64 {
    for distance in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << distance;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken(list: &str, at_a_time: usize) -> Result<(Vec<String>, String), Failure> {
        let (mut reader, mut items) = (ListItems::default(), Vec::new());
        for piece in list.as_bytes().chunks(at_a_time) {
            reader.push(piece, |item| items.push(String::from_utf8(item.to_vec()).unwrap()))?;
        }
        Ok((items, String::from_utf8(reader.end().to_vec()).unwrap()))
    }

    #[test]
    fn lists_are_taken_apart_wherever_they_are_cut() {
        let items = [
            r#"{"metadata":{"name":"a","annotations":{"json":"{\"items\":[{}]}\\"}}}"#,
            r#"{"items":[{},{"a":"}"}],"b":"\\\"{"}"#,
            "{}",
        ];
        for list in [
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[@]}"#,
            r#"{"apiVersion":"e/v1","items":[@],"kind":"AList","metadata":{"items":["\"items\":["],"continue":"x"}}"#,
            "{\n \"other\": [[]],\n \"items\" : [ @ ] }\n",
            r#"{"kind":"PodList","items":null}"#,
        ] {
            let whole = list.replace('@', &items.join(","));
            let expected = if list.contains('@') { items.to_vec() } else { Vec::new() };
            for at_a_time in (1..40).chain([1000]) {
                let (taken, around) = taken(&whole, at_a_time).unwrap();
                assert_eq!(taken, expected, "{at_a_time}");
                let around: serde_json::Value = serde_json::from_str(&around).unwrap();
                let mut without: serde_json::Value = serde_json::from_str(&whole).unwrap();
                if let Some(items) = without["items"].as_array_mut() {
                    items.clear();
                }
                assert_eq!(around, without);
            }
        }
    }

    /// As [`Nesting::end`], byte by byte.
    fn end_byte_by_byte(nesting: &mut Nesting, bytes: &[u8]) -> Option<usize> {
        let ends = |byte: &u8| {
            nesting.see(*byte);
            nesting.depth == 0
        };
        bytes.iter().position(ends).map(|at| at + 1)
    }

    /// Braces, and strings with whatever strings may have.
    fn part() -> impl Strategy<Value = String> {
        let in_string = prop::sample::select(vec!["x", "{", "}", r"\\", r#"\""#, "yyyyyyyyyyyyyyyyyyyyyyyy"]);
        let string = prop::collection::vec(in_string, 0..30).prop_map(|parts| format!("\"{}\"", parts.concat()));
        prop_oneof![Just("{".to_owned()), Just("}".to_owned()), Just(",".to_owned()), string]
    }

    proptest! {
        #[test]
        fn an_object_ends_where_it_does_byte_by_byte(
            parts in prop::collection::vec(part(), 0..60),
            deep in 1_usize..4,
            cut in 1_usize..200,
        ) {
            let text = [&"{{{"[..deep], &parts.concat()].concat();
            let (mut blocks, mut bytes) = (Nesting::default(), Nesting::default());
            for piece in text.as_bytes().chunks(cut) {
                let end = blocks.end(piece);
                prop_assert_eq!(end, end_byte_by_byte(&mut bytes, piece));
                if end.is_some() {
                    break;
                }
                prop_assert_eq!(&blocks, &bytes);
            }
        }
    }

    #[test]
    fn what_is_no_list_of_objects_is_refused() {
        assert_eq!(taken(r#"{"items":[1]}"#, 100), Err(Failure::Malformed));
        assert_eq!(taken(&format!("{{\"x\":\"{}\"", "x".repeat(AROUND_MAX)), 1 << 21), Err(Failure::Malformed));
        // Cut off: what is left is no JSON, and its reader says so.
        assert!(serde_json::from_str::<serde_json::Value>(&taken(r#"{"items":[{"a":"#, 3).unwrap().1).is_err());
    }
}
