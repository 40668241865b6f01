//! One line of upstream's watch.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::Failure;
use crate::{
    apimachinery::ResourceVersion,
    encode::{BookmarkTemplate, InvalidBookmark},
    store::{ChangeKind, Object, ReadError, Schema},
};

/// What upstream said.
#[derive(Debug)]
pub enum UpstreamEvent {
    /// The line is the event as it came, newline included.
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

/// A line that ends the watch: one that cannot be used, or that says why upstream ends it.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    #[error("not the JSON of a watch event")]
    Json(#[source] serde_json::Error),
    #[error("{0:?} is no type of event")]
    Type(String),
    #[error("an object of a watch event")]
    Object(#[source] ReadError),
    #[error("upstream ends the watch")]
    Told(#[source] Failure),
    #[error("a bookmark")]
    Bookmark(#[source] InvalidBookmark),
}

#[derive(serde::Deserialize)]
struct Line<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The members of a Status that a reflector looks at.
#[derive(Debug, serde::Deserialize)]
pub struct StatusBody {
    pub code: u16,
    #[serde(default)]
    details: StatusDetails,
}

#[derive(Debug, Default, serde::Deserialize)]
struct StatusDetails {
    #[serde(default)]
    causes: Vec<StatusCause>,
}

#[derive(Debug, serde::Deserialize)]
struct StatusCause {
    #[serde(default)]
    reason: String,
}

impl StatusBody {
    /// The cause that client-go keys on, too (read-path 2, "RV too high").
    pub fn is_too_large(&self) -> bool {
        self.details.causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
    }
}

impl UpstreamEvent {
    /// Reads one whole line. The object's bytes are a part of the line's, not a copy.
    pub fn parse(line: &Bytes, schema: &Schema) -> Result<Self, EventError> {
        let Line { r#type, object } = serde_json::from_slice(line).map_err(EventError::Json)?;
        let object = line.slice_ref(object.get().as_bytes());
        let kind = match r#type {
            "ADDED" => ChangeKind::Added,
            "MODIFIED" => ChangeKind::Modified,
            "DELETED" => ChangeKind::Deleted,
            "BOOKMARK" => return Self::bookmark(&object),
            "ERROR" => return Err(Self::error(&object)),
            other => return Err(EventError::Type(other.to_owned())),
        };
        let object = Object::from_event(object, schema).map_err(EventError::Object)?;
        Ok(Self::Change { kind, object, line: line.clone() })
    }

    fn bookmark(object: &[u8]) -> Result<Self, EventError> {
        let (template, version) = BookmarkTemplate::record(object).map_err(EventError::Bookmark)?;
        let initial_events_end = memchr::memmem::find(object, b"\"k8s.io/initial-events-end\":\"true\"").is_some();
        Ok(Self::Bookmark { version, template, initial_events_end })
    }

    fn error(object: &[u8]) -> EventError {
        match serde_json::from_slice::<StatusBody>(object) {
            Ok(status) => EventError::Told(Failure::from_code(status.code, status.is_too_large())),
            Err(error) => EventError::Json(error),
        }
    }
}
