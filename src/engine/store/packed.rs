//! A state as it is kept outside of the process: its objects in their blocks, as they are, with what a store needs to
//! know of each of them beside. So it is read again without inflating or parsing anything.
//!
//! The one who keeps it has to notice bytes that changed: what is read here is only checked as far as no position is
//! outside of its block, and no key, version or field is missing.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use super::{
    block::{Block, Deflated, PartEnd},
    object::{self, Object},
    schema::Schema,
    snapshot::Snapshot,
};
use base::apimachinery::{ObjectKey, Representation, ResourceVersion, View};

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
}

/// Bytes that are no state, or one that contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packed state cannot be read")]
pub struct NotPacked;

impl PackedHead {
    /// Of a state whose store has that schema.
    pub fn new(state: &Snapshot, schema: &Schema) -> Self {
        let openings = openings(schema).map(<[u8]>::to_vec).into();
        let fields = schema.fields().iter().map(|field| field.label.to_string()).collect();
        Self { version: state.version().value(), objects: state.len() as u64, openings, fields }
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
    objects.into_iter().map(|object| Ok(Arc::new(object.unpacked(&block, schema)?))).collect()
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
        }
    }

    fn unpacked(self, block: &Arc<Block>, schema: &Schema) -> Result<Object, NotPacked> {
        let Self { key, version, labels, fields, tail_len, version_at, metadata_begin, metadata_end, at } = self;
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
            derived: Default::default(),
        };
        let (digits, metadata) = (object.version_at(), object.metadata_at());
        let is_within =
            metadata.start <= digits.start && digits.end <= metadata.end && metadata.end <= object.tail_len();
        let at = at as usize..at as usize + object.tail_len();
        (is_within && block.has_part_with(&at)).then_some(object).ok_or(NotPacked)
    }
}
