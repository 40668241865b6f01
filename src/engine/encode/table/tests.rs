//! Compares Tables that a real server printed with those made from the same server's objects.

use super::*;
use crate::store::{Schema, Shape};
use base::apimachinery::{Encoding, GroupResource, Representation, ResourceVersion, View};

/// What a server answered within one second.
struct Recorded {
    plural: &'static str,
    at: &'static str,
}

const PRINTS: Recorded = Recorded { plural: "prints", at: "2026-11-22T12:59:04Z" };
const PLAINS: Recorded = Recorded { plural: "plains", at: "2026-11-22T12:59:06Z" };

impl Recorded {
    fn file(&self, name: &str) -> String {
        let path = format!("{}/../../tests/data/golden/v1.36/{}.{name}.json", env!("CARGO_MANIFEST_DIR"), self.plural);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn printer_columns(&self) -> Vec<PrinterColumn> {
        let definition: serde_json::Value = serde_json::from_str(&self.file("definition")).unwrap();
        let columns = &definition["spec"]["versions"][0]["additionalPrinterColumns"];
        if columns.is_null() { Vec::new() } else { serde_json::from_value(columns.clone()).unwrap() }
    }

    fn columns(&self) -> Columns {
        Columns::record(self.file("table-none").as_bytes(), &self.printer_columns()).unwrap()
    }

    /// The Table of the recorded list.
    fn table(&self, object: Option<View>) -> String {
        #[derive(Deserialize)]
        struct List<'a> {
            metadata: Metadata,
            #[serde(borrow)]
            items: Vec<&'a RawValue>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            resource_version: String,
        }
        let (list, schema) = (self.file("list"), Schema::new(Shape::Custom, Vec::new()));
        let List { metadata, items } = serde_json::from_str(&list).unwrap();
        let resource = GroupResource { group: "conf.example.com".into(), resource: self.plural.into() };
        let form =
            |view| Form::new(Representation { encoding: Encoding::Json, view }, &schema.shape, &resource).unwrap();
        let columns = Arc::new(self.columns());
        let head = columns
            .head(MetaVersion::V1, &ListPosition::of(ResourceVersion::parse(&metadata.resource_version).unwrap()));
        let rows = Rows::new(columns, object.map(form), self.at.parse().unwrap());
        let mut out = head.to_vec();
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            let item = Bytes::copy_from_slice(item.get().as_bytes());
            rows.put(&Object::from_item(item, &schema).unwrap(), &mut out).unwrap();
        }
        out.extend_from_slice(Columns::TAIL);
        String::from_utf8(out).unwrap()
    }
}

#[test]
fn tables_are_those_of_a_real_server() {
    for recorded in [PRINTS, PLAINS] {
        assert_eq!(recorded.table(None), recorded.file("table-none"));
        assert_eq!(recorded.table(Some(View::Partial(MetaVersion::V1))), recorded.file("table"));
        assert_eq!(recorded.table(Some(View::Whole)), recorded.file("table-object"));
    }
}

#[test]
fn columns_are_those_of_the_definition_or_none_are_known() {
    let (table, columns) = (PRINTS.file("table-none"), PRINTS.printer_columns());
    assert_eq!(Columns::record(PLAINS.file("table-none").as_bytes(), &columns), None);
    assert_eq!(Columns::record(table.as_bytes(), &[]), None);
    assert_eq!(Columns::record(table.as_bytes(), &columns[1..]), None);
    assert_eq!(Columns::record(b"{}", &columns), None);
    for change in [
        |column: &mut PrinterColumn| column.name = "Other".into(),
        |column: &mut PrinterColumn| column.kind = "integer".into(),
        |column: &mut PrinterColumn| column.format = "byte".into(),
        |column: &mut PrinterColumn| column.priority = 7,
        |column: &mut PrinterColumn| column.description = "other".into(),
        // The second column has no description except its path.
        |column: &mut PrinterColumn| column.json_path = ".spec.other".into(),
    ] {
        let mut changed = columns.clone();
        change(&mut changed[1]);
        assert_eq!(Columns::record(table.as_bytes(), &changed), None, "{:?}", changed[1]);
    }
}

#[test]
fn columns_that_are_not_understood_are_not_printed() {
    let columns = PRINTS.printer_columns();
    assert!(Columns::are_understood(&columns) && Columns::are_understood(&[]));
    for change in [
        |column: &mut PrinterColumn| column.kind = "array".into(),
        |column: &mut PrinterColumn| column.json_path = ".spec.list[0:1]".into(),
    ] {
        let mut changed = columns.clone();
        change(&mut changed[1]);
        assert!(!Columns::are_understood(&changed), "{:?}", changed[1]);
    }
}

#[test]
fn watches_have_no_cells_of_what_bookmarks_and_leavers_have_otherwise() {
    for (path, suits) in [
        (".spec.size", true),
        ("{.status.phase}", true),
        (".metadata.creationTimestamp", true),
        (r".metadata.labels['color']", true),
        (".metadata.resourceVersion", false),
        (".metadata.name", false),
        (".metadata.annotations.note", false),
        (".metadata", false),
        (".metadata['resourceVersion']", false),
        (".", false),
        ("..resourceVersion", false),
        ("['metadata'].resourceVersion", false),
        (".kind", false),
    ] {
        assert_eq!(suits_watches(path), suits, "{path}");
    }
}
