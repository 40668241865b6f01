//! A state as it is kept outside of the process: its objects in their blocks, as they are, with what a store needs to
//! know of each of them beside. So it is read again without inflating or parsing anything.
//!
//! It consists of records: its head, and runs of objects, each behind a [`RecordHead`], by which bytes that changed are
//! noticed. What [`unpack`] reads is only checked as far as no position is outside of its block, and no key, version or
//! field is missing; [`crate::encode::unpack_verified`] reads what others have written.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use prost::Message;

use super::{
    block::{Block, Deflated, PartEnd},
    object::{self, Object},
    schema::Schema,
};
use base::apimachinery::{ObjectKey, Representation, ResourceVersion, View};

/// Another number with every change of what is kept of an object, or of how it is read from the object's bytes.
pub const PACKED_FORMAT: &str = "4";
/// The maximum number of bytes of a record: far more than the largest object takes.
const RECORD_MAX: u32 = 64 << 20;

/// What is in front of a record: its length and its CRC-32, each as four bytes, least significant first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    length: u32,
    checksum: u32,
}

/// What the state is of, and how many objects it has.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PackedHead {
    #[prost(uint64, tag = "1")]
    version: u64,
    #[prost(uint64, tag = "2")]
    objects: u64,
    /// How objects begin, in lists and elsewhere: shapes differ in that.
    #[prost(bytes = "vec", repeated, tag = "3")]
    openings: Vec<Vec<u8>>,
    /// The labels of the schema's fields, in their order.
    #[prost(string, repeated, tag = "4")]
    fields: Vec<String>,
}

/// Neighbouring objects in one block.
#[derive(Clone, PartialEq, prost::Message)]
struct Run {
    #[prost(message, repeated, tag = "1")]
    objects: Vec<PackedObject>,
    #[prost(bytes = "vec", tag = "2")]
    blocks: Vec<u8>,
    #[prost(uint32, tag = "3")]
    checksum: u32,
    #[prost(uint64, tag = "4")]
    length: u64,
    #[prost(uint32, tag = "5")]
    prefix: u32,
    /// The ends of the parts in the text, and in the compressed bytes.
    #[prost(uint32, repeated, tag = "6")]
    text_ends: Vec<u32>,
    #[prost(uint32, repeated, tag = "7")]
    packed_ends: Vec<u32>,
}

/// What is known of an object without inflating it.
#[derive(Clone, PartialEq, prost::Message)]
struct PackedObject {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(uint64, tag = "2")]
    version: u64,
    /// Keys and values in turns.
    #[prost(string, repeated, tag = "3")]
    labels: Vec<String>,
    /// The values of the fields that are not in the key.
    #[prost(string, repeated, tag = "4")]
    fields: Vec<String>,
    #[prost(uint32, tag = "5")]
    tail_len: u32,
    #[prost(uint32, tag = "6")]
    version_at: u32,
    #[prost(uint32, tag = "7")]
    metadata_begin: u32,
    #[prost(uint32, tag = "8")]
    metadata_end: u32,
    /// The position of the tail in the text of the block.
    #[prost(uint32, tag = "9")]
    at: u32,
    #[prost(fixed64, tag = "10")]
    uid_hash: u64,
}

/// Bytes that are no state, or one that contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packed state cannot be read")]
pub struct NotPacked;

impl RecordHead {
    /// The number of bytes of a head.
    pub const LEN: usize = 8;

    /// `None` if the record is too large to be one.
    fn of(record: &[u8]) -> Option<Self> {
        let length = u32::try_from(record.len()).ok().filter(|length| *length <= RECORD_MAX)?;
        Some(Self { length, checksum: crc32fast::hash(record) })
    }

    /// `None` if it is the head of no record.
    pub fn read(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let (&length, &checksum) = (bytes.first_chunk()?, bytes.last_chunk()?);
        let (length, checksum) = (u32::from_le_bytes(length), u32::from_le_bytes(checksum));
        Some(Self { length, checksum }).filter(|head| head.length <= RECORD_MAX)
    }

    /// The record behind its head; `None` if it is too large to be one, which no object of upstream is.
    pub fn before(record: &[u8]) -> Option<Vec<u8>> {
        let Self { length, checksum } = Self::of(record)?;
        Some([&length.to_le_bytes()[..], &checksum.to_le_bytes(), record].concat())
    }

    /// The number of bytes of the record.
    pub fn record_len(self) -> usize {
        self.length as usize
    }

    /// Whether the record is whole.
    pub fn is_of(self, record: &[u8]) -> bool {
        Self::of(record) == Some(self)
    }
}

/// Records, taken out of bytes that arrive in pieces.
#[derive(Debug, Default)]
pub struct Records(BytesMut);

impl Records {
    pub fn push(&mut self, piece: &[u8]) {
        self.0.extend_from_slice(piece);
    }

    /// The next record without its head; `None` as long as not all of it has arrived.
    ///
    /// # Errors
    /// It is none.
    pub fn take(&mut self) -> Result<Option<Bytes>, NotPacked> {
        let Some(head) = self.0.first_chunk() else { return Ok(None) };
        let head = RecordHead::read(head).ok_or(NotPacked)?;
        let length = RecordHead::LEN + head.record_len();
        if self.0.len() < length {
            return Ok(None);
        }
        let record = self.0.split_to(length).freeze().slice(RecordHead::LEN..);
        head.is_of(&record).then_some(Some(record)).ok_or(NotPacked)
    }

    /// Whether nothing of a further record has arrived.
    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }
}

