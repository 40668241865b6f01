//! Gets and lists.

use std::io::Read;

use flate2::read::GzDecoder;
use http::header;
use http_body_util::BodyExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    connection::Lane,
    endpoint::Ask,
    failure::{ErrorKind, Failure},
    frames::{Event, Frames},
    paths,
    profile::{ListWork, Pages, ReadVersion, Start, Transport},
};
use crate::apimachinery::GroupVersionResource;

/// The number of bytes of a list in which the token of its next page is searched: it is in front of the items.
const HEAD_BYTES: usize = 16 << 10;
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
        lane: &Lane,
        transport: Transport,
        client: usize,
        number: u64,
    ) -> Result<Counted, Failure> {
        let Transport { encoding, gzip, .. } = transport;
        match self {
            Self::Get(paths) => {
                let index = usize::try_from(number).unwrap_or_default() % paths.len().max(1);
                let path = paths.get(index).ok_or_else(nothing_to_get)?;
                let ask = Ask { accept: encoding.accept(false), gzip, ..Ask::get(path) };
                Ok(count(lane, &ask, None).await?)
            }
            Self::List { path, version, work } => {
                let selectors = paths::selectors(&work.selection, client);
                let accept = encoding.accept(true);
                let limit = work.limit.map(|limit| format!("limit={limit}")).unwrap_or_default();
                let first = paths::with_query(path, &[version, &limit, &selectors]);
                if work.pages == Pages::WatchList {
                    let start = paths::start(Start::WatchList, "");
                    let path = paths::with_query(path, &[&start, &selectors]);
                    return watch_list(lane, &Ask { accept: encoding.accept(false), gzip, ..Ask::get(&path) }).await;
                }
                let mut head = work.limit.filter(|_| work.pages == Pages::All).map(|_| Head::default());
                let mut counted = count(lane, &Ask { accept, gzip, ..Ask::get(&first) }, head.as_mut()).await?;
                while let Some(token) = head.as_ref().and_then(Head::next_page) {
                    let path = paths::with_query(path, &[&limit, &format!("continue={token}"), &selectors]);
                    head = Some(Head::default());
                    counted.bytes += count(lane, &Ask { accept, gzip, ..Ask::get(&path) }, head.as_mut()).await?.bytes;
                }
                Ok(counted)
            }
        }
    }
}

fn nothing_to_get() -> Failure {
    let message = "there were no objects to get when the turn began".to_owned();
    Failure { kind: ErrorKind::Status(404), message }
}

