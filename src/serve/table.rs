//! The Table of one object or of a list: rows are verified before the first one is sent, and made while they are sent
//! (read-path 6).

use std::{mem, sync::Arc, vec};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::task::yield_now;

use super::{
    Body, ForwardReason, Read,
    body::{CAN_BE_MADE, PIECE},
    gzip,
};
use crate::{
    apimachinery::{Encoding, GroupVersionResource, IncludeObject, MetaVersion, Representation, View},
    encode::{
        Form, ListPosition, Pretty,
        table::{self, Columns, Release, Rows},
    },
    store::Object,
};

/// Bytes up to which a Table is one piece. Whatever is longer is therefore worth compressing, however it is indented.
const JOINED_AT_ONCE: usize = gzip::THRESHOLD;
/// The number of bytes that are read for cells before other tasks get a turn, or finished rows are sent. Each column
/// reads its object from the beginning.
const READ_AT_ONCE: usize = 256 << 10;
/// The maximum number of bytes that are read for the cells of one Table: about half a second of CPU. Larger Tables are
/// forwarded.
const READ_MAX: usize = 512 << 20;

/// Whether Tables of a resource can come from memory at all: of custom resources, and of built-in ones that have a
/// printer for upstream's release. `version` is `None` if the release is unknown.
pub fn may_print(resource: &GroupVersionResource, version: Option<&str>) -> bool {
    !resource.is_built_in()
        || table::has_printer(resource) && version.is_none_or(|version| Release::of(version).is_some())
}

/// Writes the objects of a response.
#[derive(Debug)]
pub(super) enum Writer {
    Objects(Form),
    Table(Table),
}

/// The Table that a request asks for.
#[derive(Debug)]
pub(super) struct Table {
    version: MetaVersion,
    /// How the object of each row is written.
    object: Option<Form>,
}

/// A Table that is too long for one piece. Only holds the rows that are being sent.
#[derive(Debug)]
pub struct TableBody {
    head: Bytes,
    rows: Rows,
    objects: vec::IntoIter<Arc<Object>>,
    is_first: bool,
    tail: Bytes,
    pretty: Option<Pretty>,
}

impl Writer {
    /// The writer for the negotiated representation.
    pub(super) fn of(read: &Read<'_>) -> Result<Self, ForwardReason> {
        match read.form.view {
            View::Table(version) => Table::of(read, version).map(Self::Table),
            View::Whole | View::Partial(_) => read.writer().map(Self::Objects),
        }
    }
}

impl Table {
    fn of(read: &Read<'_>, version: MetaVersion) -> Result<Self, ForwardReason> {
        let (instance, encoding) = (&read.instance, Encoding::Json);
        let include = IncludeObject::parse(read.query).map_err(|_| ForwardReason::InvalidOptions)?;
        if !instance.prints_tables() {
            return Err(ForwardReason::Unprintable);
        }
        let form = |view| {
            let form = Representation { encoding, view };
            Form::new(form, &instance.schema().shape, &instance.resource.group_resource())
        };
        let object = match include {
            IncludeObject::None => None,
            IncludeObject::Metadata => form(View::Partial(version)),
            IncludeObject::Object => form(View::Whole),
        };
        Ok(Self { version, object })
    }

