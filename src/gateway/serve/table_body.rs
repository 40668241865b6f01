//! A Table as a body, made in pieces while it is sent.

use std::{mem, sync::Arc, vec};

use bytes::Bytes;

use super::{chunk::PIECE, indented::Indent, list_body::CAN_BE_MADE};
use engine::{
    encode::table::Rows,
    store::{Object, Thaw},
};

/// The number of bytes that are read for cells before other tasks get a turn, or finished rows are sent. Each column
/// reads its object from the beginning.
pub(super) const READ_AT_ONCE: usize = 256 << 10;

/// A Table that is too long for one piece. Only holds the rows that are being sent.
#[derive(Debug)]
pub struct TableBody {
    head: Bytes,
    rows: Rows,
    objects: vec::IntoIter<Arc<Object>>,
    thaw: Thaw,
    is_first: bool,
    tail: Bytes,
    indent: Option<Indent>,
}

impl TableBody {
    pub(super) fn new(head: Bytes, tail: Bytes, rows: Rows, objects: Vec<Arc<Object>>, pretty: bool) -> Self {
        let indent = pretty.then(Indent::default);
        Self { head, rows, objects: objects.into_iter(), thaw: Thaw::default(), is_first: true, tail, indent }
    }

    /// Bytes that it holds in addition to the objects in memory.
    pub(super) fn own_bytes(&self) -> usize {
        self.head.len() + size_of_val(self.objects.as_slice()) + 2 * PIECE
    }

    pub(super) fn next(&mut self) -> Option<Bytes> {
        let Some(mut indent) = self.indent.take() else { return self.next_chunk() };
        let piece = indent.next(|| self.next_chunk());
        self.indent = Some(indent);
        piece
    }

    fn next_chunk(&mut self) -> Option<Bytes> {
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
            object.thaw(&mut self.thaw);
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
    use jiff::Timestamp;

    use super::*;
    use engine::{
        encode::table::Columns,
        store::{Schema, Shape},
    };

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
        let objects = (0..objects).map(object).collect();
        let (head, tail) = (Bytes::from_static(b"["), Bytes::from_static(b"]"));
        let mut table = TableBody::new(head, tail, rows, objects, false);
        std::iter::from_fn(|| table.next()).collect()
    }

    #[test]
    fn a_piece_of_a_table_reads_a_bounded_number_of_bytes() {
        // Head and tail are pieces, too.
        assert_eq!(pieces(100, 10).len(), 2 + 1);
        assert_eq!(pieces(10, READ_AT_ONCE).len(), 2 + 10);
        assert_eq!(pieces(10, READ_AT_ONCE / 4).len(), 2 + 5);
        assert_eq!(pieces(10, READ_AT_ONCE).concat(), pieces(10, 1).concat());
    }
}
