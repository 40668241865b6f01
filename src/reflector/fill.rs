//! Fetching the whole state: the head of a list says what the resource looks like, then a
//! watch-list or pages of lists bring the objects.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderValue;
use serde_json::value::RawValue;

use super::{Failure, Lines, ListPage, ListRequest, ListWatch, UpstreamEvent, WatchFrom, WatchRequest, driver};
use crate::{
    apimachinery::{FieldSource, ResourceVersion, SelectableField},
    encode::BookmarkTemplate,
    store::{Object, Reader, Schema, Shape},
};

/// A watch-list that brings neither objects nor its end bookmark for so long will not do so later.
const FILL_SILENCE_MAX: Duration = Duration::from_secs(30);

/// A store that holds the whole state, and what upstream's answers taught on the way.
#[derive(Debug)]
pub struct Filled {
    pub reader: Reader,
    pub advance: crate::store::Advance,
    /// `PodList`
    pub list_kind: String,
    /// `Warning` headers that every answer of this resource has.
    pub warnings: Vec<HeaderValue>,
    /// Known at once where upstream has watch-list, else from its first bookmark on.
    pub bookmark: Option<BookmarkTemplate>,
    /// Upstream itself takes `sendInitialEvents`.
    pub watch_list: bool,
}

/// What a list says before its items.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) list_kind: String,
    pub(super) shape: Shape,
    pub(super) warnings: Vec<HeaderValue>,
}

/// The whole state as it was at `version`.
pub(super) struct State<S> {
    pub(super) objects: Vec<Arc<Object>>,
    pub(super) version: ResourceVersion,
    pub(super) bookmark: Option<BookmarkTemplate>,
    /// The watch that goes on where the state ends, and the bytes of it that were read already.
    pub(super) watch: Option<(S, Lines)>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListBody<'a> {
    kind: String,
    api_version: String,
    metadata: ListMetadata,
    // Go writes null for a list that was never made.
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

/// The version of a collection as a list of it says.
pub fn head_version(page: &ListPage) -> Result<ResourceVersion, Failure> {
    let body: ListBody<'_> = serde_json::from_slice(&page.body).map_err(|_| Failure::Malformed)?;
    ResourceVersion::parse(&body.metadata.resource_version).map_err(|_| Failure::Malformed)
}

impl Head {
    /// `kind` is that of the objects, from discovery.
    pub(super) fn read(page: ListPage, kind: &str) -> Result<Self, Failure> {
        let body: ListBody<'_> = serde_json::from_slice(&page.body).map_err(|_| Failure::Malformed)?;
        // Built-in types are written in the order of the Go struct, custom resources alphabetically.
        let shape =
            if page.body.starts_with(b"{\"kind\":") { Shape::typed(kind, &body.api_version) } else { Shape::Custom };
        Ok(Self { list_kind: body.kind, shape, warnings: page.warnings })
    }
}

/// Those of `fields` that upstream knows: the table is that of the newest server, and what an older one refuses
/// must be forwarded for it to say so.
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

/// Reads a watch-list up to its end bookmark.
pub(super) async fn watch_list<L: ListWatch>(
    upstream: &L,
    schema: &Schema,
    not_older_than: Option<ResourceVersion>,
) -> Result<State<L::Stream>, Failure> {
    let from = WatchFrom::State { not_older_than };
    let mut stream = upstream.watch(WatchRequest { from, seconds: driver::watch_seconds() }).await?;
    let (mut lines, mut objects) = (Lines::default(), Vec::new());
    loop {
        while let Some(line) = lines.next_line().map_err(|_| Failure::Malformed)? {
            match parse(&line, schema)? {
                // Only the object's own bytes are kept: the line around them is of no use later.
                UpstreamEvent::Change { object, .. } => objects.push(Arc::new(object)),
                UpstreamEvent::Bookmark { version, template, initial_events_end: true } => {
                    let bookmark = Some(template);
                    return Ok(State { objects, version, bookmark, watch: Some((stream, lines)) });
                }
                UpstreamEvent::Bookmark { .. } => {}
                UpstreamEvent::Error(failure) => return Err(failure),
            }
        }
        let chunk =
            driver::next_chunk(upstream, &mut stream, FILL_SILENCE_MAX).await.unwrap_or(Err(Failure::Unavailable))?;
        lines.push(&chunk);
    }
}

/// Reads the list page by page.
pub(super) async fn list<L: ListWatch>(
    upstream: &L,
    schema: &Schema,
    not_older_than: Option<ResourceVersion>,
) -> Result<State<L::Stream>, Failure> {
    let mut objects = Vec::new();
    let mut continue_token = None;
    loop {
        let page = upstream.list(ListRequest { not_older_than, continue_token }).await?;
        let body: ListBody<'_> = serde_json::from_slice(&page.body).map_err(|_| Failure::Malformed)?;
        for item in body.items.unwrap_or_default() {
            let item = Bytes::copy_from_slice(item.get().as_bytes());
            let object = Object::from_item(item, schema).map_err(|error| {
                tracing::warn!(error = error_chain(&error), "an item of upstream's list cannot be kept");
                Failure::Malformed
            })?;
            objects.push(Arc::new(object));
        }
        if body.metadata.r#continue.is_empty() {
            let version = ResourceVersion::parse(&body.metadata.resource_version).map_err(|_| Failure::Malformed)?;
            return Ok(State { objects, version, bookmark: None, watch: None });
        }
        continue_token = Some(body.metadata.r#continue);
    }
}

/// Parses a line; one that cannot be used is logged with its cause.
pub(super) fn parse(line: &Bytes, schema: &Schema) -> Result<UpstreamEvent, Failure> {
    UpstreamEvent::parse(line, schema).map_err(|error| {
        tracing::warn!(error = error_chain(&error), "an event of upstream's watch cannot be used");
        Failure::Malformed
    })
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
