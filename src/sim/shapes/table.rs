//! Tables for kubectl: names and ages, and all columns of pods and config maps. A real server prints more columns of
//! the others, and more states of pods than those that an embedded server's pods are in.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{definition::Definition, json, stored::Stored};
use base::apimachinery::age;

use super::{
    list::{Page, metadata},
    partial::partial,
};

/// The part of the object that a row contains besides its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    None,
    Metadata,
    Object,
}

/// The Table format that the client requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableFormat {
    /// `v1` or `v1beta1` of meta.k8s.io.
    pub(crate) version: &'static str,
    pub(crate) include: IncludeObject,
}

impl TableFormat {
    /// The Table of a list, or of a page with a single object. There is no newline at the end.
    pub(crate) fn page(self, definition: &Definition, api_version: &str, page: &Page) -> Vec<u8> {
        let rows = page.objects.iter().map(|object| self.row(definition, &object.value(api_version))).collect();
        self.table(&metadata(page), Some(columns(definition)), rows)
    }

    /// The Table in a watch event. `first` is set for the first event of the watch, which contains the columns.
    pub(crate) fn event(self, definition: &Definition, api_version: &str, object: &Stored, first: bool) -> Vec<u8> {
        let row = self.row(definition, &object.value(api_version));
        let metadata = format!(r#"{{"resourceVersion":"{}"}}"#, object.revision);
        self.table(&metadata, first.then(|| columns(definition)), vec![row])
    }

    /// The Table in a bookmark event.
    pub(crate) fn bookmark(self, definition: &Definition, object: &Value, revision: u64, first: bool) -> Vec<u8> {
        let initial_end = object["metadata"].get("annotations").is_some();
        let is_forced = initial_end && matches!(self.include, IncludeObject::None);
        let include = if is_forced { IncludeObject::Metadata } else { self.include };
        let row = Self { include, ..self }.row(definition, object);
        self.table(&format!(r#"{{"resourceVersion":"{revision}"}}"#), first.then(|| columns(definition)), vec![row])
    }

    fn table(self, metadata: &str, columns: Option<Value>, rows: Vec<Value>) -> Vec<u8> {
        let version = self.version;
        let mut text =
            format!(r#"{{"kind":"Table","apiVersion":"meta.k8s.io/{version}","metadata":{metadata}"#).into_bytes();
        text.extend(br#","columnDefinitions":"#);
        json::encode_into(&columns, &mut text);
        text.extend(br#","rows":"#);
        json::encode_into(&rows, &mut text);
        text.push(b'}');
        text
    }

    fn row(self, definition: &Definition, object: &Value) -> Value {
        let shown = match self.include {
            IncludeObject::None => Value::Null,
            IncludeObject::Object => object.clone(),
            IncludeObject::Metadata => partial(self.version, object),
        };
        json!({"cells": cells(definition, object), "object": shown})
    }
}

fn columns(definition: &Definition) -> Value {
    let column = |name: &str, priority: u8| {
        let (format, description) = if name == "Name" { ("name", "Name of the object.") } else { ("", "") };
        json!({"name": name, "type": "string", "format": format, "description": description, "priority": priority})
    };
    if is_pods(definition) {
        let names = [("Name", 0), ("Ready", 0), ("Status", 0), ("Restarts", 0), ("Age", 0)];
        let more = [("IP", 1), ("Node", 1), ("Nominated Node", 1), ("Readiness Gates", 1)];
        names.into_iter().chain(more).map(|(name, priority)| column(name, priority)).collect()
    } else if is_config_maps(definition) {
        json!([column("Name", 0), column("Data", 0), column("Age", 0)])
    } else {
        let mut age = column("Age", 0);
        if definition.custom {
            age["type"] = "date".into();
        }
        json!([column("Name", 0), age])
    }
}

fn cells(definition: &Definition, object: &Value) -> Value {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let name = text("/metadata/name");
    let age = age_cell(text("/metadata/creationTimestamp"), Timestamp::now());
    if is_config_maps(definition) {
        let values = |pointer| object.pointer(pointer).and_then(Value::as_object).map_or(0, |values| values.len());
        return json!([name, values("/data") + values("/binaryData"), age]);
    }
    if !is_pods(definition) {
        // A bookmark of a custom resource has no time of creation.
        let is_missing = definition.custom && text("/metadata/creationTimestamp").is_empty();
        return if is_missing { json!([name, null]) } else { json!([name, age]) };
    }
    let or_none = |text: &str| if text.is_empty() { "<none>".to_owned() } else { text.to_owned() };
    let statuses = || object.pointer("/status/containerStatuses").and_then(Value::as_array).into_iter().flatten();
    let ready = statuses().filter(|status| status["ready"] == true).count();
    let restarts: u64 = statuses().filter_map(|status| status["restartCount"].as_u64()).sum();
    let containers = object.pointer("/spec/containers").and_then(Value::as_array).map_or(0, Vec::len);
    let terminating = object.pointer("/metadata/deletionTimestamp").is_some();
    let status = if terminating { "Terminating" } else { text("/status/phase") };
    let [ip, node, nominated] =
        ["/status/podIP", "/spec/nodeName", "/status/nominatedNodeName"].map(|at| or_none(text(at)));
    json!([name, format!("{ready}/{containers}"), status, restarts.to_string(), age, ip, node, nominated, "<none>"])
}

/// The age of an object by the time of its creation.
fn age_cell(created: &str, now: Timestamp) -> String {
    let since = created.parse().ok();
    since.and_then(|since| age(since, now)).unwrap_or_else(|| "<unknown>".to_owned())
}

fn is_config_maps(definition: &Definition) -> bool {
    !definition.custom && definition.plural == "configmaps"
}

fn is_pods(definition: &Definition) -> bool {
    !definition.custom && definition.plural == "pods"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_equal_those_of_kubectl() {
        let now = "2026-01-10T00:00:00Z".parse().unwrap();
        for (created, expected) in [
            ("", "<unknown>"),
            ("yesterday", "<unknown>"),
            ("2026-01-09T23:59:31Z", "29s"),
            ("2026-01-09T23:55:00Z", "5m"),
            ("2026-01-09T20:30:00Z", "3h30m"),
            ("2026-01-06T20:00:00Z", "3d4h"),
            ("2023-01-01T00:00:00Z", "3y10d"),
        ] {
            assert_eq!(age_cell(created, now), expected, "{created}");
        }
    }
}
