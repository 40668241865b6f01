//! `?pretty=true`: compact JSON indented by two spaces, as Go's encoder does it (read-path 4.1).
//!
//! Invariant: what is made at a time is bounded, whatever the depth. An array of numbers below 10,000 levels, which is
//! as deep as API servers accept, is 10,000 times as long when it is indented.

use bytes::Bytes;

/// Re-indents JSON that arrives in pieces. Reads brackets and strings only; values stay unchanged.
#[derive(Debug, Default)]
pub struct Pretty {
    depth: usize,
    in_string: bool,
    escaped: bool,
    last: Last,
    /// Spaces that are still to be written in front of the next byte. `None` if its line break is, too.
    spaces: Option<usize>,
}

/// The last byte outside of strings, as far as it decides what separates the next one from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    /// A bracket was opened and nothing has followed yet: `{}` and `[]` stay together.
    Opened,
    Comma,
    Colon,
    #[default]
    Other,
}

/// What is written in front of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Separation {
    is_line_break: bool,
    spaces: usize,
}

impl Pretty {
    /// Takes bytes from the beginning of `piece`, and returns their indented form: `most` bytes, or fewer if the piece
    /// is used up. White space between values is dropped, including a final newline.
    pub fn push(&mut self, piece: &mut Bytes, most: usize) -> Bytes {
        let mut out = Vec::with_capacity(most.min(piece.len() * 3 / 2));
        let mut taken = 0;
        while let Some(&byte) = piece.get(taken)
            && out.len() < most
        {
            if self.in_string {
                self.read_in_string(byte);
                out.push(byte);
            } else if !byte.is_ascii_whitespace() {
                self.put_separation(byte, &mut out, most);
                if out.len() == most {
                    break;
                }
                self.spaces = None;
                self.read(byte);
                out.push(byte);
            }
            taken += 1;
        }
        drop(piece.split_to(taken));
        out.into()
    }

    /// The length in bytes of the next piece's indented form, which is not made.
    pub fn count(&mut self, piece: &[u8]) -> u64 {
        let mut length = 0_u64;
        for &byte in piece {
            if self.in_string {
                self.read_in_string(byte);
                length = length.saturating_add(1);
            } else if !byte.is_ascii_whitespace() {
                let Separation { is_line_break, spaces } = self.separation(byte);
                self.read(byte);
                length = length.saturating_add(1 + u64::from(is_line_break)).saturating_add(spaces as u64);
            }
        }
        length
    }

    /// Writes what is in front of a byte, or the part of it for which there is room.
    fn put_separation(&mut self, byte: u8, out: &mut Vec<u8>, most: usize) {
        let spaces = self.spaces.unwrap_or_else(|| {
            let Separation { is_line_break, spaces } = self.separation(byte);
            if is_line_break {
                out.push(b'\n');
            }
            spaces
        });
        let now = spaces.min(most - out.len());
        out.resize(out.len() + now, b' ');
        self.spaces = Some(spaces - now);
    }

    fn separation(&self, byte: u8) -> Separation {
        let closes = matches!(byte, b'}' | b']');
        let (is_line_break, spaces) = match self.last {
            Last::Opened => (!closes, if closes { 0 } else { 2 * self.depth }),
            _ if closes => (true, 2 * self.depth.saturating_sub(1)),
            Last::Comma => (true, 2 * self.depth),
            Last::Colon => (false, 1),
            Last::Other => (false, 0),
        };
        Separation { is_line_break, spaces }
    }

    fn read(&mut self, byte: u8) {
        self.last = Last::Other;
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                self.last = Last::Opened;
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b',' => self.last = Last::Comma,
            b':' => self.last = Last::Colon,
            b'"' => self.in_string = true,
            _ => {}
        }
    }

    fn read_in_string(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => self.in_string = false,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// The outputs for input in pieces of `size` bytes, each of at most `most` bytes.
    fn outputs(json: &[u8], size: usize, most: usize) -> Vec<Bytes> {
        let (mut pretty, mut outputs) = (Pretty::default(), Vec::new());
        for piece in json.chunks(size) {
            let mut piece = Bytes::copy_from_slice(piece);
            while !piece.is_empty() {
                let (before, output) = (piece.len(), pretty.push(&mut piece, most));
                assert!(output.len() == most || piece.is_empty(), "{} bytes, of {most}", output.len());
                assert!(!output.is_empty() || piece.len() < before, "nothing was done");
                outputs.push(output);
            }
        }
        outputs
    }

    fn assert_indented(compact: &[u8], indented: &[u8]) {
        for (size, most) in
            [(1, 1), (2, 3), (7, 1), (7, 64), (compact.len(), 1), (compact.len(), 2), (compact.len(), 999)]
        {
            let whole = outputs(compact, size, most).concat();
            assert_eq!(
                String::from_utf8_lossy(&whole),
                String::from_utf8_lossy(indented),
                "pieces of {size} bytes, at most {most}"
            );
            let mut pretty = Pretty::default();
            let count: u64 = compact.chunks(size).map(|piece| pretty.count(piece)).sum();
            assert_eq!(count, indented.len() as u64);
        }
    }

    #[test]
    fn indentation_equals_that_of_go_for_any_pieces() {
        let compact = br#"{"a":{},"b":[],"c":[1,{"d":"x\"{,:[\\"}],"e":null}"#;
        let indented = r#"{
  "a": {},
  "b": [],
  "c": [
    1,
    {
      "d": "x\"{,:[\\"
    }
  ],
  "e": null
}"#;
        assert_indented(compact, indented.as_bytes());
        let spaced = br#" { "a" :{ } , "b":[ ],"c":[1,{"d":"x\"{,:[\\"}] ,"e":null}"#;
        assert_indented(&[&spaced[..], b"\n"].concat(), indented.as_bytes());
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            r#"[ a"\\\\{}\[\],:\n]{0,8}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map(r#"[a-c"\\\\{:, ]{0,3}"#, inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Another implementation indents in the same way.
        #[test]
        fn any_json_is_indented_as_when_it_is_written_so(value in json()) {
            assert_indented(&serde_json::to_vec(&value).unwrap(), &serde_json::to_vec_pretty(&value).unwrap());
        }
    }

    #[test]
    fn nesting_makes_no_output_longer_than_asked_for() {
        const DEPTH: usize = 200_000;
        const NUMBERS: usize = 100_000;
        const MOST: usize = 64 << 10;
        let json = [vec![b'['; DEPTH], b"1,".repeat(NUMBERS), b"1".to_vec(), vec![b']'; DEPTH]].concat();
        let lines = |depth: u64| 1 + 2 * depth;
        let breaks: u64 = (1..DEPTH as u64).map(lines).sum();
        let brackets = 2 * DEPTH as u64 + breaks + breaks + lines(0);
        let numbers = (NUMBERS as u64 + 1) * (lines(DEPTH as u64) + 2) - 1;
        // 120 GB.
        assert_eq!(Pretty::default().count(&json), brackets + numbers);
        let (mut pretty, mut rest) = (Pretty::default(), Bytes::from(json));
        for _ in 0..1_000 {
            let output = pretty.push(&mut rest, MOST);
            assert_eq!(output.len(), MOST);
        }
    }
}