    /// The Table of these objects. Asks upstream whether its columns are still those of the resource.
    pub(super) async fn body(
        self,
        read: &Read<'_>,
        objects: Vec<Arc<Object>>,
        position: &ListPosition,
        is_pretty: bool,
    ) -> Result<Body, ForwardReason> {
        let columns = read.instance.columns().await.map_err(|_| ForwardReason::Unprintable)?;
        let (head, tail) = (columns.head(self.version, position), Bytes::from_static(Columns::TAIL));
        let rows = Rows::new(columns, self.object, Timestamp::now());
        if objects.iter().map(|object| rows.cost(object)).sum::<usize>() > READ_MAX {
            return Err(ForwardReason::Unprintable);
        }
        let (mut joined, mut row, mut length, mut read_since) = (head.to_vec(), Vec::new(), head.len(), 0);
        for object in &objects {
            row.clear();
            // The first row has no comma.
            if length > head.len() {
                row.push(b',');
            }
            if rows.put(object, &mut row).is_err() {
                read.instance.gave_up_table();
                return Err(ForwardReason::Unprintable);
            }
            length += row.len();
            if length <= JOINED_AT_ONCE {
                joined.extend_from_slice(&row);
            }
            read_since += rows.cost(object);
            if read_since >= READ_AT_ONCE {
                read_since = 0;
                yield_now().await;
            }
        }
        if length + tail.len() <= JOINED_AT_ONCE {
            joined.extend_from_slice(&tail);
            return Ok(Body::json(joined.into(), is_pretty));
        }
        let (objects, pretty) = (objects.into_iter(), is_pretty.then(Pretty::default));
        Ok(Body::Table(Box::new(TableBody { head, rows, objects, is_first: true, tail, pretty })))
    }
}

impl TableBody {
    /// Bytes that it holds in addition to the objects in memory.
    pub(super) fn own_bytes(&self) -> usize {
        self.head.len() + size_of_val(self.objects.as_slice()) + 2 * PIECE
    }

    pub(super) fn next(&mut self) -> Option<Bytes> {
        let piece = self.next_piece()?;
        Some(match &mut self.pretty {
            Some(pretty) => pretty.push(&piece).into(),
            None => piece,
        })
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        if !self.head.is_empty() {
            return Some(mem::take(&mut self.head));
        }
        let (mut piece, mut read) = (Vec::new(), 0);
        while piece.len() < PIECE
            && read < READ_AT_ONCE
            && let Some(object) = self.objects.next()
        {
            if !mem::take(&mut self.is_first) {
                piece.push(b',');
            }
            self.rows.put(&object, &mut piece).expect(CAN_BE_MADE);
            read += self.rows.cost(&object);
        }
        if piece.is_empty() {
            return Some(mem::take(&mut self.tail)).filter(|tail| !tail.is_empty());
        }
        Some(piece.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Schema, Shape};

    const TABLE: &[u8] =
        br#"{"columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"","priority":0},
        {"name":"Age","type":"date","format":"","description":"","priority":0}],"rows":[]}"#;

    /// The pieces of a Table without objects in its rows.
    fn pieces(objects: usize, object_bytes: usize) -> Vec<Bytes> {
        let schema = Schema::new(Shape::Custom, Vec::new());
        let object = |at: usize| {
            let text = "x".repeat(object_bytes);
            let json = format!(r#"{{"metadata":{{"name":"n{at}","resourceVersion":"7"}},"text":"{text}"}}"#);
            Arc::new(Object::from_event(json.into(), &schema).unwrap())
        };
        let columns = Arc::new(Columns::record(TABLE, &[]).unwrap());
        let rows = Rows::new(columns, None, Timestamp::UNIX_EPOCH);
        let objects = (0..objects).map(object).collect::<Vec<_>>().into_iter();
        let (head, tail) = (Bytes::from_static(b"["), Bytes::from_static(b"]"));
        let mut table = TableBody { head, rows, objects, is_first: true, tail, pretty: None };
        std::iter::from_fn(|| table.next()).collect()
    }

    #[test]
    fn a_piece_takes_no_more_reading_than_other_tasks_can_wait_for() {
        // Head and tail are pieces, too.
        assert_eq!(pieces(100, 10).len(), 2 + 1);
        assert_eq!(pieces(10, READ_AT_ONCE).len(), 2 + 10);
        assert_eq!(pieces(10, READ_AT_ONCE / 4).len(), 2 + 5);
        assert_eq!(pieces(10, READ_AT_ONCE).concat(), pieces(10, 1).concat());
    }
}
