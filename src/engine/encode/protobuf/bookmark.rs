//! Bookmarks in protobuf: a recorded bookmark of upstream, with another version in it.

use bytes::Bytes;
use prost::Message as _;

use super::{envelope::METADATA, event::event, read::WatchEvent};
use crate::{
    encode::INITIAL_EVENTS_END,
    store::{
        Shape,
        wire::{Fields, InvalidWire, put_bytes},
    },
};
use base::apimachinery::{MetaVersion, ResourceVersion};

/// The bookmark of one resource as upstream writes it. Its object is a zero value that contains every field that is not
/// a pointer, which is why it is recorded and not composed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookmarkTemplate {
    /// The opening of the envelope.
    opening: Bytes,
    /// The fields of the metadata before the version, those between the version and the annotations, and those after
    /// the annotations.
    metadata: [Vec<u8>; 3],
    /// In the order of their keys, without the one that ends the initial events.
    annotations: Vec<Annotation>,
    /// The fields of the object after the metadata.
    rest: Vec<u8>,
}

/// An entry of a map of strings.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, prost::Message)]
struct Annotation {
    #[prost(string, required, tag = "1")]
    key: String,
    #[prost(string, required, tag = "2")]
    value: String,
}

/// What upstream sent as a bookmark does not have the form of one.
#[derive(Debug, thiserror::Error)]
pub enum InvalidBookmark {
    #[error("not a bookmark in protobuf")]
    Wire(#[source] InvalidWire),
    #[error("cannot read the bookmark's annotations")]
    Annotation(#[source] prost::DecodeError),
    #[error("the bookmark's resourceVersion is not a number above zero")]
    Version,
}

/// A recorded bookmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedBookmark {
    pub template: BookmarkTemplate,
    pub version: ResourceVersion,
    /// Whether it ended the initial events.
    pub initial_events_end: bool,
}

/// Fields of `ObjectMeta`.
const RESOURCE_VERSION: u32 = 6;
const ANNOTATIONS: u32 = 12;

impl BookmarkTemplate {
    /// Records one of upstream's bookmark events.
    pub fn record(event: &WatchEvent) -> Result<RecordedBookmark, InvalidBookmark> {
        let opening = Bytes::copy_from_slice(Shape::protobuf(&event.kind, &event.api_version).object_opening());
        let mut template = Self { opening, metadata: Default::default(), annotations: Vec::new(), rest: Vec::new() };
        let mut version = None;
        for field in Fields::of(&event.message) {
            let field = field.map_err(InvalidBookmark::Wire)?;
            if field.number == METADATA {
                version = template.record_metadata(field.value.bytes().map_err(InvalidBookmark::Wire)?)?.or(version);
            } else {
                template.rest.extend_from_slice(&event.message[field.whole]);
            }
        }
        let version = version.ok_or(InvalidBookmark::Version)?;
        let recorded = template.annotations.len();
        template.annotations.retain(|annotation| annotation.key != INITIAL_EVENTS_END);
        let initial_events_end = template.annotations.len() < recorded;
        Ok(RecordedBookmark { template, version, initial_events_end })
    }

    fn record_metadata(&mut self, message: &[u8]) -> Result<Option<ResourceVersion>, InvalidBookmark> {
        let mut version = None;
        for field in Fields::of(message) {
            let field = field.map_err(InvalidBookmark::Wire)?;
            let part = match field.number {
                RESOURCE_VERSION => {
                    let digits = field.value.text().map_err(InvalidBookmark::Wire)?;
                    version = Some(ResourceVersion::parse(digits).map_err(|_| InvalidBookmark::Version)?);
                    continue;
                }
                ANNOTATIONS => {
                    let entry = field.value.bytes().map_err(InvalidBookmark::Wire)?;
                    self.annotations.push(Annotation::decode(entry).map_err(InvalidBookmark::Annotation)?);
                    continue;
                }
                number if number < RESOURCE_VERSION => 0,
                number if number < ANNOTATIONS => 1,
                _ => 2,
            };
            self.metadata[part].extend_from_slice(&message[field.whole]);
        }
        Ok(version)
    }

    /// A bookmark with the `PartialObjectMetadata` of a resource that upstream does not write in protobuf.
    pub fn partial_zero(version: MetaVersion) -> Self {
        Self {
            opening: partial_opening(version),
            // Names, links and uid are empty, the generation is 0, and the time of creation is not set.
            metadata: [b"\x0a\0\x12\0\x1a\0\x22\0\x2a\0".to_vec(), b"\x38\0\x42\0".to_vec(), Vec::new()],
            annotations: Vec::new(),
            rest: Vec::new(),
        }
    }

    /// The bookmark for watches on metadata only, without the annotations that are hidden there.
    pub fn partial(&self, version: MetaVersion, hidden: &[&str]) -> Self {
        let annotations = self.annotations.iter().filter(|annotation| !hidden.contains(&&*annotation.key));
        Self {
            opening: partial_opening(version),
            metadata: self.metadata.clone(),
            annotations: annotations.cloned().collect(),
            rest: Vec::new(),
        }
    }

    /// A bookmark at `version`, as an event.
    pub fn event(&self, version: ResourceVersion) -> Bytes {
        self.with(version, &self.annotations)
    }

    /// The bookmark that ends the initial events, as an event.
    pub fn initial_events_end(&self, version: ResourceVersion) -> Bytes {
        let end = Annotation { key: INITIAL_EVENTS_END.to_owned(), value: "true".to_owned() };
        let mut annotations = [&*self.annotations, &[end]].concat();
        annotations.sort();
        self.with(version, &annotations)
    }

    fn with(&self, version: ResourceVersion, annotations: &[Annotation]) -> Bytes {
        let mut metadata = self.metadata[0].clone();
        put_bytes(&mut metadata, RESOURCE_VERSION, version.to_string().as_bytes());
        metadata.extend_from_slice(&self.metadata[1]);
        for annotation in annotations {
            put_bytes(&mut metadata, ANNOTATIONS, &annotation.encode_to_vec());
        }
        metadata.extend_from_slice(&self.metadata[2]);
        let mut message = Vec::with_capacity(metadata.len() + self.rest.len() + 8);
        put_bytes(&mut message, METADATA, &metadata);
        message.extend_from_slice(&self.rest);
        event("BOOKMARK", &self.opening, &message)
    }
}

fn partial_opening(version: MetaVersion) -> Bytes {
    Bytes::copy_from_slice(Shape::protobuf("PartialObjectMetadata", version.api_version()).object_opening())
}