impl PackedHead {
    /// Of a state at that version with so many objects, whose store has that schema.
    pub fn new(version: ResourceVersion, objects: usize, schema: &Schema) -> Self {
        let openings = openings(schema).map(<[u8]>::to_vec).into();
        let fields = schema.fields().iter().map(|field| field.label.to_string()).collect();
        Self { version: version.value(), objects: objects as u64, openings, fields }
    }

    /// # Errors
    /// It is none.
    pub fn read(bytes: &[u8]) -> Result<Self, NotPacked> {
        Self::decode(bytes).map_err(|_| NotPacked)
    }

    /// Whether a store with that schema can have the objects.
    pub fn is_of(&self, schema: &Schema) -> bool {
        let fields = schema.fields().iter().map(|field| &*field.label);
        self.openings == openings(schema) && self.fields.iter().map(String::as_str).eq(fields)
    }

    /// `None` if there is none.
    pub fn version(&self) -> Option<ResourceVersion> {
        ResourceVersion::new(self.version)
    }

    pub fn objects(&self) -> u64 {
        self.objects
    }
}

fn openings(schema: &Schema) -> [&[u8]; 2] {
    [schema.shape.item_opening(), schema.shape.object_opening()]
}

/// The objects of a block that has nothing else, with the positions of their tails in its text.
pub(crate) fn pack(objects: &[Arc<Object>], block: &Block, positions: &[u32]) -> Vec<u8> {
    let objects = objects.iter().zip(positions).map(|(object, at)| PackedObject::new(object, *at)).collect();
    let Deflated { blocks, checksum, length } = block.all();
    let (text_ends, packed_ends) =
        block.parts().map(|end| (object::position(end.text), object::position(end.packed))).unzip();
    let (blocks, prefix) = (blocks.to_vec(), object::position(block.prefix()));
    let (checksum, length) = (*checksum, *length);
    Run { objects, blocks, checksum, length, prefix, text_ends, packed_ends }.encode_to_vec()
}

/// The objects of one run, in one block.
///
/// # Errors
/// It is none, or not of that schema.
pub fn unpack(bytes: &[u8], schema: &Schema) -> Result<Vec<Arc<Object>>, NotPacked> {
    unpack_block(bytes, schema).map(|(_, objects)| objects)
}

/// The same, with the block.
///
/// # Errors
/// It is none, or not of that schema.
pub(crate) fn unpack_block(bytes: &[u8], schema: &Schema) -> Result<(Arc<Block>, Vec<Arc<Object>>), NotPacked> {
    let Run { objects, blocks, checksum, length, prefix, text_ends, packed_ends } =
        Run::decode(bytes).map_err(|_| NotPacked)?;
    let end = |(text, packed): (u32, u32)| PartEnd { text: text as usize, packed: packed as usize };
    let parts: Vec<_> = text_ends.into_iter().zip(packed_ends).map(end).collect();
    let first = PartEnd { text: 0, packed: prefix as usize };
    let follow = |(before, next): (&PartEnd, &PartEnd)| before.text < next.text && before.packed <= next.packed;
    let is_whole = parts.last().is_some_and(|end| end.text as u64 == length && end.packed <= blocks.len());
    if !is_whole || ![first].iter().chain(&parts).zip(&parts).all(follow) {
        return Err(NotPacked);
    }
    let deflated = Deflated { blocks: Bytes::from(blocks.into_boxed_slice()), checksum, length };
    let form = Representation { encoding: schema.shape.encoding(), view: View::Whole };
    let block = Arc::new(Block::new(form, deflated, first.packed, parts, schema.budget().clone()));
    let objects: Result<_, _> =
        objects.into_iter().map(|object| Ok(Arc::new(object.unpacked(&block, schema)?))).collect();
    Ok((block, objects?))
}

impl PackedObject {
    fn new(object: &Object, at: u32) -> Self {
        let metadata = object.metadata_at();
        Self {
            key: object.key.as_str().to_owned(),
            version: object.version.value(),
            labels: object.labels().iter().flat_map(|(key, value)| [key.to_owned(), value.to_owned()]).collect(),
            fields: object.selectable.fields.iter().map(|value| value.to_string()).collect(),
            tail_len: object.tail_len,
            version_at: object.version_at,
            metadata_begin: object::position(metadata.start),
            metadata_end: object::position(metadata.end),
            at,
            uid_hash: object.uid_hash.value(),
        }
    }

    fn unpacked(self, block: &Arc<Block>, schema: &Schema) -> Result<Object, NotPacked> {
        let Self { key, version, labels, fields, tail_len, version_at, metadata_begin, metadata_end, at, uid_hash } =
            self;
        let version = ResourceVersion::new(version).ok_or(NotPacked)?;
        let (namespace, name) = key.split_once('/').map_or((None, &*key), |(namespace, name)| (Some(namespace), name));
        let pairs = labels.chunks_exact(2);
        let is_even = pairs.remainder().is_empty();
        let selectable = schema
            .selectable_again(pairs.map(|pair| (&*pair[0], &*pair[1])), fields.iter().map(|value| &**value))
            .filter(|_| is_even)
            .ok_or(NotPacked)?;
        let object = Object {
            key: ObjectKey::new(namespace, name),
            version,
            selectable,
            tail: (block.clone(), at).into(),
            tail_len,
            version_at,
            metadata_at: (metadata_begin as usize..metadata_end as usize).into(),
            uid_hash: uid_hash.into(),
            derived: Default::default(),
        };
        let (digits, metadata) = (object.version_at(), object.metadata_at());
        let is_within =
            metadata.start <= digits.start && digits.end <= metadata.end && metadata.end <= object.tail_len();
        let at = at as usize..at as usize + object.tail_len();
        (is_within && block.has_part_with(&at)).then_some(object).ok_or(NotPacked)
    }
}
