//! Parses one page of upstream's list.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::Failure;
use crate::encode::protobuf;
use crate::store::PROTOBUF_MAGIC;
use base::apimachinery::ResourceVersion;

/// How upstream wrote a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageFormat {
    /// A built-in type in JSON.
    Typed,
    /// A custom resource in JSON.
    Custom,
    Protobuf,
}

#[derive(Debug)]
pub(super) struct Page {
    /// For example `PodList`.
    pub(super) list_kind: String,
    pub(super) api_version: String,
    pub(super) format: PageFormat,
    pub(super) version: ResourceVersion,
    /// Empty on the last page.
    pub(super) continue_token: String,
    /// Whether there is a list of items, even an empty one. Go writes a nil slice as `null`.
    pub(super) lists_items: bool,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListBody<'a> {
    kind: String,
    api_version: String,
    metadata: ListMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    r#continue: String,
}

impl Page {
    pub(super) fn read(body: &Bytes) -> Result<Self, Failure> {
        if body.starts_with(PROTOBUF_MAGIC) { Self::read_protobuf(body.clone()) } else { Self::read_json(body) }
    }

    fn read_json(body: &[u8]) -> Result<Self, Failure> {
        let list: ListBody<'_> = serde_json::from_slice(body).map_err(|_| Failure::Malformed)?;
        Ok(Self {
            list_kind: list.kind,
            api_version: list.api_version,
            // Built-in types are written in the order of the Go struct's fields, custom resources in alphabetical
            // order.
            format: if body.starts_with(b"{\"kind\":") { PageFormat::Typed } else { PageFormat::Custom },
            version: version(&list.metadata.resource_version)?,
            continue_token: list.metadata.r#continue,
            lists_items: list.items.is_some(),
        })
    }

    fn read_protobuf(body: Bytes) -> Result<Self, Failure> {
        let list = protobuf::ListBody::parse(body).map_err(|_| Failure::Malformed)?;
        Ok(Self {
            version: version(&list.resource_version)?,
            list_kind: list.kind,
            api_version: list.api_version,
            format: PageFormat::Protobuf,
            continue_token: list.r#continue,
            lists_items: true,
        })
    }
}

fn version(text: &str) -> Result<ResourceVersion, Failure> {
    ResourceVersion::parse(text).map_err(|_| Failure::Malformed)
}
