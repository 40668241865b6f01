//! The Table of one object or of a list (read-path 6), of which all rows are made once before the first one is sent,
//! and those of a watch (read-path 3.8).

use bytes::Bytes;
use jiff::Timestamp;

use super::{
    Body, ForwardReason, Read, Unanswered,
    concurrency::Work,
    gzip,
    table_body::{READ_AT_ONCE, TableBody},
};
use base::apimachinery::{Encoding, GroupVersionResource, IncludeObject, MetaVersion, Representation, View};
use engine::{
    encode::{
        EventForm, Form, ListPosition,
        table::{self, Columns, Release, Rows, TableEvents},
    },
    store::{Page, Thaw},
};

/// Bytes up to which a Table is one piece. Whatever is longer is therefore worth compressing, however it is indented.
const JOINED_AT_ONCE: usize = gzip::THRESHOLD;
/// The maximum number of bytes that are read for the cells of one Table: about half a second of CPU. Larger Tables are
/// forwarded.
const READ_MAX: usize = 512 << 20;

/// Whether Tables of a resource can come from memory at all: of custom resources, and of built-in ones that have a
/// printer for upstream's release. `version` is `None` if the release is unknown.
pub fn may_print(resource: &GroupVersionResource, version: Option<&str>) -> bool {
    !resource.is_built_in()
        || table::has_printer(resource) && version.is_none_or(|version| Release::of(version).is_some())
}

/// How the object of a row is written; `None` if the instance cannot write it so.
fn form(Read { instance, .. }: &Read<'_>, view: View) -> Option<Form> {
    let representation = Representation { encoding: Encoding::Json, view };
    Form::new(representation, &instance.schema().shape, &instance.resource.group_resource())
}

/// The Table that a request asks for.
#[derive(Debug)]
pub(super) struct Table {
    version: MetaVersion,
    /// How the object of each row is written.
    object: Option<Form>,
}

impl Table {
    pub(super) fn of(read: &Read<'_>, version: MetaVersion) -> Result<Self, ForwardReason> {
        if !read.instance.prints_tables() {
            return Err(ForwardReason::Unprintable);
        }
        let object = match read.include_object {
            IncludeObject::None => None,
            IncludeObject::Metadata => form(read, View::Partial(version)),
            IncludeObject::Object => form(read, View::Whole),
        };
        Ok(Self { version, object })
    }

    /// The events of a watch of that Table. Asks upstream whether its columns are still those of the resource.
    pub(super) async fn events(self, read: &Read<'_>) -> Result<EventForm, ForwardReason> {
        let Self { version, object } = self;
        if !read.instance.prints_tables_of_watches() {
            return Err(ForwardReason::Unprintable);
        }
        let columns = read.instance.columns().await.ok().filter(|columns| columns.suit_watches());
        let columns = columns.ok_or(ForwardReason::Unprintable)?;
        let metadata = form(read, View::Partial(version)).ok_or(ForwardReason::Representation)?;
        let events = TableEvents::new(columns, version, object, metadata);
        Ok(EventForm::Table(Box::new(events)))
    }

    /// The Table of these objects. Asks upstream whether its columns are still those of the resource.
    pub(super) async fn body(
        self,
        read: &Read<'_>,
        Page { objects, bytes, .. }: Page,
        position: &ListPosition,
        is_pretty: bool,
        mut work: Work<'_>,
    ) -> Result<Body, Unanswered> {
        work.rest();
        let columns = read.instance.columns().await.map_err(|_| ForwardReason::Unprintable)?;
        let (head, tail) = (columns.head(self.version, position), Bytes::from_static(Columns::TAIL));
        let rows = Rows::new(columns, self.object, Timestamp::now());
        let cost = rows.cost_of(bytes);
        if cost > READ_MAX {
            return Err(ForwardReason::Unprintable.into());
        }
        // A single object may be more than a unit of work, and hundreds of such Tables may come at once.
        if cost > READ_AT_ONCE {
            work.pause().await?;
        }
        let (mut joined, mut row, mut length, mut read_since) = (head.to_vec(), Vec::new(), head.len(), 0);
        let mut thaw = Thaw::default();
        for object in &objects {
            if read_since >= READ_AT_ONCE {
                read_since = 0;
                work.pause().await?;
            }
            row.clear();
            // The first row has no comma.
            if length > head.len() {
                row.push(b',');
            }
            object.thaw(&mut thaw);
            if rows.put(object, &mut row).is_err() {
                read.instance.gave_up_table();
                return Err(ForwardReason::Unprintable.into());
            }
            length += row.len();
            if length <= JOINED_AT_ONCE {
                joined.extend_from_slice(&row);
            }
            read_since += rows.cost(object);
        }
        if length + tail.len() <= JOINED_AT_ONCE {
            joined.extend_from_slice(&tail);
            return Ok(Body::json(joined.into(), is_pretty));
        }
        Ok(Body::Table(Box::new(TableBody::new(head, tail, rows, objects, is_pretty))))
    }
}
