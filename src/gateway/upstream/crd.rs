//! Definitions of custom resources: the current definition of a resource, which of its fields can be selected, and
//! which columns its Tables have.

use serde::Deserialize;

use base::apimachinery::{GroupResource, PrinterColumn, SelectableField};

use super::{FetchError, Upstream};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// An object's metadata alone, in JSON.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// The definition of a custom resource.
///
/// Another `uid` under the same name is another resource; another `generation` may have another schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crd {
    pub uid: Box<str>,
    pub generation: i64,
    versions: Box<[Version]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Version {
    name: Box<str>,
    #[serde(rename = "selectableFields")]
    selectable_fields: Option<Box<[JsonPath]>>,
    #[serde(rename = "additionalPrinterColumns")]
    printer_columns: Option<Box<[PrinterColumn]>>,
}

/// Identifies a definition and its state.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Metadata {
    uid: Box<str>,
    #[serde(default)]
    generation: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct JsonPath {
    #[serde(rename = "jsonPath")]
    json_path: Box<str>,
}

impl Crd {
    /// The `selectableFields` of a version, without those of the metadata that every custom resource has.
    ///
    /// A field whose path is not just names separated by dots is left out: selectors that name it are forwarded.
    pub fn selectable_fields(&self, version: &str) -> Vec<SelectableField> {
        let fields = self.version(version).and_then(|version| version.selectable_fields.as_deref()).unwrap_or_default();
        fields.iter().filter_map(|field| SelectableField::custom(&field.json_path)).collect()
    }

    /// The `additionalPrinterColumns` of a version; empty if the version has none, so that the API server prints its
    /// default.
    pub fn printer_columns(&self, version: &str) -> &[PrinterColumn] {
        self.version(version).and_then(|version| version.printer_columns.as_deref()).unwrap_or_default()
    }

    fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|candidate| &*candidate.name == name)
    }

    fn parse(document: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Document {
            metadata: Metadata,
            spec: Spec,
        }
        #[derive(Deserialize)]
        struct Spec {
            versions: Option<Box<[Version]>>,
        }
        let Document { metadata, spec } = serde_json::from_slice(document)?;
        let versions = spec.versions.unwrap_or_default();
        Ok(Self { uid: metadata.uid, generation: metadata.generation, versions })
    }
}

impl Upstream {
    /// The current definition of a resource; `None` if there is none, as for built-in resources.
    pub async fn crd(&self, resource: &GroupResource) -> Result<Option<Crd>, FetchError> {
        // The group of a custom resource is a domain with at least one dot.
        if !resource.group.contains('.') {
            return Ok(None);
        }
        let path = format!("{DEFINITIONS}/{resource}");
        let Some(document) = self.fetch(&path, "application/json").await? else { return Ok(None) };
        Crd::parse(&document).map(Some).map_err(|source| FetchError::Malformed { path, source })
    }

    /// Whether `known` is still the current definition of the resource, in an unchanged state; `None` if the resource
    /// has no definition. Fetches only its metadata.
    pub(super) async fn is_current(&self, resource: &GroupResource, known: &Crd) -> Result<Option<bool>, FetchError> {
        #[derive(Deserialize)]
        struct Document {
            metadata: Metadata,
        }
        let path = format!("{DEFINITIONS}/{resource}");
        let Some(document) = self.fetch(&path, METADATA).await? else { return Ok(None) };
        let Document { metadata } =
            serde_json::from_slice(&document).map_err(|source| FetchError::Malformed { path, source })?;
        Ok(Some(metadata == Metadata { uid: known.uid.clone(), generation: known.generation }))
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use hyper::body::Incoming;
    use serde_json::value::RawValue;

    use super::*;
    use crate::connector::test_server::{TestServer, full};

    fn widgets() -> String {
        #[derive(Deserialize)]
        struct List {
            items: Vec<Box<RawValue>>,
        }
        let list = include_bytes!("../../../tests/data/golden/upstream/crds.list.json");
        serde_json::from_slice::<List>(list).unwrap().items[0].get().to_owned()
    }

    #[test]
    fn a_recorded_definition_is_read() {
        let crd = Crd::parse(widgets().as_bytes()).unwrap();
        assert_eq!((&*crd.uid, crd.generation), ("c7a71ef4-d716-43a0-8e9b-f1055fb2c4de", 1));
        assert_eq!(crd.selectable_fields("v1"), [SelectableField::custom(".spec.color").unwrap()]);
        assert!(crd.selectable_fields("v2").is_empty());
    }

    #[tokio::test]
    async fn what_is_built_in_has_no_definition() {
        let server = TestServer::start(|request: Request<Incoming>| async move {
            let known = request.uri().path() == format!("{DEFINITIONS}/widgets.diff.example.com");
            let status = if known { 200 } else { 404 };
            Response::builder().status(status).body(full(widgets())).unwrap()
        })
        .await;
        let upstream = server.upstream();
        let resource = |group: &str, resource: &str| GroupResource { group: group.into(), resource: resource.into() };
        assert!(upstream.crd(&resource("diff.example.com", "widgets")).await.unwrap().is_some());
        for (group, name) in [("apps", "deployments"), ("", "pods"), ("diff.example.com", "widgets?x=")] {
            assert_eq!(upstream.crd(&resource(group, name)).await.unwrap(), None);
        }
    }
}