/// Reads a response to its end, and keeps its first bytes if `head` is given.
async fn count(lane: &Lane, ask: &Ask<'_>, mut head: Option<&mut Head>) -> Result<Counted, Failure> {
    let mut answer = lane.open(ask).await?;
    let first_byte = Instant::now();
    if let Some(head) = head.as_deref_mut() {
        let coding = answer.response.headers().get(header::CONTENT_ENCODING);
        head.is_gzip = coding.is_some_and(|coding| coding == "gzip");
    }
    let mut bytes = 0;
    while let Some(frame) = answer.response.body_mut().frame().await {
        let frame = frame.map_err(|error| Failure::stream(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        bytes += data.len() as u64;
        if let Some(head) = head.as_deref_mut() {
            head.push(data);
        }
    }
    lane.done(answer).await;
    Ok(Counted { first_byte, bytes })
}

/// Reads a watch-list up to the bookmark at the end of the objects, and gives up the rest.
async fn watch_list(lane: &Lane, ask: &Ask<'_>) -> Result<Counted, Failure> {
    let mut answer = lane.open(ask).await?;
    let (first_byte, mut bytes) = (Instant::now(), 0);
    let content_type = answer.response.headers().get(header::CONTENT_TYPE);
    let protobuf = b"application/vnd.kubernetes.protobuf";
    let mut frames = Frames::new(content_type.is_some_and(|of| of.as_bytes().starts_with(protobuf)));
    let failed = |kind, message: &str| Failure { kind, message: message.to_owned() };
    while let Some(frame) = answer.response.body_mut().frame().await {
        let frame = frame.map_err(|error| Failure::stream(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        bytes += data.len() as u64;
        let (mut synced, mut refused) = (false, None);
        frames.push(data, |event| match event {
            Event::Synced => synced = true,
            Event::Error { code } => refused = Some(code),
            Event::Object { .. } | Event::Deleted | Event::Bookmark => {}
        });
        if let Some(code) = refused {
            return Err(failed(ErrorKind::Event(code), "an ERROR event ended the watch"));
        }
        if synced {
            return Ok(Counted { first_byte, bytes });
        }
    }
    Err(failed(ErrorKind::Stream, "the watch ended before all objects had come"))
}

/// The first bytes of a list in JSON.
#[derive(Debug, Default)]
pub(super) struct Head {
    bytes: Vec<u8>,
    is_gzip: bool,
}

impl Head {
    pub(super) fn new(is_gzip: bool) -> Self {
        Self { bytes: Vec::new(), is_gzip }
    }

    /// Keeps the first bytes.
    pub(super) fn push(&mut self, data: &[u8]) {
        let room = HEAD_BYTES.saturating_sub(self.bytes.len()).min(data.len());
        self.bytes.extend_from_slice(&data[..room]);
    }

    /// The token of the next page, as a value for a query. Tokens are encoded in base64url.
    pub(super) fn next_page(&self) -> Option<String> {
        const CONTINUE: &[u8] = b"\"continue\":\"";
        let text = if self.is_gzip { &unzipped(&self.bytes) } else { &self.bytes };
        let items = memchr::memmem::find(text, b"\"items\":").unwrap_or(text.len());
        let at = memchr::memmem::find(&text[..items], CONTINUE)? + CONTINUE.len();
        let token = &text[at..];
        let token = std::str::from_utf8(&token[..memchr::memchr(b'"', token)?]).ok()?;
        (!token.is_empty()).then(|| token.to_owned())
    }
}

/// Decompresses as much as the first bytes of a gzip allow.
fn unzipped(bytes: &[u8]) -> Vec<u8> {
    let (mut decoder, mut text, mut buffer) = (GzDecoder::new(bytes), Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = decoder.read(&mut buffer) {
        text.extend_from_slice(&buffer[..read]);
    }
    text
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

async fn metadata(lane: &Lane, path: &str) -> Result<MetadataList, Failure> {
    let body = lane.whole(&Ask { accept: METADATA, ..Ask::get(path) }).await?;
    serde_json::from_slice(&body).map_err(|error| Failure::stream(&error))
}

/// The newest version of a collection.
pub(super) async fn newest(lane: &Lane, resource: &GroupVersionResource) -> Result<String, Failure> {
    let path = paths::with_query(&resource.collection_path(), &["limit=1"]);
    Ok(metadata(lane, &path).await?.metadata.resource_version.unwrap_or_default())
}

/// The paths of some objects, with the query of a get.
pub(super) async fn names(
    lane: &Lane,
    (resource, namespace): (&GroupVersionResource, Option<&str>),
    version: ReadVersion,
) -> Result<Vec<String>, Failure> {
    let path = paths::with_query(&paths::collection(resource, namespace), &[&format!("limit={NAMES}")]);
    let list = metadata(lane, &path).await?;
    let query = paths::version(version, list.metadata.resource_version.as_deref().unwrap_or_default());
    let path = |Item { metadata: ItemMetadata { name, namespace } }: Item| {
        paths::with_query(&paths::object(resource, namespace.as_deref(), &name), &[&query])
    };
    Ok(list.items.into_iter().flatten().map(path).collect())
}

/// The paths of all objects of a collection that a label selector matches.
pub(super) async fn labelled(
    lane: &Lane,
    resource: &GroupVersionResource,
    selector: &str,
) -> Result<Vec<String>, Failure> {
    let (collection, mut found, mut token) = (resource.collection_path(), Vec::new(), String::new());
    loop {
        let next = if token.is_empty() { String::new() } else { format!("continue={token}") };
        let path = paths::with_query(&collection, &[&format!("limit={NAMES}"), selector, &next]);
        let list = metadata(lane, &path).await?;
        found.extend(list.items.into_iter().flatten().map(|Item { metadata: ItemMetadata { name, namespace } }| {
            paths::object(resource, namespace.as_deref(), &name)
        }));
        token = list.metadata.continue_.unwrap_or_default();
        if token.is_empty() {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    #[test]
    fn the_next_page_is_found_in_the_beginning_of_a_list() {
        let item = "{\"metadata\":{\"continue\":\"no\"}},".repeat(2_000);
        let list = |metadata: &str| format!("{{\"kind\":\"PodList\",\"metadata\":{{{metadata}}},\"items\":[{item}]}}");
        for (metadata, expected) in [
            (r#""resourceVersion":"5","continue":"eyJ2-_","remainingItemCount":5"#, Some("eyJ2-_")),
            (r#""resourceVersion":"5","continue":"""#, None),
            (r#""resourceVersion":"5""#, None),
        ] {
            let plain = list(metadata).into_bytes();
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(&plain).unwrap();
            let gzip = gzip.finish().unwrap();
            for (bytes, is_gzip) in [(plain, false), (gzip, true)] {
                let bytes = bytes[..bytes.len().min(500)].to_vec();
                assert_eq!(Head { bytes, is_gzip }.next_page().as_deref(), expected);
            }
        }
    }
}
