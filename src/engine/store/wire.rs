//! Walks protobuf's wire format: yields the fields of one message by number, and decodes nested messages only on
//! request.
//!
//! Encodings that Kubernetes never writes (groups, field number 0) are refused, so that two readers cannot interpret
//! them differently.

use std::ops::Range;

/// The bytes are no valid message, or not one that Kubernetes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWire {
    #[error("a field extends past the end of its message")]
    Truncated,
    #[error("a number is longer than 64 bits")]
    Varint,
    #[error("a field has a number or a wire type that Kubernetes does not use")]
    Tag,
    #[error("a field's wire type does not match its number")]
    Type,
    #[error("a string is not UTF-8")]
    Utf8,
}

/// Yields the fields of a message in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    message: &'a [u8],
    at: usize,
}

/// One field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    pub number: u32,
    pub value: Value<'a>,
    /// The position of the whole field in the message, including its tag.
    pub whole: Range<usize>,
    /// The position of the value in the message, without tag and length.
    pub at: Range<usize>,
}

/// The beginning of a field whose value may not have arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    pub number: u32,
    /// The position of the value.
    pub value: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Varint(u64),
    /// 4 or 8 bytes. The gateway reads no such field.
    Fixed,
    /// A string, bytes or a message.
    Bytes(&'a [u8]),
}

/// The largest field number of the format.
const NUMBER_MAX: u64 = (1 << 29) - 1;

impl<'a> Fields<'a> {
    pub fn of(message: &'a [u8]) -> Self {
        Self { message, at: 0 }
    }

    /// The number and the wire type of the next field.
    fn tag(&mut self) -> Result<(u32, u64), InvalidWire> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| (1..=NUMBER_MAX).contains(&u64::from(*number)));
        Ok((number.ok_or(InvalidWire::Tag)?, tag & 7))
    }

    fn read(&mut self) -> Result<Field<'a>, InvalidWire> {
        let start = self.at;
        let (number, wire_type) = self.tag()?;
        let at = self.at;
        let (value, at) = match wire_type {
            0 => (Value::Varint(self.varint()?), at..self.at),
            1 => (Value::Fixed, self.skip(8)?),
            5 => (Value::Fixed, self.skip(4)?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| InvalidWire::Truncated)?;
                let at = self.skip(length)?;
                (Value::Bytes(&self.message[at.clone()]), at)
            }
            _ => return Err(InvalidWire::Tag),
        };
        Ok(Field { number, value, whole: start..self.at, at })
    }

    fn skip(&mut self, length: usize) -> Result<Range<usize>, InvalidWire> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.message.len());
        let at = self.at..end.ok_or(InvalidWire::Truncated)?;
        self.at = at.end;
        Ok(at)
    }

    fn varint(&mut self) -> Result<u64, InvalidWire> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.message.get(self.at).ok_or(InvalidWire::Truncated)?;
            self.at += 1;
            if shift == 63 && byte > 1 {
                return Err(InvalidWire::Varint);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(InvalidWire::Varint)
    }
}

impl Opening {
    /// That of the first field.
    ///
    /// # Errors
    /// [`InvalidWire::Truncated`] if it has not arrived completely.
    pub fn of(message: &[u8]) -> Result<Self, InvalidWire> {
        let mut fields = Fields::of(message);
        let (number, wire_type) = fields.tag()?;
        let at = fields.at;
        let value = match wire_type {
            0 => {
                fields.varint()?;
                at..fields.at
            }
            1 => at..at + 8,
            5 => at..at + 4,
            2 => {
                let length = usize::try_from(fields.varint()?).map_err(|_| InvalidWire::Varint)?;
                fields.at..fields.at.checked_add(length).ok_or(InvalidWire::Varint)?
            }
            _ => return Err(InvalidWire::Tag),
        };
        Ok(Self { number, value })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, InvalidWire>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.message.len() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.at = self.message.len();
        }
        Some(field)
    }
}

impl<'a> Value<'a> {
    pub fn bytes(self) -> Result<&'a [u8], InvalidWire> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) | Self::Fixed => Err(InvalidWire::Type),
        }
    }

    pub fn text(self) -> Result<&'a str, InvalidWire> {
        std::str::from_utf8(self.bytes()?).map_err(|_| InvalidWire::Utf8)
    }

    pub fn varint(self) -> Result<u64, InvalidWire> {
        match self {
            Self::Varint(value) => Ok(value),
            Self::Bytes(_) | Self::Fixed => Err(InvalidWire::Type),
        }
    }
}

/// The length of a number's shortest encoding, which is the one that Kubernetes writes.
pub const fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// The number of bytes that [`put_bytes`] adds for a value of that length.
pub const fn bytes_len(number: u32, length: usize) -> usize {
    varint_len((number as u64) << 3) + varint_len(length as u64) + length
}

/// Appends a string, bytes or a message as the field `number`.
pub fn put_bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    put_length(out, number, value.len());
    out.extend_from_slice(value);
}

/// Appends the tag and length of such a field; the caller appends the value.
pub fn put_length(out: &mut Vec<u8>, number: u32, length: usize) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, length as u64);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(message: &[u8]) -> Result<Vec<(u32, Value<'_>)>, InvalidWire> {
        Fields::of(message).map(|field| field.map(|field| (field.number, field.value))).collect()
    }

    #[test]
    fn fields_are_found_in_order() {
        let message = b"\x0a\x02ab\x10\xac\x02\x8a\x01\x00\x1d1234\x219-------";
        assert_eq!(
            all(message).unwrap(),
            [
                (1, Value::Bytes(b"ab")),
                (2, Value::Varint(300)),
                (17, Value::Bytes(b"")),
                (3, Value::Fixed),
                (4, Value::Fixed)
            ]
        );
    }

    #[test]
    fn encodings_that_kubernetes_does_not_write_are_refused() {
        let rows: [(&[u8], InvalidWire); 8] = [
            (b"\x0a\x03ab", InvalidWire::Truncated),
            (b"\x0a", InvalidWire::Truncated),
            (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", InvalidWire::Truncated),
            (b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", InvalidWire::Varint),
            (b"\x10\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", InvalidWire::Varint),
            (b"\x02\x00", InvalidWire::Tag),
            (b"\x0b\x0c", InvalidWire::Tag),
            (b"\x1d123", InvalidWire::Truncated),
        ];
        for (message, error) in rows {
            assert_eq!(all(message), Err(error), "{message:?}");
        }
    }

    #[test]
    fn lengths_of_numbers_are_those_of_the_shortest_form() {
        for (value, len) in [(0, 1), (127, 1), (128, 2), (16383, 2), (16384, 3), (u64::MAX, 10)] {
            assert_eq!(varint_len(value), len, "{value}");
        }
    }
}
