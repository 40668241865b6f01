//! The representations of objects, lists and events: JSON, only the metadata, or rows of a Table.

use std::sync::Arc;

use serde_json::Value;

use crate::{definition::Definition, json as text, stored::Stored};

use super::{
    bookmark,
    list::{self, Page},
    partial::partial,
    table::TableFormat,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Representation {
    Json,
    /// `PartialObjectMetadata` in this version of meta.k8s.io.
    Metadata(&'static str),
    Table(TableFormat),
}

impl Representation {
    /// The response to a get. This and the other bodies here have no newline at the end.
    pub(crate) fn object(self, definition: &Definition, api_version: &str, object: Arc<Stored>) -> Vec<u8> {
        match self {
            Self::Table(table) => {
                let page = Page { revision: object.revision, objects: vec![object], ..Page::default() };
                table.page(definition, api_version, &page)
            }
            Self::Json | Self::Metadata(_) => self.event_object(definition, api_version, &object, false),
        }
    }

    /// The response to a list.
    pub(crate) fn page(self, definition: &Definition, api_version: &str, page: &Page) -> Vec<u8> {
        match self {
            Self::Json => list::body(definition, api_version, page),
            Self::Table(table) => table.page(definition, api_version, page),
            Self::Metadata(version) => {
                let items = page.objects.iter().map(|object| partial(version, &object.value(api_version)));
                let items: Vec<_> = items.collect();
                let metadata = list::metadata(page);
                let head = r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/"#;
                let mut body = format!(r#"{head}{version}","metadata":{metadata},"items":"#).into_bytes();
                // Only for this kind of list, an empty one is `null` (read-path 4.1).
                text::encode_into(&Some(items).filter(|items| !items.is_empty()), &mut body);
                body.push(b'}');
                body
            }
        }
    }

    /// The object of an event. `first` is set for the first event of the watch.
    pub(crate) fn event_object(
        self,
        definition: &Definition,
        api_version: &str,
        object: &Stored,
        first: bool,
    ) -> Vec<u8> {
        match self {
            Self::Json => {
                let mut body = Vec::new();
                object.write(api_version, &mut body);
                body
            }
            Self::Metadata(version) => text::encode(&partial(version, &object.value(api_version))),
            Self::Table(table) => table.event(definition, api_version, object, first),
        }
    }

    /// The object of a bookmark.
    pub(crate) fn bookmark(
        self,
        definition: &Definition,
        api_version: &str,
        revision: u64,
        initial_end: bool,
        first: bool,
    ) -> Vec<u8> {
        let object = bookmark::object(definition, api_version, revision, initial_end);
        let value = || serde_json::from_slice::<Value>(&object).expect("bookmarks are made of JSON");
        match self {
            Self::Json => object,
            Self::Metadata(version) => text::encode(&partial(version, &value())),
            Self::Table(table) => table.bookmark(definition, &value(), revision, first),
        }
    }
}
