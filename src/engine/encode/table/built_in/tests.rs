//! Tables of built-in resources as real servers printed them, from the objects in their rows.

use std::{fs, sync::Arc};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::*;
use crate::{
    encode::{
        Form,
        table::{Columns, Rows},
    },
    store::{Schema, Shape},
};
use base::apimachinery::{Encoding, Representation, View};

/// Group, version, plural and kind.
const RESOURCES: &[[&str; 4]] = &[
    ["", "v1", "configmaps", "ConfigMap"],
    ["", "v1", "namespaces", "Namespace"],
    ["", "v1", "nodes", "Node"],
    ["", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"],
    ["", "v1", "persistentvolumes", "PersistentVolume"],
    ["", "v1", "pods", "Pod"],
    ["", "v1", "secrets", "Secret"],
    ["", "v1", "serviceaccounts", "ServiceAccount"],
    ["", "v1", "services", "Service"],
    ["apps", "v1", "daemonsets", "DaemonSet"],
    ["apps", "v1", "deployments", "Deployment"],
    ["apps", "v1", "replicasets", "ReplicaSet"],
    ["apps", "v1", "statefulsets", "StatefulSet"],
    ["batch", "v1", "jobs", "Job"],
    ["networking.k8s.io", "v1", "ingresses", "Ingress"],
];
/// The ones that 1.20 does not have.
const NEWER: &[[&str; 4]] = &[
    ["autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"],
    ["batch", "v1", "cronjobs", "CronJob"],
    ["discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"],
];

/// What a server said within one second.
struct Recorded {
    release: Release,
    resource: GroupVersionResource,
    kind: &'static str,
    table: String,
    at: Timestamp,
}

#[derive(Deserialize)]
struct Table<'a> {
    #[serde(borrow)]
    rows: Vec<TableRow<'a>>,
}

#[derive(Deserialize)]
struct TableRow<'a> {
    #[serde(borrow)]
    object: &'a RawValue,
}

fn recorded() -> Vec<Recorded> {
    let mut found = Vec::new();
    for (release, folder, newer) in [(Release::V1_20, "v1.20", &[][..]), (Release::V1_36, "v1.36", NEWER)] {
        for &[group, version, plural, kind] in RESOURCES.iter().chain(newer) {
            let read = |end| {
                let path =
                    format!("{}/../../tests/data/golden/{folder}/tables/{plural}.{end}", env!("CARGO_MANIFEST_DIR"));
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
            };
            let resource = GroupVersionResource::new(group, version, plural);
            found.push(Recorded {
                release,
                resource,
                kind,
                table: read("json"),
                at: read("at").trim().parse().unwrap(),
            });
        }
    }
    found
}

impl Recorded {
    fn objects(&self) -> (Schema, Vec<Object>) {
        let schema = Schema::new(Shape::typed(self.kind, &self.resource.api_version()), Vec::new());
        let Table { rows } = serde_json::from_str(&self.table).unwrap();
        let object = |row: TableRow<'_>| {
            Object::from_event(Bytes::copy_from_slice(row.object.get().as_bytes()), &schema).unwrap()
        };
        let objects = rows.into_iter().map(object).collect();
        (schema, objects)
    }

    fn columns(&self) -> Option<Columns> {
        Columns::record_built_in(self.table.as_bytes(), &self.resource, self.release)
    }
}

#[test]
fn rows_are_those_of_real_servers() {
    for recorded in recorded() {
        let (schema, objects) = recorded.objects();
        let columns = Arc::new(recorded.columns().unwrap_or_else(|| panic!("{}: other columns", recorded.resource)));
        let form = Representation { encoding: Encoding::Json, view: View::Whole };
        let form = Form::new(form, &schema.shape, &recorded.resource.group_resource()).unwrap();
        let rows = Rows::new(columns, Some(form), recorded.at);
        let mut rest = &recorded.table[recorded.table.find("\"rows\":[").unwrap() + 8..];
        for object in &objects {
            let mut row = Vec::new();
            rows.put(object, &mut row).unwrap_or_else(|error| panic!("{}: {error}", object.key.name()));
            let row = String::from_utf8(row).unwrap();
            let (expected, behind) = rest.split_at(rest.len().min(row.len()));
            assert_eq!(row, expected, "{:?} {}", recorded.release, recorded.resource);
            rest = behind.strip_prefix(',').unwrap_or(behind);
        }
        assert_eq!(rest, "]}\n");
    }
}

