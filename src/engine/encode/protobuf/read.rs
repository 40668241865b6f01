//! Parses upstream's lists and watches as far as a reflector needs it.

use bytes::{Buf, Bytes, BytesMut};
use prost::Message as _;

use super::{
    meta::{ListMeta, TypeMeta},
    status::StatusMessage,
};
use crate::store::{
    PROTOBUF_MAGIC,
    wire::{Fields, InvalidWire},
};

/// Bytes from upstream that are not the requested message.
#[derive(Debug, thiserror::Error)]
pub enum InvalidMessage {
    #[error("the protobuf envelope is missing")]
    NoEnvelope,
    #[error("the envelope's content has a content encoding")]
    Encoded,
    #[error("not the expected message")]
    Message(#[source] prost::DecodeError),
    #[error("not a list")]
    List(#[source] InvalidWire),
}

/// The envelope around every object.
#[derive(Clone, PartialEq, prost::Message)]
struct Unknown {
    #[prost(message, required, tag = "1")]
    type_meta: TypeMeta,
    #[prost(bytes = "bytes", required, tag = "2")]
    raw: Bytes,
    #[prost(string, required, tag = "3")]
    content_encoding: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WatchEventMessage {
    #[prost(string, required, tag = "1")]
    r#type: String,
    #[prost(message, required, tag = "2")]
    object: RawExtension,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RawExtension {
    #[prost(bytes = "bytes", required, tag = "1")]
    raw: Bytes,
}

impl Unknown {
    fn open(mut bytes: Bytes) -> Result<Self, InvalidMessage> {
        if !bytes.starts_with(PROTOBUF_MAGIC) {
            return Err(InvalidMessage::NoEnvelope);
        }
        bytes.advance(PROTOBUF_MAGIC.len());
        let unknown = Self::decode(bytes).map_err(InvalidMessage::Message)?;
        if unknown.content_encoding.is_empty() { Ok(unknown) } else { Err(InvalidMessage::Encoded) }
    }
}

/// The Status in the body of a response; `None` if the body is not a Status in protobuf.
pub fn read_status(body: Bytes) -> Option<StatusMessage> {
    StatusMessage::decode(Unknown::open(body).ok()?.raw).ok()
}

/// One event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub r#type: String,
    pub api_version: String,
    pub kind: String,
    /// The object's own message, as [`crate::store::Object::from_protobuf`] takes it: a slice of the frame.
    pub message: Bytes,
}

impl WatchEvent {
    /// Parses a frame as [`FrameReader`] returns it.
    pub fn parse(frame: &Bytes) -> Result<Self, InvalidMessage> {
        let message = frame.slice(frame.len().min(LENGTH_LEN)..);
        let event = WatchEventMessage::decode(message).map_err(InvalidMessage::Message)?;
        let Unknown { type_meta: TypeMeta { api_version, kind }, raw, .. } = Unknown::open(event.object.raw)?;
        Ok(Self { r#type: event.r#type, api_version, kind, message: raw })
    }

    /// The Status of an `ERROR` event.
    pub fn status(&self) -> Result<StatusMessage, InvalidMessage> {
        StatusMessage::decode(self.message.clone()).map_err(InvalidMessage::Message)
    }
}

/// A list or one of its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListBody {
    /// For example `PodList`.
    pub kind: String,
    pub api_version: String,
    pub resource_version: String,
    /// Empty on the last page.
    pub r#continue: String,
    list: Bytes,
}

/// Fields of the lists of all built-in types.
const LIST_METADATA: u32 = 1;
pub const LIST_ITEMS: u32 = 2;

impl ListBody {
    pub fn parse(body: Bytes) -> Result<Self, InvalidMessage> {
        let Unknown { type_meta: TypeMeta { api_version, kind }, raw: list, .. } = Unknown::open(body)?;
        let mut metadata = ListMeta::default();
        for field in Fields::of(&list) {
            let field = field.map_err(InvalidMessage::List)?;
            match field.number {
                LIST_METADATA => {
                    let message = field.value.bytes().map_err(InvalidMessage::List)?;
                    metadata.merge(message).map_err(InvalidMessage::Message)?;
                }
                LIST_ITEMS => drop(field.value.bytes().map_err(InvalidMessage::List)?),
                _ => {}
            }
        }
        let ListMeta { resource_version, r#continue, .. } = metadata;
        Ok(Self { kind, api_version, resource_version, r#continue, list })
    }

    /// The objects' own messages in the order of the list: slices of the body.
    pub fn items(&self) -> impl Iterator<Item = Bytes> {
        Fields::of(&self.list)
            .flatten()
            .filter(|field| field.number == LIST_ITEMS)
            .map(|field| self.list.slice(field.at))
    }
}

/// The number of bytes of the big-endian length in front of each frame.
const LENGTH_LEN: usize = 4;

/// A frame longer than [`FrameReader::BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame is longer than {} bytes", FrameReader::BYTES_MAX)]
pub struct FrameTooLong;

/// Splits a watch stream into frames.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: BytesMut,
}

impl FrameReader {
    /// Larger than any object that etcd accepts (1.5 MiB by default, 8 MiB at most in practice).
    pub const BYTES_MAX: usize = 64 << 20;

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame, including its length. The frame is copied into its own allocation, because it may
    /// live long and must not keep the buffer alive.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
        let Some(length) = self.buffer.first_chunk::<LENGTH_LEN>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > Self::BYTES_MAX {
            return Err(FrameTooLong);
        }
        if self.buffer.len() < LENGTH_LEN + length {
            return Ok(None);
        }
        Ok(Some(Bytes::copy_from_slice(&self.buffer.split_to(LENGTH_LEN + length))))
    }
}
