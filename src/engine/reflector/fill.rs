//! Fetches the whole state: the head of a list shows the form of the resource, then a watch-list
//! ([`super::watch_list`]) or the pages of a list provide the objects.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{
    ByteStream, EventStream, Failure, FillSource, ListPage, ListRequest, ListWatch, UpstreamEvent,
    item_readers::ItemReaders, list_items::ListItems, protobuf_items::ProtobufItems,
};
use crate::{
    encode::{BookmarkTemplate, protobuf},
    store::{Objects, PROTOBUF_MAGIC, Reader, Schema, Shape},
};
use base::apimachinery::{Encoding, FieldSource, Provenance, ResourceVersion, SelectableField};

/// A store that holds the whole state, and what upstream's responses showed while it was filled.
#[derive(Debug)]
pub struct Filled {
    pub reader: Reader,
    /// When upstream was first asked for the state in the store.
    pub began: Instant,
    pub advance: crate::store::Advance,
    /// The kind of a list, for example `PodList`.
    pub list_kind: String,
    /// `Warning` headers that every response for this resource has.
    pub warnings: Vec<HeaderValue>,
    /// Known immediately if upstream supports watch-list, otherwise once its first bookmark arrived.
    pub bookmark: Option<BookmarkTemplate>,
    pub source: FillSource,
    /// The version of the program that wrote the objects; `None` if it is not known.
    pub written_by: Option<String>,
    /// The provenance of the state; `None` if it is not known, or there are no peers that may ask for it.
    pub provenance: Option<Provenance>,
}

/// The part of a list before its items.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) list_kind: String,
    pub(super) shape: Shape,
    pub(super) warnings: Vec<HeaderValue>,
}

/// How upstream wrote a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageFormat {
    /// A built-in type in JSON.
    Typed,
    /// A custom resource in JSON.
    Custom,
    Protobuf,
}

/// A page of a list, without its items.
#[derive(Debug)]
pub(super) struct Page {
    /// For example `PodList`.
    list_kind: String,
    api_version: String,
    format: PageFormat,
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

/// The whole state at `version`.
pub(super) struct State<S> {
    pub(super) objects: Objects,
    pub(super) version: ResourceVersion,
    /// Known if upstream was seen to end initial events.
    pub(super) bookmark: Option<BookmarkTemplate>,
    /// The watch that continues from the state.
    pub(super) watch: Option<EventStream<S>>,
    /// What happened after it that is known already.
    pub(super) missed: Vec<UpstreamEvent>,
    pub(super) source: FillSource,
    /// See [`ByteStream::written_by`].
    pub(super) written_by: Option<String>,
}

/// The version of a collection, from a list of it.
pub fn head_version(page: &ListPage) -> Result<ResourceVersion, Failure> {
    Ok(Page::read(&page.body)?.version)
}

impl Page {
    fn read(body: &Bytes) -> Result<Self, Failure> {
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
            version: version_of(&list.metadata.resource_version)?,
            continue_token: list.metadata.r#continue,
            lists_items: list.items.is_some(),
        })
    }

    fn read_protobuf(body: Bytes) -> Result<Self, Failure> {
        let list = protobuf::ListBody::parse(body).map_err(|_| Failure::Malformed)?;
        Ok(Self {
            version: version_of(&list.resource_version)?,
            list_kind: list.kind,
            api_version: list.api_version,
            format: PageFormat::Protobuf,
            continue_token: list.r#continue,
            lists_items: true,
        })
    }
}

fn version_of(text: &str) -> Result<ResourceVersion, Failure> {
    ResourceVersion::parse(text).map_err(|_| Failure::Malformed)
}

impl Head {
    /// `kind` is the kind of the objects, from discovery.
    pub(super) fn read(page: ListPage, kind: &str) -> Result<Self, Failure> {
        let read = Page::read(&page.body)?;
        Ok(Self { shape: shape(&read, kind), list_kind: read.list_kind, warnings: page.warnings })
    }

    /// Whether a page of objects of that kind has the same form.
    pub(super) fn is_of(&self, page: &Page, kind: &str) -> bool {
        page.list_kind == self.list_kind && shape(page, kind) == self.shape
    }
}

fn shape(Page { api_version, format, .. }: &Page, kind: &str) -> Shape {
    match format {
        PageFormat::Typed => Shape::typed(kind, api_version),
        PageFormat::Custom => Shape::Custom,
        PageFormat::Protobuf => Shape::protobuf(kind, api_version),
    }
}

/// Returns those `fields` that upstream supports. The table of fields is that of the newest server; a request with a
/// selector that an older upstream refuses must be forwarded, so that upstream words the refusal.
pub(super) async fn known_fields(
    upstream: &impl ListWatch,
    fields: &[SelectableField],
) -> Result<Vec<SelectableField>, Failure> {
    let everywhere = |field: &SelectableField| matches!(field.source, FieldSource::Name | FieldSource::Namespace);
    let labels: Vec<&str> = fields.iter().filter(|field| !everywhere(field)).map(|field| &*field.label).collect();
    if labels.is_empty() || upstream.knows_fields(&labels).await? {
        return Ok(fields.to_vec());
    }
    let mut known = Vec::new();
    for field in fields {
        if everywhere(field) || upstream.knows_fields(&[&field.label]).await? {
            known.push(field.clone());
        }
    }
    Ok(known)
}

/// Reads a page. Its items are passed to `readers`, and are not in the result.
pub(super) async fn page(stream: impl ByteStream, schema: &Schema, readers: &mut ItemReaders) -> Result<Page, Failure> {
    match schema.shape.encoding() {
        Encoding::Json => json_page(stream, readers).await,
        Encoding::Protobuf => protobuf_page(stream, readers).await,
    }
}

/// Reads a page in JSON. The page is returned without its items, which are passed to `readers` as they arrive.
async fn json_page(mut stream: impl ByteStream, readers: &mut ItemReaders) -> Result<Page, Failure> {
    let mut items = ListItems::default();
    while let Some(piece) = stream.next().await {
        items.push(&piece?, |item| readers.take(item))?;
        readers.check().await?;
    }
    Page::read(&items.end())
}

/// The same in protobuf.
async fn protobuf_page(mut stream: impl ByteStream, readers: &mut ItemReaders) -> Result<Page, Failure> {
    let mut items = ProtobufItems::default();
    while let Some(piece) = stream.next().await {
        items.push(&piece?, |item| readers.take(item))?;
        readers.check().await?;
    }
    Page::read(&items.end()?)
}

/// Reads a list page by page.
pub(super) async fn list<L: ListWatch>(
    upstream: &L,
    schema: &Arc<Schema>,
    not_older_than: Option<ResourceVersion>,
) -> Result<State<L::Stream>, Failure> {
    let mut readers = ItemReaders::new(schema.clone(), FillSource::Upstream);
    let mut continue_token = None;
    loop {
        let stream = upstream.list(ListRequest { not_older_than, continue_token }).await?;
        let written_by = stream.written_by().map(str::to_owned);
        let page = page(stream, schema, &mut readers).await?;
        if page.continue_token.is_empty() {
            let objects = readers.objects().await?;
            let (version, source) = (page.version, FillSource::Upstream);
            let (bookmark, watch, missed) = (None, None, Vec::new());
            return Ok(State { objects, version, bookmark, watch, missed, source, written_by });
        }
        continue_token = Some(page.continue_token);
    }
}
