//! Shard selectors: parts of a collection by the hash of one field (KEP-5866).

use std::{fmt, hash::Hasher as _, sync::Arc};

use fnv::FnvHasher;

/// The parameter `shardSelector`: the objects whose field has a hash in one of the ranges.
///
/// Understood is `shardRange(field, 'start', 'end')`, and several of one field joined by `||` (read-path 5.5). Both
/// ends are `0x` and 16 lower-case hexadecimal digits; the end is exclusive, and may be 2^64. The API server parses the
/// text as CEL, which has further ways to write the same: these are left to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardSelector {
    field: ShardField,
    /// Shared by all copies.
    ranges: Arc<[ShardRange]>,
}

/// The field that is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShardField {
    Uid,
    /// The empty text for a cluster-scoped object.
    Namespace,
}

/// The hash of a field's value: FNV-1a of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardHash(u64);

/// Both ends are included, so that the range that ends at 2^64 fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ShardRange {
    first: u64,
    last: u64,
}

/// The text is no shard selector, or one that is not understood here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid shard selector: allowed is shardRange(object.metadata.uid, '0x…', '0x…') with 16 hexadecimal digits each, \
     the second one greater or '0x10000000000000000', or at most {RANGES_MAX} of them joined by ||; in place of the \
     uid, all may have object.metadata.namespace"
)]
pub struct InvalidShardSelector;

/// Each is compared with every object. Clients have one or two, one more for each shard that they take over.
const RANGES_MAX: usize = 64;
/// The digits of 2^64, the end of the hashes.
const END: &str = "10000000000000000";
/// What CEL skips between two tokens.
const SPACE: [char; 5] = [' ', '\t', '\r', '\n', '\u{c}'];

impl ShardHash {
    pub fn of(value: &str) -> Self {
        let mut hasher = FnvHasher::default();
        hasher.write(value.as_bytes());
        Self(hasher.finish())
    }

    /// The hash as a number, to be kept.
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl From<u64> for ShardHash {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

impl ShardSelector {
    /// # Errors
    /// The text is not understood.
    pub fn parse(text: &str) -> Result<Self, InvalidShardSelector> {
        let mut rest = Tokens(text);
        let (field, first) = rest.range()?;
        let mut ranges = vec![first];
        while !rest.is_at_end() {
            rest.take("||")?;
            let (other, range) = rest.range()?;
            if other != field || ranges.len() == RANGES_MAX {
                return Err(InvalidShardSelector);
            }
            ranges.push(range);
        }
        Ok(Self { field, ranges: ranges.into() })
    }

    pub const fn field(&self) -> ShardField {
        self.field
    }

    /// Whether an object whose field has that hash is selected.
    pub fn contains(&self, ShardHash(hash): ShardHash) -> bool {
        self.ranges.iter().any(|range| (range.first..=range.last).contains(&hash))
    }

    /// The number of ranges that an object is compared with.
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// The memory that it takes besides itself, in bytes.
    pub fn own_bytes(&self) -> usize {
        size_of::<ShardRange>() * self.ranges.len()
    }
}

/// The canonical text, which the API server puts into `metadata.shardInfo` of lists.
impl fmt::Display for ShardSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field.path();
        for (at, ShardRange { first, last }) in self.ranges.iter().enumerate() {
            let or = if at > 0 { " || " } else { "" };
            write!(formatter, "{or}shardRange({field}, '0x{first:016x}', '0x{:016x}')", u128::from(*last) + 1)?;
        }
        Ok(())
    }
}

impl ShardField {
    const fn path(self) -> &'static str {
        match self {
            Self::Uid => "object.metadata.uid",
            Self::Namespace => "object.metadata.namespace",
        }
    }
}

/// The part of a text that was not read yet.
struct Tokens<'a>(&'a str);

impl<'a> Tokens<'a> {
    fn is_at_end(&mut self) -> bool {
        self.0 = self.0.trim_start_matches(SPACE);
        self.0.is_empty()
    }

    fn take(&mut self, token: &str) -> Result<(), InvalidShardSelector> {
        self.0 = self.0.trim_start_matches(SPACE).strip_prefix(token).ok_or(InvalidShardSelector)?;
        Ok(())
    }

