//! `PartialObjectMetadata` in JSON.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::{NotPartial, Source, hidden};
use crate::{
    encode::{JsonBookmark, ListPosition, frame},
    store::Metadata,
};
use base::apimachinery::{MetaVersion, ResourceVersion};

/// Writes the objects of one resource in JSON, without spec and status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialJson {
    version: MetaVersion,
    source: Source,
    /// Everything before the value of `metadata`. List items begin with it, too.
    opening: Bytes,
}

impl PartialJson {
    pub(super) fn new(version: MetaVersion, source: Source) -> Self {
        let api_version = version.api_version();
        let opening = format!("{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{api_version}\",\"metadata\":");
        Self { version, source, opening: opening.into() }
    }

    pub(super) fn source(&self) -> Source {
        self.source
    }

    pub(super) fn object(&self, metadata: &Metadata) -> Bytes {
        [&self.opening, &*metadata.bytes, b"}\n"].concat().into()
    }

    /// Appends an item, with a comma in front of it.
    pub(super) fn put_item(&self, items: &mut Vec<u8>, metadata: &Metadata) {
        items.push(b',');
        items.extend_from_slice(&self.opening);
        items.extend_from_slice(&metadata.bytes);
        items.push(b'}');
    }

    pub(super) fn item_len(&self, metadata_len: usize) -> usize {
        self.opening.len() + metadata_len + 2
    }

    pub(super) fn head(&self, position: &ListPosition, items_len: usize) -> Bytes {
        let (api_version, metadata) = (self.version.api_version(), position.list_meta());
        // Go writes a nil slice as `null`.
        let items = if items_len == 0 { "null" } else { "[" };
        format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\
             \"items\":{items}"
        )
        .into()
    }

    pub(super) fn tail(&self, items_len: usize) -> Bytes {
        Bytes::from_static(if items_len == 0 { b"}\n" } else { b"]}\n" })
    }

    /// The bookmarks of watches on metadata only, derived from the resource's own.
    pub fn bookmark(&self, template: &JsonBookmark) -> Result<JsonBookmark, NotPartial> {
        #[derive(serde::Deserialize)]
        struct Event<'a> {
            #[serde(borrow)]
            object: Bookmark<'a>,
        }

        #[derive(serde::Deserialize)]
        struct Bookmark<'a> {
            #[serde(borrow)]
            metadata: &'a RawValue,
        }

        let event = template.event(ResourceVersion::new(1).expect("not zero"));
        let event: Event<'_> = serde_json::from_slice(&event).map_err(|_| NotPartial)?;
        let metadata = event.object.metadata.get().as_bytes();
        let (range, left) =
            hidden::left_in_json(metadata, self.source.hidden()).ok_or(NotPartial)?.unwrap_or((0..0, String::new()));
        let metadata = [&metadata[..range.start], left.as_bytes(), &metadata[range.end..]].concat();
        let object = [&*self.opening, &metadata, b"}"].concat();
        JsonBookmark::record(&object).map(|(template, _)| template).map_err(|_| NotPartial)
    }

    /// The length in bytes of what [`Self::event`] returns for an object with its own version.
    pub(super) fn event_len(&self, kind: &str, metadata_len: usize) -> usize {
        // The object ends with a brace behind its metadata.
        frame::event_len(kind.as_bytes(), &self.opening, metadata_len + 1)
    }

    /// `version` replaces the object's own version if it is given.
    pub(super) fn event(&self, kind: &str, metadata: &Metadata, version: Option<ResourceVersion>) -> Bytes {
        let Metadata { bytes, version_at } = metadata;
        let version = version.map(|version| version.to_string());
        let version = version.as_ref().map_or(&bytes[version_at.clone()], String::as_bytes);
        let (before, behind) = (&bytes[..version_at.start], &bytes[version_at.end..]);
        let head = [b"{\"type\":\"", kind.as_bytes(), b"\",\"object\":", &self.opening].concat();
        [&*head, before, version, behind, b"}}\n"].concat().into()
    }
}
