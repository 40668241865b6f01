//! The metadata of a custom resource in the order of the Go struct: the JSON of custom resources is in alphabetical
//! order, `PartialObjectMetadata` is not. Values are copied unchanged.

use serde_json::value::RawValue;

use super::object_meta::Timestamp;
use crate::store::{Metadata, Object};

type Raw<'a> = Option<&'a RawValue>;

/// The members in the order in which they are written. The API server drops members that are not listed here, too.
#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObjectMeta<'a> {
    #[serde(borrow)]
    name: Raw<'a>,
    generate_name: Raw<'a>,
    namespace: Raw<'a>,
    self_link: Raw<'a>,
    uid: Raw<'a>,
    resource_version: Raw<'a>,
    generation: Raw<'a>,
    creation_timestamp: Raw<'a>,
    deletion_timestamp: Raw<'a>,
    deletion_grace_period_seconds: Raw<'a>,
    labels: Raw<'a>,
    annotations: Raw<'a>,
    owner_references: Option<Vec<OwnerReference<'a>>>,
    finalizers: Raw<'a>,
    managed_fields: Option<Vec<ManagedFieldsEntry<'a>>>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OwnerReference<'a> {
    #[serde(borrow)]
    api_version: Raw<'a>,
    kind: Raw<'a>,
    name: Raw<'a>,
    uid: Raw<'a>,
    controller: Raw<'a>,
    block_owner_deletion: Raw<'a>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ManagedFieldsEntry<'a> {
    #[serde(borrow)]
    manager: Raw<'a>,
    operation: Raw<'a>,
    api_version: Raw<'a>,
    time: Raw<'a>,
    fields_type: Raw<'a>,
    fields_v1: Raw<'a>,
    subresource: Raw<'a>,
}

/// The metadata in that order.
pub(super) fn metadata(object: &Object) -> Option<Metadata> {
    let json = object.metadata();
    let metadata: ObjectMeta<'_> = serde_json::from_slice(&json).ok()?;
    let mut out = Members::open(Vec::with_capacity(json.len()));
    out.present("name", metadata.name);
    out.present("generateName", metadata.generate_name);
    out.present("namespace", metadata.namespace);
    out.present("selfLink", metadata.self_link);
    out.present("uid", metadata.uid);
    let version = metadata.resource_version?;
    out.value("resourceVersion", version);
    // The quotes are not part of the version.
    let version_at = out.0.len() - version.get().len() + 1..out.0.len() - 1;
    out.present("generation", metadata.generation);
    out.time("creationTimestamp", metadata.creation_timestamp)?;
    out.time("deletionTimestamp", metadata.deletion_timestamp)?;
    out.pointer("deletionGracePeriodSeconds", metadata.deletion_grace_period_seconds);
    out.present("labels", metadata.labels);
    out.present("annotations", metadata.annotations);
    out.list("ownerReferences", metadata.owner_references, OwnerReference::write)?;
    out.present("finalizers", metadata.finalizers);
    out.list("managedFields", metadata.managed_fields, ManagedFieldsEntry::write)?;
    Some(Metadata { bytes: out.close().into(), version_at })
}

impl OwnerReference<'_> {
    fn write(self, out: &mut Members) -> Option<()> {
        for (name, value) in
            [("apiVersion", self.api_version), ("kind", self.kind), ("name", self.name), ("uid", self.uid)]
        {
            match value {
                Some(value) => out.value(name, value),
                None => out.name(name).extend_from_slice(b"\"\""),
            }
        }
        out.pointer("controller", self.controller);
        out.pointer("blockOwnerDeletion", self.block_owner_deletion);
        Some(())
    }
}

impl ManagedFieldsEntry<'_> {
    fn write(self, out: &mut Members) -> Option<()> {
        out.present("manager", self.manager);
        out.present("operation", self.operation);
        out.present("apiVersion", self.api_version);
        out.time("time", self.time)?;
        out.present("fieldsType", self.fields_type);
        out.pointer("fieldsV1", self.fields_v1);
        out.present("subresource", self.subresource);
        Some(())
    }
}

/// A JSON object under construction.
struct Members(Vec<u8>);

impl Members {
    fn open(mut out: Vec<u8>) -> Self {
        out.push(b'{');
        Self(out)
    }

    fn close(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }

    /// Writes a member's name; the caller appends the value.
    fn name(&mut self, name: &str) -> &mut Vec<u8> {
        if !self.0.ends_with(b"{") {
            self.0.push(b',');
        }
        self.0.push(b'"');
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
        &mut self.0
    }

    fn value(&mut self, name: &str, value: &RawValue) {
        self.name(name).extend_from_slice(value.get().as_bytes());
    }

    /// Writes a member that Go omits when it is empty.
    fn present(&mut self, name: &str, value: Raw<'_>) {
        if let Some(value) = value.filter(|value| !matches!(value.get(), "\"\"" | "0" | "{}" | "[]")) {
            self.value(name, value);
        }
    }

    /// Writes a member that Go omits only when it is absent.
    fn pointer(&mut self, name: &str, value: Raw<'_>) {
        if let Some(value) = value {
            self.value(name, value);
        }
    }

    /// `None` if Go would write the time differently.
    fn time(&mut self, name: &str, value: Raw<'_>) -> Option<()> {
        if let Some(value) = value {
            Timestamp::parse(value.get().trim_matches('"'))?;
            self.value(name, value);
        }
        Some(())
    }

    fn list<T>(&mut self, name: &str, items: Option<Vec<T>>, write: impl Fn(T, &mut Self) -> Option<()>) -> Option<()> {
        let items = items.unwrap_or_default();
        if items.is_empty() {
            return Some(());
        }
        self.name(name).push(b'[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.0.push(b',');
            }
            let mut members = Self::open(std::mem::take(&mut self.0));
            write(item, &mut members)?;
            self.0 = members.close();
        }
        self.0.push(b']');
        Some(())
    }
}
