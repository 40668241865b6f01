//! Tables: what `kubectl get` prints (read-path 6).
//!
//! The columns are taken from upstream's own Tables. The cells are made from the objects' JSON: those of custom
//! resources as apiextensions-apiserver makes them, those of built-in resources by separate rules for each resource. An
//! object whose cells cannot be made exactly is [`Unprintable`].

mod built_in;
mod cell;
mod events;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use built_in::Printer;
pub use built_in::{Release, has_printer};
pub use events::TableEvents;

use super::{Form, ListPosition};
use crate::store::Object;
use base::{
    apimachinery::{GroupVersionResource, MetaVersion, PrinterColumn, write_string},
    json::JsonPath,
};

/// The Table may have a cell for which upstream's output is uncertain, so the request is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot print a cell exactly as the API server would")]
pub struct Unprintable;

/// The columns of one resource's Tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// `columnDefinitions` as upstream wrote them.
    definitions: Bytes,
    cells: Cells,
}

/// How the cells after the name are made.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cells {
    /// The columns of a definition.
    Paths(Box<[Column]>),
    BuiltIn(Printer),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    kind: Kind,
    path: JsonPath,
    /// See [`Columns::suit_watches`].
    suits_watches: bool,
}

/// How a value is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Integer,
    Number,
    Boolean,
    Date,
}

/// One of `columnDefinitions`.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct ColumnDefinition {
    name: Box<str>,
    #[serde(rename = "type")]
    kind: Box<str>,
    format: Box<str>,
    description: Box<str>,
    priority: i32,
}

impl Columns {
    /// The columns of a Table that upstream has written. `None` if they are not those of `printer_columns`, or if one
    /// of these is not supported.
    pub fn record(table: &[u8], printer_columns: &[PrinterColumn]) -> Option<Self> {
        Self::told(table, |told| {
            let columns = match printer_columns {
                [] => Self::default_columns(told),
                columns => Self::of(columns, told),
            };
            columns.map(Cells::Paths)
        })
    }

    /// The columns of a built-in resource's Table, as a server of that release has written it; `None` if they are not
    /// the ones that are printed here.
    pub fn record_built_in(table: &[u8], resource: &GroupVersionResource, release: Release) -> Option<Self> {
        let printer = Printer::of(resource, release)?;
        Self::told(table, |told| printer.prints(told).then_some(Cells::BuiltIn(printer)))
    }

    /// The columns of a Table; `cells` returns how those after the name are printed.
    fn told(table: &[u8], cells: impl FnOnce(&[ColumnDefinition]) -> Option<Cells>) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Table<'a> {
            #[serde(borrow)]
            column_definitions: &'a RawValue,
        }
        let Table { column_definitions } = serde_json::from_slice(table).ok()?;
        let told: Vec<ColumnDefinition> = serde_json::from_str(column_definitions.get()).ok()?;
        let (name, told) = told.split_first()?;
        let is_name = (&*name.name, &*name.kind, &*name.format, name.priority) == ("Name", "string", "name", 0);
        let cells = is_name.then(|| cells(told)).flatten()?;
        Some(Self { definitions: column_definitions.get().to_owned().into(), cells })
    }

    /// Whether the events of watches can have them. A cell of an object's version, or of what only bookmarks have,
    /// would not be that of the event: an object that leaves a selector has another one, and so has the zero value of
    /// a bookmark.
    pub fn suit_watches(&self) -> bool {
        match &self.cells {
            Cells::Paths(columns) => columns.iter().all(|column| column.suits_watches),
            Cells::BuiltIn(_) => true,
        }
    }

    /// Whether all of these columns are supported, so that Tables can be printed.
    pub fn are_understood(printer_columns: &[PrinterColumn]) -> bool {
        printer_columns.iter().all(|column| Column::of(column).is_some())
    }

    /// The columns of a definition that specifies none.
    fn default_columns(told: &[ColumnDefinition]) -> Option<Box<[Column]>> {
        let [age] = told else { return None };
        let is_age = (&*age.name, &*age.kind, &*age.format, age.priority) == ("Age", "date", "", 0);
        let path = JsonPath::parse(".metadata.creationTimestamp").filter(|_| is_age)?;
        Some([Column { kind: Kind::Date, path, suits_watches: true }].into())
    }

    fn of(printer_columns: &[PrinterColumn], told: &[ColumnDefinition]) -> Option<Box<[Column]>> {
        let mut pairs = told.iter().zip(printer_columns);
        let is_same = told.len() == printer_columns.len() && pairs.all(|(told, column)| told.is_of(column));
        is_same.then(|| printer_columns.iter().map(Column::of).collect())?
    }

    /// Everything before the first row.
    pub fn head(&self, version: MetaVersion, position: &ListPosition) -> Bytes {
        let (api_version, metadata) = (version.api_version(), position.list_meta());
        let head = format!(
            "{{\"kind\":\"Table\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"columnDefinitions\":"
        );
        [head.as_bytes(), &self.definitions, b",\"rows\":["].concat().into()
    }

    /// Everything after the last row.
    pub const TAIL: &[u8] = b"]}\n";
}

