//! Gets and lists.

use http_body_util::BodyExt;
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    channel::{Channel, OpenResponse},
    endpoint::RequestSpec,
    failure::{ErrorKind, Failure},
    list::{List, ListMeta},
    paths,
    profile::{ListWork, ReadVersion, Selection, Transport},
};
use base::apimachinery::GroupVersionResource;

/// The maximum number of objects that are read in turn.
const NAMES: usize = 500;
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// A complete response whose bytes were counted, but not kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    /// When the head of the response arrived; for several pages, that of the first page.
    pub(super) first_byte: Instant,
    pub(super) bytes: u64,
}

/// The requests of a workload's clients in one turn.
#[derive(Debug)]
pub(super) enum Reads {
    /// Paths of objects, used in turn.
    Get(Vec<String>),
    List {
        path: String,
        version: String,
        work: ListWork,
    },
}

impl Reads {
    pub(super) fn list(work: &ListWork, newest: &str) -> Self {
        let path = paths::collection(&work.selection.resource, work.selection.namespace.as_deref());
        Self::List { path, version: paths::version(work.version, newest), work: work.clone() }
    }

    /// Sends one request, or one for each page of a list.
    pub(super) async fn send(
        &self,
        channel: &Channel,
        transport: Transport,
        client: usize,
        number: u64,
    ) -> Result<Counted, Failure> {
        let Transport { encoding, gzip, .. } = transport;
        match self {
            Self::Get(paths) => {
                let index = usize::try_from(number).unwrap_or_default() % paths.len().max(1);
                let path = paths.get(index).ok_or_else(nothing_to_get)?;
                let ask = RequestSpec { accept: encoding.accept(false), gzip, ..RequestSpec::get(path) };
                Ok(count(channel, &ask).await?)
            }
            Self::List { path, version, work } => {
                let selectors = paths::selectors(&work.selection, client);
                let accept = encoding.accept(true);
                let limit = work.limit.map(|limit| format!("limit={limit}")).unwrap_or_default();
                let first = paths::with_query(path, &[version, &limit, &selectors]);
                let ask = RequestSpec { accept, gzip, ..RequestSpec::get(&first) };
                if work.limit.is_none() {
                    return count(channel, &ask).await;
                }
                let (mut counted, mut list) = page(channel, &ask).await?;
                while let Some(next_page) = list.next_page() {
                    let path = paths::with_query(path, &[&limit, &next_page, &selectors]);
                    let next = page(channel, &RequestSpec { accept, gzip, ..RequestSpec::get(&path) }).await?;
                    (counted.bytes, list) = (counted.bytes + next.0.bytes, next.1);
                }
                Ok(counted)
            }
        }
    }
}

fn nothing_to_get() -> Failure {
    Failure::of(ErrorKind::Status(404), "there were no objects to get when the turn began")
}

/// Reads a response to its end, without keeping it.
async fn count(channel: &Channel, ask: &RequestSpec<'_>) -> Result<Counted, Failure> {
    receive(channel, channel.open(ask).await?, |_| Ok(())).await
}

/// Reads one page of a list.
async fn page(channel: &Channel, ask: &RequestSpec<'_>) -> Result<(Counted, ListMeta), Failure> {
    let answer = channel.open(ask).await?;
    let mut list = List::of(&answer);
    let counted = receive(channel, answer, |piece| list.push(piece)).await?;
    Ok((counted, list.metadata()?))
}

/// Reads a body to its end.
async fn receive(
    channel: &Channel,
    mut answer: OpenResponse,
    mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<Counted, Failure> {
    let (first_byte, mut bytes) = (Instant::now(), 0);
    while let Some(frame) = answer.response.body_mut().frame().await {
        let frame = frame.map_err(|error| Failure::stream(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        bytes += data.len() as u64;
        take(data)?;
    }
    channel.done(answer).await;
    Ok(Counted { first_byte, bytes })
}

/// The metadata of a list, in JSON.
#[derive(Debug, Deserialize)]
struct MetadataList {
    metadata: ListMeta,
    /// `null` if there are none.
    items: Option<Vec<Item>>,
}

#[derive(Debug, Deserialize)]
struct Item {
    metadata: ItemMetadata,
}

#[derive(Debug, Deserialize)]
struct ItemMetadata {
    name: String,
    namespace: Option<String>,
}

async fn metadata(channel: &Channel, path: &str) -> Result<MetadataList, Failure> {
    let body = channel.whole(&RequestSpec { accept: METADATA, ..RequestSpec::get(path) }).await?;
    serde_json::from_slice(&body).map_err(|error| Failure::stream(&error))
}

/// The newest version of a collection, or of a namespace's part of it.
pub(super) async fn newest(channel: &Channel, selection: &Selection) -> Result<String, Failure> {
    let path = paths::collection(&selection.resource, selection.namespace.as_deref());
    let path = paths::with_query(&path, &["limit=1"]);
    Ok(metadata(channel, &path).await?.metadata.resource_version)
}

/// The paths of some objects, with the query of a get. Fails if there are none.
pub(super) async fn names(
    channel: &Channel,
    resource: &GroupVersionResource,
    namespace: Option<&str>,
    version: ReadVersion,
) -> Result<Vec<String>, Failure> {
    let path = paths::with_query(&paths::collection(resource, namespace), &[&format!("limit={NAMES}")]);
    let list = metadata(channel, &path).await?;
    let query = paths::version(version, &list.metadata.resource_version);
    let path = |Item { metadata: ItemMetadata { name, namespace } }: Item| {
        paths::with_query(&paths::object(resource, namespace.as_deref(), &name), &[&query])
    };
    let paths: Vec<_> = list.items.into_iter().flatten().map(path).collect();
    // Requests that are never sent fail at once: clients without a schedule would count millions of them.
    if paths.is_empty() { Err(nothing_to_get()) } else { Ok(paths) }
}

/// The paths of the first objects of a collection that a label selector matches, at most `limit`.
pub(super) async fn labelled(
    channel: &Channel,
    resource: &GroupVersionResource,
    selector: &str,
    limit: usize,
) -> Result<Vec<String>, Failure> {
    let path = paths::with_query(&resource.collection_path(), &[&format!("limit={limit}"), selector]);
    let items = metadata(channel, &path).await?.items.into_iter().flatten();
    let path =
        |Item { metadata: ItemMetadata { name, namespace } }| paths::object(resource, namespace.as_deref(), &name);
    Ok(items.map(path).collect())
}