/// Seen of real servers: null is a time at the beginning of the calendar, and bytes that are not UTF-8 are an escape.
#[test]
fn objects_that_servers_print_by_special_rules_are_not_printed() {
    for (plural, from, to) in [
        ("jobs", r#""status":{"#, r#""status":{"startTime":null,"#),
        ("nodes", r#""kubeletVersion":""#, r#""kubeletVersion":"\ufffd"#),
        ("configmaps", r#""creationTimestamp":"2"#, r#""creationTimestamp":"-2"#),
    ] {
        let recorded = recorded().into_iter().find(|recorded| &*recorded.resource.resource == plural).unwrap();
        let columns = Arc::new(recorded.columns().unwrap());
        let rows = Rows::new(columns, None, recorded.at);
        let table = recorded.table.replacen(from, to, 1);
        assert_ne!(table, recorded.table);
        let unprinted = |recorded: &Recorded| {
            let (_, objects) = recorded.objects();
            objects.iter().filter(|object| rows.put(object, &mut Vec::new()).is_err()).count()
        };
        assert_eq!(unprinted(&recorded), 0);
        assert_eq!(unprinted(&Recorded { table, ..recorded }), 1, "{plural}");
    }
}

/// Seen of 1.36.2, which takes the zero time, and writes it as null.
#[test]
fn a_cron_job_that_ran_at_the_zero_time_has_run() {
    let recorded = recorded().into_iter().find(|recorded| &*recorded.resource.resource == "cronjobs").unwrap();
    let rows = Rows::new(Arc::new(recorded.columns().unwrap()), None, recorded.at);
    let time = r#""lastScheduleTime":"2038-01-01T00:00:00Z""#;
    let table = recorded.table.replace(time, r#""lastScheduleTime":null"#);
    let (_, objects) = Recorded { table, ..recorded }.objects();
    let printed = objects.iter().filter(|object| {
        let mut row = Vec::new();
        rows.put(object, &mut row).unwrap();
        String::from_utf8(row).unwrap().contains(r"\u003cunknown\u003e")
    });
    assert_eq!(printed.count(), 3);
}

#[test]
fn other_columns_are_not_printed() {
    for recorded in recorded() {
        for (from, to) in [
            (r#""name":"Age","type":"string""#, r#""name":"Aged","type":"string""#),
            (r#""name":"Age","type":"string""#, r#""name":"Age","type":"date""#),
            (r#""name":"Age","type":"string","format":"""#, r#""name":"Age","type":"string","format":"x""#),
            (r#""rows":"#, r#""columnDefinitions":[],"rows":"#),
            (r#","priority":0}"#, r#","priority":1}"#),
        ] {
            let table = recorded.table.replace(from, to);
            assert_ne!(table, recorded.table);
            let changed = Recorded { table, resource: recorded.resource.clone(), ..recorded };
            assert!(changed.columns().is_none(), "{} {to}", changed.resource);
        }
    }
}

#[test]
fn only_releases_that_were_compared_have_printers() {
    for (version, release) in [
        ("v1.36.2", Some(Release::V1_36)),
        ("v1.36.0-eks-1", Some(Release::V1_36)),
        ("v1.20.15", Some(Release::V1_20)),
        ("v1.36.1+k3s1", Some(Release::V1_36)),
        ("v1.36.0-alpha.0", None),
        ("v1.36.0-rc.1+4", None),
        ("v1.35.9", None),
        ("v1.37.0", None),
        ("v1.3.6", None),
        ("v2.36.0", None),
        ("v1.36", None),
        ("1.36.0", None),
        ("", None),
    ] {
        assert_eq!(Release::of(version), release, "{version}");
    }
}
