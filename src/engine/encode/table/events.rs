//! The events of a watch as Tables of one row (read-path 3.8). The columns are in the first event of a watch only,
//! whatever it is, and ages are those of the time at which an event is made: so events are made for each watch.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use jiff::Timestamp;

use super::{Columns, Rows, Unprintable, put_object};
use crate::{
    encode::{BookmarkTemplate, Form, JsonBookmark, partial::NotPartial},
    store::{Change, FrameKind, Object, Schema, Thaw},
};
use base::apimachinery::{MetaVersion, ResourceVersion};

/// The end of every event, behind its row's object.
const END: &[u8] = b"}]}}\n";

/// Writes the events of one watch.
#[derive(Clone, Debug)]
pub struct TableEvents {
    version: MetaVersion,
    rows: Rows,
    /// How the object of each row is written; `None` if rows have none.
    object: Option<Form>,
    /// How the object of the bookmark that ends initial events is written if the others have none.
    metadata: Form,
    /// When the watch was opened.
    opened: Timestamp,
    /// Whether an event has had the columns.
    has_columns: bool,
    /// The cells of bookmarks: those of a zero value.
    bookmark_cells: Bytes,
}

impl TableEvents {
    /// `metadata` writes metadata in that version. `open` must be called before the first event.
    pub fn new(columns: Arc<Columns>, version: MetaVersion, object: Option<Form>, metadata: Form) -> Self {
        let (opened, has_columns, bookmark_cells) = (Timestamp::UNIX_EPOCH, false, Bytes::new());
        let rows = Rows::new(columns, None, opened);
        Self { version, rows, object, metadata, opened, has_columns, bookmark_cells }
    }

    pub(in crate::encode) fn open(&mut self, opened: Timestamp) {
        self.opened = opened;
    }

    /// Makes bookmarks possible: `template` is the resource's own, from which those of this watch are made. Returns the
    /// template for the objects of their rows.
    pub fn bookmark(&mut self, template: &BookmarkTemplate, schema: &Schema) -> Result<BookmarkTemplate, NotPartial> {
        let BookmarkTemplate::Json(bookmark) = template else { return Err(NotPartial) };
        let zero = zero_value(bookmark, schema).ok_or(NotPartial)?;
        let mut cells = Vec::new();
        self.rows.put_cells(&zero, &mut cells).map_err(|Unprintable| NotPartial)?;
        self.bookmark_cells = cells.into();
        self.object.as_ref().unwrap_or(&self.metadata).bookmark(template)
    }

    /// A bookmark. `object` is the event that the template of [`Self::bookmark`] makes for it.
    pub fn bookmark_event(&mut self, object: &Bytes, version: ResourceVersion, ends_initial_events: bool) -> Bytes {
        let mut event = Vec::new();
        self.begin("BOOKMARK", version, &mut event);
        event.extend_from_slice(&self.bookmark_cells);
        let has_object = self.object.is_some() || ends_initial_events;
        put_object(has_object.then(|| object_of("BOOKMARK", object)), &mut event);
        event.extend_from_slice(END);
        event.into()
    }

    /// The event of `change` for a watcher that sees it as `kind`.
    pub fn frame(
        &mut self,
        change: &Change,
        kind: FrameKind,
        open_for: Duration,
        thaw: &mut Thaw,
    ) -> Result<Bytes, NotPartial> {
        let (name, source) = (kind.as_str(), change.source(kind));
        // Shared with the watches that get the object alone.
        let object = self.object.as_ref().map(|form| form.frame(change, kind, thaw)).transpose()?;
        source.thaw(thaw);
        let mut event = Vec::new();
        let version = if kind == FrameKind::Left { change.version } else { source.version };
        self.put(name, source, version, object.as_ref().map(|object| object_of(name, object)), open_for, &mut event)?;
        Ok(event.into())
    }

    /// The maximum length in bytes of the event that [`Self::put_added`] appends, as long as no cell is longer than the
    /// object.
    pub fn added_len_max(&self, object: &Object) -> usize {
        let columns = if self.has_columns { 0 } else { self.rows.columns.definitions.len() };
        columns + self.rows.cost(object) + object.tail_len() + 1024
    }

    /// Appends the synthetic ADDED event of an object that exists when a watch starts.
    pub fn put_added(&mut self, object: &Object, open_for: Duration, events: &mut Vec<u8>) -> Result<(), NotPartial> {
        let written = self.object.as_ref().map(|form| form.object(object)).transpose()?;
        self.put("ADDED", object, object.version, written.as_deref(), open_for, events)
    }

    fn put(
        &mut self,
        kind: &str,
        object: &Object,
        version: ResourceVersion,
        written: Option<&[u8]>,
        open_for: Duration,
        events: &mut Vec<u8>,
    ) -> Result<(), NotPartial> {
        self.rows.now = self.opened + open_for;
        self.begin(kind, version, events);
        self.rows.put_cells(object, events).map_err(|Unprintable| NotPartial)?;
        put_object(written, events);
        events.extend_from_slice(END);
        Ok(())
    }

    /// Everything in front of the cells.
    fn begin(&mut self, kind: &str, version: ResourceVersion, events: &mut Vec<u8>) {
        let api_version = self.version.api_version();
        events.extend_from_slice(
            format!(
                "{{\"type\":\"{kind}\",\"object\":{{\"kind\":\"Table\",\"apiVersion\":\"{api_version}\",\
                 \"metadata\":{{\"resourceVersion\":\"{version}\"}},\"columnDefinitions\":"
            )
            .as_bytes(),
        );
        let is_first = !std::mem::replace(&mut self.has_columns, true);
        events.extend_from_slice(if is_first { &self.rows.columns.definitions } else { b"null" });
        events.extend_from_slice(b",\"rows\":[{");
    }
}

/// The object in an event of that kind.
fn object_of<'a>(kind: &str, event: &'a [u8]) -> &'a [u8] {
    let opening = "{\"type\":\"\",\"object\":".len() + kind.len();
    event.get(opening..).and_then(|rest| rest.strip_suffix(b"}\n")).unwrap_or_default()
}

/// The object in a bookmark, which is the zero value of its type but for its version.
fn zero_value(bookmark: &JsonBookmark, schema: &Schema) -> Option<Object> {
    let event = bookmark.event(ResourceVersion::new(1)?);
    let object = std::str::from_utf8(object_of("BOOKMARK", &event)).ok()?;
    // It has no name, and objects have.
    let named = object.replacen("\"metadata\":{", "\"metadata\":{\"name\":\"\",", 1);
    Object::from_event(named.into(), schema).ok()
}
