//! What the events of one watch are written as.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use super::{BookmarkTemplate, Form, partial::NotPartial, table::TableEvents};
use crate::store::{Change, FrameKind, Object, Schema, Thaw};
use base::apimachinery::{Encoding, ResourceVersion};

/// The number of changes that are taken from history at a time: their frames are made once for all watchers.
const CHANGES_AT_ONCE: usize = 64;
/// The same for Tables, whose rows are made for each watch from whole objects, and take memory for it alone.
const ROWS_AT_ONCE: usize = 1;

/// Writes the events of one watch. Methods are told for how long it has been open: rows of Tables have ages.
#[derive(Clone, Debug)]
pub enum EventForm {
    Objects(Form),
    /// Boxed, since few watches want Tables.
    Table(Box<TableEvents>),
}

impl EventForm {
    pub fn encoding(&self) -> Encoding {
        match self {
            Self::Objects(form) => form.representation().encoding,
            Self::Table(_) => Encoding::Json,
        }
    }

    /// The number of changes to take from history at a time.
    pub fn changes_at_once(&self) -> usize {
        match self {
            Self::Objects(_) => CHANGES_AT_ONCE,
            Self::Table(_) => ROWS_AT_ONCE,
        }
    }

    /// Notes when the watch is opened.
    pub fn open(&mut self, opened: Timestamp) {
        if let Self::Table(table) = self {
            table.open(opened);
        }
    }

    /// The event of `change` for watchers that see it as `kind`. `thaw` goes from change to change.
    pub fn frame(
        &mut self,
        change: &Change,
        kind: FrameKind,
        open_for: Duration,
        thaw: &mut Thaw,
    ) -> Result<Bytes, NotPartial> {
        match self {
            Self::Objects(form) => form.frame(change, kind, thaw),
            Self::Table(table) => table.frame(change, kind, open_for, thaw),
        }
    }

    /// The length in bytes of the event that [`Self::put_added`] appends, or more. `thaw` goes from object to object.
    pub fn added_len(&self, object: &Object, thaw: &mut Thaw) -> Result<usize, NotPartial> {
        match self {
            Self::Objects(form) => {
                // Metadata may have to be made to know its length.
                if matches!(form, Form::Partial(..)) {
                    object.thaw(thaw);
                }
                form.added_len(object)
            }
            Self::Table(table) => Ok(table.added_len_max(object)),
        }
    }

    /// Appends the synthetic ADDED event of an object that exists when a watch starts.
    pub fn put_added(&mut self, object: &Object, open_for: Duration, events: &mut Vec<u8>) -> Result<(), NotPartial> {
        match self {
            Self::Objects(form) => form.put_added(object, events),
            Self::Table(table) => table.put_added(object, open_for, events),
        }
    }

    /// The template of this watch's bookmarks, derived from the resource's own.
    pub fn bookmark(&mut self, template: &BookmarkTemplate, schema: &Schema) -> Result<BookmarkTemplate, NotPartial> {
        match self {
            Self::Objects(form) => form.bookmark(template),
            Self::Table(table) => table.bookmark(template, schema),
        }
    }

    /// A bookmark at `version`, as an event; `template` is that of [`Self::bookmark`].
    pub fn bookmark_event(&mut self, template: &BookmarkTemplate, version: ResourceVersion) -> Bytes {
        let event = template.event(version);
        match self {
            Self::Objects(_) => event,
            Self::Table(table) => table.bookmark_event(&event, version, false),
        }
    }

    /// The bookmark that ends the initial events, as an event.
    pub fn initial_events_end(&mut self, template: &BookmarkTemplate, version: ResourceVersion) -> Bytes {
        let event = template.initial_events_end(version);
        match self {
            Self::Objects(_) => event,
            Self::Table(table) => table.bookmark_event(&event, version, true),
        }
    }
}
