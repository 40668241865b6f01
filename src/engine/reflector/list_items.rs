//! Splits a JSON list into items while it arrives, so that a list is never in memory twice. Each item is passed on as
//! soon as it is complete; the text around the items, which is the list without its items, is kept.

use bytes::Bytes;

use super::{Failure, Lines};
use base::json::{Brackets, Nesting};

/// The maximum size of a list without its items, in bytes.
const AROUND_MAX: usize = 1 << 20;

/// The parser's state between two pieces of a list.
#[derive(Debug, Default)]
pub(super) struct ListItems {
    around: Vec<u8>,
    place: Place,
    nesting: Nesting,
    /// The first part of an item that has not arrived completely.
    begun: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Around,
    /// In front of the next item or the end of the items.
    Between,
    Item,
}

impl ListItems {
    /// Processes the next piece. Each item that ends in it is passed to `take`, in an allocation of its own, because it
    /// may live long and must not keep the list alive.
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
                    let Some(end) = self.nesting.end(piece, Brackets::CURLY) else {
                        if self.begun.len() > Lines::BYTES_MAX {
                            return Err(Failure::Malformed);
                        }
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

    /// The list without its items, once all of it has arrived. It is not validated here.
    pub(super) fn end(self) -> Bytes {
        self.around.into()
    }

    /// Processes the text up to the items, and returns the rest of the piece.
    fn walk_around<'a>(&mut self, piece: &'a [u8]) -> Result<&'a [u8], Failure> {
        for (at, &byte) in piece.iter().enumerate() {
            let is_items = byte == b'[' && self.nesting.depth == 1 && !self.nesting.in_string && self.names_items();
            self.around.push(byte);
            if is_items {
                self.place = Place::Between;
                // The nesting is counted separately for each item.
                self.nesting.depth = 0;
                return Ok(&piece[at + 1..]);
            }
            self.nesting.see(byte, Brackets::CURLY);
        }
        if self.around.len() > AROUND_MAX { Err(Failure::Malformed) } else { Ok(&[]) }
    }

    fn names_items(&self) -> bool {
        let before = self.around.trim_ascii_end().strip_suffix(b":");
        before.is_some_and(|before| before.trim_ascii_end().ends_with(b"\"items\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn other_json_than_lists_of_objects_is_refused() {
        assert_eq!(taken(r#"{"items":[1]}"#, 100), Err(Failure::Malformed));
        assert_eq!(taken(&format!("{{\"x\":\"{}\"", "x".repeat(AROUND_MAX)), 1 << 21), Err(Failure::Malformed));
        // The list is cut off, so the text around the items is not valid JSON.
        assert!(serde_json::from_str::<serde_json::Value>(&taken(r#"{"items":[{"a":"#, 3).unwrap().1).is_err());
    }
}
