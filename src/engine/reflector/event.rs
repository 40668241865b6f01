//! One event of upstream's watch.

use std::borrow::Cow;

use bytes::Bytes;

use super::{Failure, failure::StatusBody};
use crate::{
    encode::{
        BookmarkTemplate, InvalidBookmark, JsonBookmark,
        protobuf::{self, InvalidMessage, RecordedBookmark, WatchEvent},
    },
    store::{ChangeKind, Object, ReadError, Schema, Shape},
};
use base::{
    apimachinery::{Encoding, ResourceVersion},
    json::{InvalidJson, Members, text},
};

/// A parsed event.
#[derive(Debug)]
pub enum UpstreamEvent {
    /// `line` is the event as it arrived: in JSON with its newline, in protobuf with its length.
    Change {
        kind: ChangeKind,
        object: Object,
        line: Bytes,
    },
    Bookmark {
        version: ResourceVersion,
        template: BookmarkTemplate,
        initial_events_end: bool,
    },
}

impl UpstreamEvent {
    /// The version up to which everything is known with the event.
    pub fn version(&self) -> ResourceVersion {
        match self {
            Self::Change { object, .. } => object.version,
            Self::Bookmark { version, .. } => *version,
        }
    }
}

/// An event that ends the watch: it cannot be parsed, or it contains the reason why upstream ended the watch.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    #[error("not a watch event in JSON")]
    Json(#[from] InvalidJson),
    #[error("the watch event has no {0}")]
    Missing(&'static str),
    #[error("not a Status in JSON")]
    Status(#[source] serde_json::Error),
    #[error("not a watch event in protobuf")]
    Message(#[source] InvalidMessage),
    #[error("the object is of another kind")]
    Kind,
    #[error("unknown event type {0:?}")]
    Type(String),
    #[error("cannot read the object of a watch event")]
    Object(#[source] ReadError),
    #[error("upstream ended the watch")]
    Told(#[source] Failure),
    #[error("cannot read a bookmark")]
    Bookmark(#[source] InvalidBookmark),
    #[error("cannot read a bookmark in protobuf")]
    BookmarkMessage(#[source] protobuf::InvalidBookmark),
}

impl UpstreamEvent {
    /// Parses one event as upstream framed it. The object's bytes are a slice of `line`, not a copy.
    pub fn parse(line: &Bytes, schema: &Schema) -> Result<Self, EventError> {
        match schema.shape.encoding() {
            Encoding::Json => Self::parse_json(line, schema),
            Encoding::Protobuf => Self::parse_protobuf(line, schema),
        }
    }

    fn parse_protobuf(frame: &Bytes, schema: &Schema) -> Result<Self, EventError> {
        let event = WatchEvent::parse(frame).map_err(EventError::Message)?;
        let Some(kind) = change_kind(&event.r#type) else { return Self::other_protobuf(&event) };
        if Shape::protobuf(&event.kind, &event.api_version) != schema.shape {
            return Err(EventError::Kind);
        }
        let object = Object::from_protobuf(event.message, schema).map_err(EventError::Object)?;
        Ok(Self::Change { kind, object, line: frame.clone() })
    }

    fn other_protobuf(event: &WatchEvent) -> Result<Self, EventError> {
        match &*event.r#type {
            "BOOKMARK" => {
                let recorded = protobuf::BookmarkTemplate::record(event).map_err(EventError::BookmarkMessage)?;
                let RecordedBookmark { template, version, initial_events_end } = recorded;
                Ok(Self::Bookmark { version, template: BookmarkTemplate::Protobuf(template), initial_events_end })
            }
            "ERROR" => {
                let status = event.status().map_err(EventError::Message)?;
                let code = u16::try_from(status.code).unwrap_or_default();
                Err(EventError::Told(Failure::from_code(code, status.is_too_large())))
            }
            other => Err(EventError::Type(other.to_owned())),
        }
    }

    fn parse_json(line: &Bytes, schema: &Schema) -> Result<Self, EventError> {
        let (r#type, object) = line_members(line)?;
        let object = line.slice_ref(object);
        let kind = match (change_kind(&r#type), &*r#type) {
            (Some(kind), _) => kind,
            (None, "BOOKMARK") => return Self::bookmark(&object),
            (None, "ERROR") => return Err(Self::error(&object)),
            (None, other) => return Err(EventError::Type(other.to_owned())),
        };
        let object = Object::from_event(object, schema).map_err(EventError::Object)?;
        Ok(Self::Change { kind, object, line: line.clone() })
    }

    fn bookmark(object: &[u8]) -> Result<Self, EventError> {
        let (template, version) = JsonBookmark::record(object).map_err(EventError::Bookmark)?;
        let template = BookmarkTemplate::Json(template);
        let initial_events_end = memchr::memmem::find(object, b"\"k8s.io/initial-events-end\":\"true\"").is_some();
        Ok(Self::Bookmark { version, template, initial_events_end })
    }

    fn error(object: &[u8]) -> EventError {
        match serde_json::from_slice::<StatusBody>(object) {
            Ok(status) => EventError::Told(Failure::from_code(status.code, status.is_too_large())),
            Err(error) => EventError::Status(error),
        }
    }
}

/// The type of an event, and its object.
fn line_members(line: &[u8]) -> Result<(Cow<'_, str>, &[u8]), EventError> {
    let (mut kind, mut object) = (None, None);
    for member in Members::of(line)? {
        match member? {
            (name, value) if name == "type" => kind = Some(text(value)?),
            (name, value) if name == "object" => object = Some(value),
            _ => {}
        }
    }
    Ok((kind.ok_or(EventError::Missing("type"))?, object.ok_or(EventError::Missing("object"))?))
}

fn change_kind(word: &str) -> Option<ChangeKind> {
    match word {
        "ADDED" => Some(ChangeKind::Added),
        "MODIFIED" => Some(ChangeKind::Modified),
        "DELETED" => Some(ChangeKind::Deleted),
        _ => None,
    }
}
