//! Splits a list in protobuf into items while it arrives, as [`super::list_items`] does with JSON: a list is never in
//! memory twice, and what has arrived of it can be counted.

use bytes::{Bytes, BytesMut};

use super::Failure;
use crate::{
    encode::protobuf::{FrameReader, LIST_ITEMS},
    store::{
        PROTOBUF_MAGIC,
        wire::{InvalidWire, Opening, put_bytes},
    },
};

/// The field of the envelope with the list.
const RAW: u32 = 2;
/// The maximum size of a list without its items, in bytes.
const AROUND_MAX: usize = 1 << 20;

/// The parser's state between two pieces of a list.
#[derive(Debug, Default)]
pub(super) struct ProtobufItems {
    /// What has arrived of the next field.
    buffer: BytesMut,
    place: Place,
    /// The fields of the envelope but the list.
    envelope: Vec<u8>,
    /// The fields of the list but the items.
    list: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// In front of the first field of the envelope.
    #[default]
    Magic,
    /// In front of the list.
    Envelope,
    /// In the list, of which this number of bytes is left.
    List(usize),
    /// Behind the list.
    End,
}

impl ProtobufItems {
    /// Processes the next piece. Each item that ends in it is passed to `take`, in an allocation of its own, because it
    /// may live long and must not keep the list alive.
    pub(super) fn push(&mut self, piece: &[u8], mut take: impl FnMut(Bytes)) -> Result<(), Failure> {
        self.buffer.extend_from_slice(piece);
        if self.place == Place::Magic {
            if self.buffer.len() < PROTOBUF_MAGIC.len() {
                return Ok(());
            }
            if !self.buffer.starts_with(PROTOBUF_MAGIC) {
                return Err(Failure::Malformed);
            }
            self.envelope.extend_from_slice(&self.buffer.split_to(PROTOBUF_MAGIC.len()));
            self.place = Place::Envelope;
        }
        while self.field(&mut take)? {}
        if self.envelope.len() + self.list.len() > AROUND_MAX { Err(Failure::Malformed) } else { Ok(()) }
    }

    /// Processes the next field. Returns false if it has not arrived.
    fn field(&mut self, take: &mut impl FnMut(Bytes)) -> Result<bool, Failure> {
        if self.place == Place::List(0) {
            self.place = Place::End;
        }
        let Opening { number, value } = match Opening::of(&self.buffer) {
            Ok(opening) => opening,
            Err(InvalidWire::Truncated) => return Ok(false),
            Err(_) => return Err(Failure::Malformed),
        };
        if self.place == Place::Envelope && number == RAW {
            let _opening = self.buffer.split_to(value.start);
            self.place = Place::List(value.len());
            return Ok(true);
        }
        let rest = match self.place {
            Place::List(left) => Place::List(left.checked_sub(value.end).ok_or(Failure::Malformed)?),
            Place::End if number == RAW => return Err(Failure::Malformed),
            place @ (Place::Magic | Place::Envelope | Place::End) => place,
        };
        let is_item = number == LIST_ITEMS && matches!(rest, Place::List(_));
        if value.end > if is_item { FrameReader::BYTES_MAX } else { AROUND_MAX } {
            return Err(Failure::Malformed);
        }
        if self.buffer.len() < value.end {
            return Ok(false);
        }
        let field = self.buffer.split_to(value.end);
        match rest {
            Place::List(_) if is_item => take(Bytes::copy_from_slice(&field[value.start..])),
            Place::List(_) => self.list.extend_from_slice(&field),
            Place::Magic | Place::Envelope | Place::End => self.envelope.extend_from_slice(&field),
        }
        self.place = rest;
        Ok(true)
    }

    /// The list without its items, once all of it has arrived. Its fields are not validated here.
    pub(super) fn end(mut self) -> Result<Bytes, Failure> {
        if !self.buffer.is_empty() || !matches!(self.place, Place::List(0) | Place::End) {
            return Err(Failure::Malformed);
        }
        put_bytes(&mut self.envelope, RAW, &self.list);
        Ok(self.envelope.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{encode::protobuf::ListBody, store::wire::put_length};

    /// A list of these items, as the API server writes it.
    fn list(items: &[&[u8]]) -> Vec<u8> {
        let mut list = Vec::new();
        put_bytes(&mut list, 1, b"\x0a\x00\x12\x0212\x1a\x04next");
        items.iter().for_each(|item| put_bytes(&mut list, 2, item));
        let mut body = PROTOBUF_MAGIC.to_vec();
        put_bytes(&mut body, 1, b"\x0a\x02v1\x12\x07PodList");
        put_bytes(&mut body, 2, &list);
        put_bytes(&mut body, 3, b"");
        put_bytes(&mut body, 4, b"");
        body
    }

    fn taken(body: &[u8], at_a_time: usize) -> Result<(Vec<Bytes>, Bytes), Failure> {
        let (mut reader, mut items) = (ProtobufItems::default(), Vec::new());
        for piece in body.chunks(at_a_time) {
            reader.push(piece, |item| items.push(item))?;
        }
        Ok((items, reader.end()?))
    }

    #[test]
    fn lists_are_taken_apart_wherever_they_are_cut() {
        let long = [7_u8; 300];
        for items in [&[][..], &[b"".as_slice(), b"one", &long, b"\x0a\x03two"]] {
            let body = list(items);
            for at_a_time in (1..40).chain([1_000]) {
                let (taken, around) = taken(&body, at_a_time).unwrap();
                assert_eq!(taken, items, "{at_a_time}");
                let [around, whole] = [around, body.clone().into()].map(|body| ListBody::parse(body).unwrap());
                assert_eq!(around.items().count(), 0);
                assert_eq!((around.kind, around.api_version), (whole.kind, whole.api_version));
                assert_eq!((around.resource_version, around.r#continue), ("12".to_owned(), "next".to_owned()));
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_no_list_is_refused() {
        let body = list(&[b"one", b"two"]);
        for length in 1..body.len() - 4 {
            assert_eq!(taken(&body[..length], 7), Err(Failure::Malformed), "{length}");
        }
        assert_eq!(taken(b"{\"kind\":\"PodList\"}", 100), Err(Failure::Malformed));
        let mut item_past_the_end = PROTOBUF_MAGIC.to_vec();
        put_length(&mut item_past_the_end, 2, 4);
        put_bytes(&mut item_past_the_end, 2, b"longer than the list");
        assert_eq!(taken(&item_past_the_end, 100), Err(Failure::Malformed));
        let mut twice = body.clone();
        put_bytes(&mut twice, 2, b"");
        assert_eq!(taken(&twice, 100), Err(Failure::Malformed));
        let mut around = PROTOBUF_MAGIC.to_vec();
        put_length(&mut around, 1, AROUND_MAX + 1);
        assert_eq!(taken(&around, 100), Err(Failure::Malformed));
    }
}