    fn range(&mut self) -> Result<(ShardField, ShardRange), InvalidShardSelector> {
        ["shardRange", "(", "object", ".", "metadata", "."].into_iter().try_for_each(|token| self.take(token))?;
        let field = if self.take("uid").is_ok() {
            ShardField::Uid
        } else {
            self.take("namespace")?;
            ShardField::Namespace
        };
        self.take(",")?;
        let first = self.digits().and_then(number)?;
        self.take(",")?;
        let last = match self.digits()? {
            END => u64::MAX,
            digits => number(digits)?.checked_sub(1).ok_or(InvalidShardSelector)?,
        };
        self.take(")")?;
        if first <= last { Ok((field, ShardRange { first, last })) } else { Err(InvalidShardSelector) }
    }

    /// The digits of a number in quotation marks.
    fn digits(&mut self) -> Result<&'a str, InvalidShardSelector> {
        let quote = if self.take("\"").is_ok() { '"' } else { self.take("'").map(|()| '\'')? };
        let text = self.0.strip_prefix("0x").ok_or(InvalidShardSelector)?;
        let (digits, rest) = text.split_once(quote).ok_or(InvalidShardSelector)?;
        self.0 = rest;
        Ok(digits)
    }
}

fn number(digits: &str) -> Result<u64, InvalidShardSelector> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 16 || !digits.bytes().all(is_digit) {
        return Err(InvalidShardSelector);
    }
    u64::from_str_radix(digits, 16).map_err(|_| InvalidShardSelector)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of that field, with those ends.
    fn range(field: &str, start: &str, end: &str) -> String {
        format!("shardRange(object.metadata.{field}, '0x{start}', '0x{end}')")
    }

    const HALF: &str = "8000000000000000";
    const ZERO: &str = "0000000000000000";

    #[test]
    fn every_hash_is_in_one_part_of_a_split() {
        let parts =
            [range("uid", ZERO, HALF), range("uid", HALF, "c000000000000001"), range("uid", "c000000000000001", END)];
        let parts = parts.map(|text| ShardSelector::parse(&text).unwrap());
        for value in [0, 1, u64::MAX / 2, u64::MAX / 2 + 1, 0xc000_0000_0000_0000, 0xc000_0000_0000_0001, u64::MAX] {
            let of: Vec<_> = parts.iter().filter(|part| part.contains(value.into())).collect();
            assert_eq!(of.len(), 1, "{value:x}: {of:?}");
        }
    }

    /// The vectors of the authors of FNV.
    #[test]
    fn values_are_hashed_as_the_server_hashes_them() {
        for (value, hash) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8_u64)]
        {
            assert_eq!(ShardHash::of(value), hash.into(), "{value}");
        }
    }

    #[test]
    fn the_canonical_text_is_the_one_that_was_parsed() {
        let two = format!("{} || {}", range("namespace", ZERO, HALF), range("namespace", "00000000000000ff", END));
        for text in [range("uid", ZERO, END), range("uid", "ffffffffffffffff", END), two] {
            let selector = ShardSelector::parse(&text).unwrap();
            assert_eq!(selector.to_string(), text);
            let quoted = text.replace('\'', "\"");
            assert_eq!(ShardSelector::parse(&quoted).as_ref(), Ok(&selector));
            let spaced = text.replace(", ", "\t,\n ").replace('.', " . ").replace('(', " ( ");
            assert_eq!(ShardSelector::parse(&format!(" {spaced} ")), Ok(selector));
        }
    }

    #[test]
    fn what_the_server_refuses_or_may_read_otherwise_is_not_understood() {
        let good = range("uid", ZERO, HALF);
        assert!(ShardSelector::parse(&good).is_ok());
        let many = vec![&*good; RANGES_MAX + 1].join("||");
        let texts = [
            String::new(),
            " ".to_owned(),
            range("name", ZERO, HALF),
            range("uid", HALF, HALF),
            range("uid", HALF, ZERO),
            range("uid", END, END),
            range("uid", ZERO, ZERO),
            range("uid", "0", HALF),
            range("uid", ZERO, "800000000000000A"),
            range("uid", ZERO, "+00000000000000a"),
            range("uid", ZERO, "20000000000000000"),
            good.replacen('\'', "\"", 1),
            good.replace("'0x", "' 0x"),
            good.replace("0x", ""),
            format!("({good})"),
            format!("{good} ||"),
            format!("{good} && {good}"),
            format!("{good} {good}"),
            format!("{good} || {}", range("namespace", HALF, END)),
            good.replace("shardRange", "ShardRange"),
            format!("{good}//"),
            many,
        ];
        for text in texts {
            assert_eq!(ShardSelector::parse(&text), Err(InvalidShardSelector), "{text}");
        }
    }
}
