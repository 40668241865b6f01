//! Finds the end of an object or array.

use std::mem;

use wide::{CmpEq, u8x32};

/// The number of bytes that are scanned together, one bit of a word for each.
const BLOCK: usize = 64;

/// The kind of brackets that is counted. Counting one kind is enough, since in JSON each kind is balanced on its own.
#[derive(Clone, Copy, Debug)]
pub struct Brackets {
    opening: u8,
    closing: u8,
}

impl Brackets {
    /// The brackets of objects.
    pub const CURLY: Self = Self { opening: b'{', closing: b'}' };
    /// The brackets of arrays.
    pub const SQUARE: Self = Self { opening: b'[', closing: b']' };
}

/// The depth in brackets of one kind, and whether the position is in a string: the scanner's state between two pieces
/// of a text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Nesting {
    pub depth: usize,
    pub in_string: bool,
    /// Whether the next byte of the string is escaped.
    is_escaped: bool,
}

impl Nesting {
    /// Processes the next byte.
    pub fn see(&mut self, byte: u8, brackets: Brackets) {
        if mem::take(&mut self.is_escaped) {
            return;
        }
        match (self.in_string, byte) {
            (true, b'\\') => self.is_escaped = true,
            (_, b'"') => self.in_string = !self.in_string,
            (false, byte) if byte == brackets.opening => self.depth += 1,
            (false, byte) if byte == brackets.closing => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// Processes bytes up to the bracket that closes the first one, and returns the index after it; the state is then
    /// reset. `None` if the closing bracket is not in `bytes`.
    pub fn end(&mut self, bytes: &[u8], brackets: Brackets) -> Option<usize> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for (at, block) in blocks.iter().enumerate() {
            if let Some(end) = self.end_in(block, BLOCK, brackets) {
                return Some(at * BLOCK + end);
            }
        }
        let mut last = [0; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        self.end_in(&last, rest.len(), brackets).map(|end| blocks.len() * BLOCK + end)
    }

    /// Like [`Nesting::end`], for the first `length` bytes of a block whose remaining bytes are zero.
    fn end_in(&mut self, block: &[u8; BLOCK], length: usize, brackets: Brackets) -> Option<usize> {
        let (halves, _) = block.as_chunks::<{ BLOCK / 2 }>();
        let places = |byte| {
            let bits = |half: &[u8; BLOCK / 2]| u8x32::from(*half).cmp_eq(u8x32::splat(byte)).move_mask();
            halves.iter().rfold(0, |places, half| places << (BLOCK / 2) | u64::from(bits(half).cast_unsigned()))
        };
        let escaped = self.escaped(places(b'\\'), length);
        let in_string = between(places(b'"') & !escaped) ^ if self.in_string { u64::MAX } else { 0 };
        self.in_string = in_string >> (BLOCK - 1) == 1;
        let (opening, closing) = (places(brackets.opening) & !in_string, places(brackets.closing) & !in_string);
        // Most blocks contain too few closing brackets to end the value.
        if self.depth > closing.count_ones() as usize {
            self.depth = self.depth + opening.count_ones() as usize - closing.count_ones() as usize;
            return None;
        }
        let mut both = opening | closing;
        while both != 0 {
            let first = both & both.wrapping_neg();
            self.depth = if opening & first != 0 { self.depth + 1 } else { self.depth.saturating_sub(1) };
            if self.depth == 0 {
                // The caller scans the rest of the block again.
                *self = Self::default();
                return Some(first.trailing_zeros() as usize + 1);
            }
            both ^= first;
        }
        None
    }

    /// The bytes of a block that are escaped by a backslash that is not escaped itself.
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

/// Sets the bits from each odd one of `bits` (inclusive) up to the next one (exclusive).
fn between(mut bits: u64) -> u64 {
    for distance in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << distance;
    }
    bits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Like [`Nesting::end`], but byte by byte.
    fn end_byte_by_byte(nesting: &mut Nesting, bytes: &[u8], brackets: Brackets) -> Option<usize> {
        let ends = |byte: &u8| {
            nesting.see(*byte, brackets);
            nesting.depth == 0
        };
        bytes.iter().position(ends).map(|at| at + 1)
    }

    /// Brackets, and strings with arbitrary contents.
    fn part() -> impl Strategy<Value = String> {
        let in_string = prop::sample::select(vec!["x", "{", "}", "[", "]", r"\\", r#"\""#, "yyyyyyyyyyyyyyyyyyyyyyyy"]);
        let string = prop::collection::vec(in_string, 0..30).prop_map(|parts| format!("\"{}\"", parts.concat()));
        prop_oneof![prop::sample::select(vec!["{", "}", "[", "]", ","]).prop_map(str::to_owned), string]
    }

    proptest! {
        #[test]
        fn blocks_and_single_bytes_find_the_same_end(
            parts in prop::collection::vec(part(), 0..60),
            deep in 1_usize..4,
            cut in 1_usize..200,
            is_list: bool,
        ) {
            let (brackets, opening) = if is_list { (Brackets::SQUARE, "[[[") } else { (Brackets::CURLY, "{{{") };
            let text = [&opening[..deep], &parts.concat()].concat();
            let (mut blocks, mut bytes) = (Nesting::default(), Nesting::default());
            for piece in text.as_bytes().chunks(cut) {
                let end = blocks.end(piece, brackets);
                prop_assert_eq!(end, end_byte_by_byte(&mut bytes, piece, brackets));
                if end.is_some() {
                    break;
                }
                prop_assert_eq!(&blocks, &bytes);
            }
        }
    }
}