impl ColumnDefinition {
    /// Whether upstream makes this definition from that column. A column without a description gets one made from its
    /// path.
    fn is_of(&self, column: &PrinterColumn) -> bool {
        let path = || format!("Custom resource definition column (in JSONPath format): {}", column.json_path);
        let description = Some(&*column.description).filter(|given| !given.is_empty());
        let description = description.map_or_else(|| path().into(), Cow::from);
        (&self.name, &self.kind, &self.format, self.priority)
            == (&column.name, &column.kind, &column.format, column.priority)
            && *self.description == *description
    }
}

impl Column {
    /// `None` if the column is not supported.
    fn of(column: &PrinterColumn) -> Option<Self> {
        let kind = match &*column.kind {
            "string" => Kind::Text,
            "integer" => Kind::Integer,
            "number" => Kind::Number,
            "boolean" => Kind::Boolean,
            "date" => Kind::Date,
            _ => return None,
        };
        let suits_watches = suits_watches(&column.json_path);
        Some(Self { kind, path: JsonPath::parse(&column.json_path)?, suits_watches })
    }
}

/// Appends the member of a row behind the others: the object as it is written, with or without its newline.
fn put_object(written: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"object\":");
    let written = written.unwrap_or(b"null");
    out.extend_from_slice(written.strip_suffix(b"\n").unwrap_or(written));
}

/// Whether a path certainly leads to what is the same in an event's object and in the one that it is made from.
fn suits_watches(path: &str) -> bool {
    const SAME: [&str; 4] = ["creationTimestamp", "namespace", "generation", "labels"];
    let members = path.trim().trim_start_matches(['{', '$', '.']);
    match members.strip_prefix("metadata.") {
        Some(member) => SAME.iter().any(|same| member.starts_with(same)),
        None => members.starts_with("spec") || members.starts_with("status"),
    }
}

/// Writes the rows of one response.
#[derive(Clone, Debug)]
pub struct Rows {
    columns: Arc<Columns>,
    /// How each row's object is written; `None` if rows have no object.
    object: Option<Form>,
    /// The time to which ages are computed.
    now: Timestamp,
}

impl Rows {
    pub fn new(columns: Arc<Columns>, object: Option<Form>, now: Timestamp) -> Self {
        Self { columns, object, now }
    }

    /// The maximum number of bytes that are read for an object's row.
    pub fn cost(&self, object: &Object) -> usize {
        self.cost_of(object.tail_len())
    }

    /// The same for the rows of objects that have that many bytes together.
    pub fn cost_of(&self, bytes: usize) -> usize {
        let times = match &self.columns.cells {
            Cells::Paths(columns) => columns.len() + 1,
            // One pass finds the members, another one reads those that are printed.
            Cells::BuiltIn(_) => 2,
        };
        bytes.saturating_mul(times)
    }

    /// Appends an object's row.
    pub fn put(&self, object: &Object, out: &mut Vec<u8>) -> Result<(), Unprintable> {
        out.push(b'{');
        self.put_cells(object, out)?;
        let written = self.object.as_ref().map(|form| form.object(object)).transpose().map_err(|_| Unprintable)?;
        put_object(written.as_deref(), out);
        out.push(b'}');
        Ok(())
    }

    /// Appends the members of a row in front of its object.
    fn put_cells(&self, object: &Object, out: &mut Vec<u8>) -> Result<(), Unprintable> {
        let tail = object.tail();
        out.extend_from_slice(b"\"cells\":[");
        write_string(out, object.key.name());
        match &self.columns.cells {
            Cells::Paths(columns) => {
                for Column { kind, path, .. } in columns {
                    out.push(b',');
                    let value = path.first(&tail).map_err(|_| Unprintable)?;
                    cell::put(*kind, value, self.now, out)?;
                }
                out.push(b']');
            }
            Cells::BuiltIn(printer) => {
                let conditions = printer.put(object, self.now, out)?;
                out.push(b']');
                if let Some(conditions) = conditions {
                    out.extend_from_slice(b",\"conditions\":");
                    out.extend_from_slice(conditions.as_bytes());
                }
            }
        }
        Ok(())
    }
}
