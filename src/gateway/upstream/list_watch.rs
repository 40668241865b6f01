//! Lists and watches of one resource for its reflector.

use std::{fmt, iter, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Limited};
use memchr::memmem;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::{
    time::{Instant, timeout},
    try_join,
};

use super::{Crd, FetchError, Upstream};
use crate::connector::{self, ACCEPTS_BRIDGE, BRIDGE, RequestBody, ResponseBody};
use base::{
    apimachinery::{
        CollectionScope, Encoding, GroupVersionResource, Representation, ResourceVersion, ResponseKind, STATE_FORMAT,
        View,
    },
    telemetry::{Chain, limit_reached},
};
use engine::{
    reflector::{ByteStream, Failure, ListPage, ListRequest, ListWatch, StateForm, WatchFrom, WatchRequest},
    store::PACKED_FORMAT,
};

/// The number of objects per page. Upstream ignores it if its own cache answers, and sends everything.
const PAGE_OBJECTS: u32 = 500;
/// The maximum size of a list, in bytes. A larger collection is not cached, and requests for it are forwarded.
const LIST_BYTES_MAX: usize = 4 << 30;
/// A name that no object and no namespace can have: names must not end with a dot.
const NO_OBJECT: &str = "kube-fanout.";
/// The `Accept` header for lists of metadata in JSON, which every resource supports.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// The `Accept` header for Tables, which are JSON.
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
/// All shards there are.
const ALL_SHARDS: &str = "shardRange(object.metadata.uid,'0x0000000000000000','0x10000000000000000')";
/// No shard selector, and how an API server says so.
const NO_SHARDS: &str = "none";
const INVALID_SHARDS: &[u8] = b"invalid shard selector";
/// The parameters of a watch that begins with the state.
const WATCH_LIST: &str = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
/// The timeout of a watch of no object, which is closed after its first event, in seconds.
const NOTHING_SECONDS: u32 = 10;
/// The maximum size of an error body that is read, in bytes.
const STATUS_BYTES_MAX: usize = 64 << 10;

/// The maximum time until the headers of a list arrive: an API server aborts a list after 60 s (`--request-timeout`),
/// and in the worst case writes all of it into memory before its headers.
const LIST_HEADERS_MAX: Duration = Duration::from_secs(65);
/// The maximum time until the headers of all other responses arrive: a watch waits 3 s for its version, and a quarter
/// of a minute in a queue of priority and fairness.
const HEADERS_MAX: Duration = Duration::from_secs(30);
/// The maximum pause within a list. A watch may be silent for any time; its reader limits that.
const LIST_SILENCE_MAX: Duration = Duration::from_secs(30);

/// One resource of upstream, as found by discovery.
#[derive(Clone, Debug)]
pub struct ResourceListWatch {
    upstream: Upstream,
    resource: GroupVersionResource,
    scope: CollectionScope,
    namespaced: bool,
    encoding: Encoding,
    /// The definition of the resource, if it is a custom one.
    definition: Option<Crd>,
}

impl ResourceListWatch {
    pub fn new(
        upstream: Upstream,
        resource: GroupVersionResource,
        scope: CollectionScope,
        namespaced: bool,
        encoding: Encoding,
        definition: Option<Crd>,
    ) -> Self {
        Self { upstream, resource, scope, namespaced, encoding, definition }
    }

    /// A page of all objects' metadata as they were at `version`, as a `PartialObjectMetadataList` in JSON.
    ///
    /// # Errors
    /// Upstream has compacted the version or not reached it, or its response is not as expected.
    pub async fn metadata_at(&self, version: ResourceVersion, token: Option<&str>) -> Result<Bytes, Failure> {
        let query = page_at(version, token);
        let answer = self.get_selected(&query, METADATA, LIST_HEADERS_MAX).await?;
        whole(answer).await
    }

    /// Requests the collection, or the part of it, with that query.
    async fn get(&self, query: &str, headers_max: Duration) -> Result<http::Response<ResponseBody>, Failure> {
        self.get_selected(query, accept(self.encoding), headers_max).await
    }

    async fn get_selected(
        &self,
        query: &str,
        accept: &'static str,
        headers_max: Duration,
    ) -> Result<http::Response<ResponseBody>, Failure> {
        self.send(self.selected(query, accept)?, headers_max).await
    }

    /// A request for the collection, or the part of it, with that query.
    fn selected(&self, query: &str, accept: &'static str) -> Result<Request<RequestBody>, Failure> {
        let path = self.resource.path_in(self.scope.namespace.as_deref());
        let selector = self.scope.selection.iter().map(|selection| format!("&{}", field_selector(selection)));
        let query: String = iter::once(query.to_owned()).chain(selector).collect();
        request(&path, &query, accept)
    }

    /// Fails if no response, or only part of an error response, has arrived after `headers_max`.
    async fn send(
        &self,
        request: Request<RequestBody>,
        headers_max: Duration,
    ) -> Result<http::Response<ResponseBody>, Failure> {
        let answer = timeout(headers_max, self.send_untimed(request)).await;
        answer.unwrap_or_else(|_| {
            let resource = &self.resource;
            tracing::debug!(%resource, ?headers_max, "upstream accepted a request and did not answer in time");
            Err(Failure::Unavailable)
        })
    }

    async fn send_untimed(&self, request: Request<RequestBody>) -> Result<http::Response<ResponseBody>, Failure> {
        let response = self.upstream.send(request).await.map_err(|error| {
            tracing::debug!(resource = %self.resource, %error, "cannot send a request of the reflector");
            Failure::Unavailable
        })?;
        if response.status() == StatusCode::OK { Ok(response) } else { Err(failure(response).await) }
    }
}

impl ResourceListWatch {
    /// The definition of the resource when it was discovered; `None` for a built-in resource.
    pub fn definition(&self) -> Option<&Crd> {
        self.definition.as_ref()
    }

    /// Whether upstream still has that definition, unchanged. Costs upstream the metadata of one object.
    pub async fn has_same_definition(&self) -> Result<bool, FetchError> {
        let Some(known) = &self.definition else { return Ok(true) };
        Ok(self.upstream.is_current(&self.resource.group_resource(), known).await? == Some(true))
    }

    /// The version of upstream's code as of now, such as `v1.36.2`; `None` if it does not say, or emulates another.
    pub async fn code_version(&self) -> Option<String> {
        self.upstream.code_version().await
    }

    /// A Table without rows, in JSON, for its column definitions.
    ///
    /// # Errors
    /// Upstream's response is not as expected.
    pub async fn empty_table(&self) -> Result<Bytes, Failure> {
        whole(self.get_nothing("resourceVersion=0", "", TABLE).await?).await
    }

    /// Whether upstream selects by `shardSelector`, or ignores it, as most do. `is_custom`: the resource is a custom
    /// one, whether or not its definition can be read. Costs upstream no more than a get.
    ///
    /// # Errors
    /// Upstream's response is not as expected.
    pub async fn has_shards(&self, is_custom: bool) -> Result<bool, Failure> {
        let json = accept(Encoding::Json);
        let query = |shards: &str| format!("resourceVersion=0&shardSelector={}", utf8_percent_encode(shards, RESERVED));
        if !is_custom {
            let list = whole(self.get_nothing(&query(ALL_SHARDS), "", json).await?).await?;
            let list: ShardedList = serde_json::from_slice(&list).map_err(|_| Failure::Malformed)?;
            return Ok(list.metadata.shard_info.is_some());
        }
        // Lists of custom resources do not say that they are selected (read-path 5.5). A refusal does.
        let answer = timeout(HEADERS_MAX, self.upstream.send(self.nothing(&query(NO_SHARDS), "", json)?)).await;
        let answer = answer.map_err(|_| Failure::Unavailable)?.map_err(|_| Failure::Unavailable)?;
        if answer.status() == StatusCode::OK {
            return Ok(false);
        }
        let (code, body) = (answer.status().as_u16(), error_body(answer).await);
        let is_refused = memmem::find(&body, INVALID_SHARDS).is_some();
        if is_refused { Ok(true) } else { Err(Failure::of_answer(code, &body)) }
    }

    /// Requests a part of the scope that has no objects: [`NO_OBJECT`], in a namespace that cannot exist if the
    /// resource is namespaced and the gateway reads all namespaces. `labels` are added to the field selector.
    ///
    /// The labels of the selector are validated before objects are read, and a list of one name costs upstream no more
    /// than a get. A selector on the whole collection would be evaluated for every object in its storage.
    async fn get_nothing(
        &self,
        query: &str,
        labels: &str,
        accept: &'static str,
    ) -> Result<http::Response<ResponseBody>, Failure> {
        self.send(self.nothing(query, labels, accept)?, HEADERS_MAX).await
    }

    fn nothing(&self, query: &str, labels: &str, accept: &'static str) -> Result<Request<RequestBody>, Failure> {
        let CollectionScope { namespace, selection } = &self.scope;
        let namespace = namespace.as_deref().or(self.namespaced.then_some(NO_OBJECT));
        // Rights may depend on the selection.
        let selection = selection.iter().map(|selection| format!(",{selection}"));
        let fields: String = iter::once(format!("metadata.name={NO_OBJECT}{labels}")).chain(selection).collect();
        let query = format!("{query}&{}", field_selector(&fields));
        request(&self.resource.path_in(namespace), &query, accept)
    }
}

/// What a list says of its shards.
#[derive(serde::Deserialize)]
struct ShardedList {
    metadata: ShardedListMeta,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShardedListMeta {
    shard_info: Option<serde::de::IgnoredAny>,
}

/// The body of a list or of a watch.
#[derive(Debug)]
pub struct ListWatchStream {
    body: ResponseBody,
    /// The remaining bytes that a list may have; `None` for a watch, which is not limited.
    left: Option<usize>,
    written_by: Option<String>,
}

impl ListWatchStream {
    fn list(answer: http::Response<ResponseBody>) -> Self {
        Self { written_by: connector::written_by(&answer), body: answer.into_body(), left: Some(LIST_BYTES_MAX) }
    }

    fn watch(answer: http::Response<ResponseBody>) -> Self {
        Self { written_by: connector::written_by(&answer), body: answer.into_body(), left: None }
    }

    async fn frame(&mut self) -> Option<Result<Frame<Bytes>, Failure>> {
        let frame = match self.left {
            None => self.body.frame().await,
            Some(_) => match timeout(LIST_SILENCE_MAX, self.body.frame()).await {
                Ok(frame) => frame,
                Err(_) => return Some(Err(Failure::Unavailable)),
            },
        };
        Some(frame?.map_err(|_| Failure::Unavailable))
    }
}

impl ByteStream for ListWatchStream {
    async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        loop {
            let Ok(frame) = self.frame().await? else { return Some(Err(Failure::Unavailable)) };
            let Ok(bytes) = frame.into_data() else { continue };
            if let Some(left) = &mut self.left {
                let Some(rest) = left.checked_sub(bytes.len()) else {
                    limit_reached("upstream_list_bytes");
                    return Some(Err(Failure::Unavailable));
                };
                *left = rest;
            }
            return Some(Ok(bytes));
        }
    }

    fn written_by(&self) -> Option<&str> {
        self.written_by.as_deref()
    }
}

impl ListWatch for ResourceListWatch {
    type Stream = ListWatchStream;

    async fn list(&self, request: ListRequest) -> Result<ListWatchStream, Failure> {
        let from = match (request.continue_token, request.not_older_than) {
            (Some(token), _) => format!("continue={token}"),
            (None, Some(version)) => format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan"),
            // The server answers reads from its cache. A state from its storage may be far ahead of that cache, and
            // requests of the server's own clients with its version would be refused (seen on 1.20).
            (None, None) => "resourceVersion=0".to_owned(),
        };
        let query = match self.scope.selection {
            None => format!("limit={PAGE_OBJECTS}&{from}"),
            // With a limit, an API server may read all objects from its storage to select some.
            Some(_) => from,
        };
        Ok(ListWatchStream::list(self.get(&query, LIST_HEADERS_MAX).await?))
    }

    async fn state(&self, not_older_than: ResourceVersion) -> Result<Option<(StateForm, ListWatchStream)>, Failure> {
        // A part of a collection is not kept in the form that is sent.
        if self.upstream.gateways_above() == 0 || !self.scope.is_cluster() {
            return Ok(None);
        }
        let query = format!("resourceVersion={not_older_than}&resourceVersionMatch=NotOlderThan");
        let mut asked = self.selected(&query, accept(self.encoding))?;
        asked.headers_mut().insert(STATE_FORMAT, HeaderValue::from_static(PACKED_FORMAT));
        let answer = self.send(asked, LIST_HEADERS_MAX).await?;
        let is_packed = answer.headers().get(STATE_FORMAT).is_some_and(|format| format == PACKED_FORMAT);
        let form = if is_packed { StateForm::Packed } else { StateForm::List };
        Ok(Some((form, ListWatchStream::list(answer))))
    }

    async fn list_at(&self, version: ResourceVersion, token: Option<&str>) -> Result<ListWatchStream, Failure> {
        Ok(ListWatchStream::list(self.get(&page_at(version, token), LIST_HEADERS_MAX).await?))
    }

    async fn watch(&self, request: WatchRequest) -> Result<ListWatchStream, Failure> {
        let from = match request.from {
            WatchFrom::After(version) => format!("resourceVersion={version}"),
            WatchFrom::State { not_older_than } => {
                let version = not_older_than.map_or(String::new(), |version| format!("&resourceVersion={version}"));
                format!("sendInitialEvents=true&resourceVersionMatch=NotOlderThan{version}")
            }
        };
        let seconds = request.seconds;
        let query = format!("watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&{from}");
        let mut asked = self.selected(&query, accept(self.encoding))?;
        if request.accepts_bridge {
            asked.headers_mut().insert(BRIDGE, ACCEPTS_BRIDGE);
        }
        Ok(ListWatchStream::watch(self.send(asked, HEADERS_MAX).await?))
    }

    async fn head(&self) -> Result<ListPage, Failure> {
        let answer = match self.scope.selection {
            None => self.get("limit=1", HEADERS_MAX).await?,
            Some(_) => self.get_nothing("limit=1", "", accept(self.encoding)).await?,
        };
        let warnings = warnings(answer.headers());
        Ok(ListPage { body: whole(answer).await?, warnings })
    }

    async fn knows_fields(&self, labels: &[&str]) -> Result<bool, Failure> {
        let labels: String = labels.iter().map(|label| format!(",{label}=")).collect();
        match self.get_nothing("resourceVersion=0", &labels, accept(self.encoding)).await {
            Ok(_) => Ok(true),
            Err(Failure::Refused) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    async fn watch_nothing(&self) -> Result<ListWatchStream, Failure> {
        let query = format!("{WATCH_LIST}&timeoutSeconds={NOTHING_SECONDS}");
        Ok(ListWatchStream::watch(self.get_nothing(&query, "", accept(self.encoding)).await?))
    }

    async fn server(&self, since: Instant) -> Option<String> {
        self.upstream.server_version(since).await
    }

    async fn recovered_since(&self, time: Instant) {
        self.upstream.recovered_since(time).await;
    }

    async fn look_for_another_cluster(&self, since: Instant) {
        self.upstream.look_for_another_cluster(since).await;
    }

    async fn is_same_resource(&self) -> Result<bool, Failure> {
        let Some(known) = &self.definition else { return Ok(true) };
        let resource = self.resource.group_resource();
        let asked = try_join!(self.upstream.is_current(&resource, known), self.upstream.is_aggregated(&self.resource));
        let (is_current, is_aggregated) = asked.map_err(|error| {
            tracing::debug!(%resource, error = %Chain(&error), "cannot look up whether a resource has changed");
            if error.is_forbidden() { Failure::Denied } else { Failure::Unavailable }
        })?;
        // The definition may be missing only temporarily.
        Ok(is_current.ok_or(Failure::NotFound)? && !is_aggregated)
    }
}

fn request(path: &str, query: &str, accept: &'static str) -> Result<Request<RequestBody>, Failure> {
    let request = Request::get(format!("{path}?{query}")).header(header::ACCEPT, accept);
    request.body(RequestBody::Empty).map_err(|_| Failure::Malformed)
}

/// The parameters of a page of a list at exactly that version: the first one, or the one that the token continues with.
fn page_at(version: ResourceVersion, token: Option<&str>) -> String {
    let first = || format!("resourceVersion={version}&resourceVersionMatch=Exact");
    let from = token.map_or_else(first, |token| format!("continue={token}"));
    format!("limit={PAGE_OBJECTS}&{from}")
}

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The parameter for a field selector.
fn field_selector(fields: &impl fmt::Display) -> String {
    format!("fieldSelector={}", utf8_percent_encode(&fields.to_string(), RESERVED))
}

/// The body of a page that is small enough to be one piece.
async fn whole(answer: http::Response<ResponseBody>) -> Result<Bytes, Failure> {
    let mut stream = ListWatchStream::list(answer);
    let mut whole = Vec::new();
    while let Some(bytes) = stream.next().await {
        whole.extend_from_slice(&bytes?);
    }
    Ok(whole.into())
}

fn accept(encoding: Encoding) -> &'static str {
    Representation { encoding, view: View::Whole }.content_type(ResponseKind::List)
}

fn warnings(headers: &HeaderMap) -> Vec<HeaderValue> {
    headers.get_all(header::WARNING).iter().cloned().collect()
}

async fn failure(response: http::Response<ResponseBody>) -> Failure {
    let code = response.status().as_u16();
    Failure::of_answer(code, &error_body(response).await)
}

/// Empty if it cannot be read.
async fn error_body(response: http::Response<ResponseBody>) -> Bytes {
    let body = Limited::new(response.into_body(), STATUS_BYTES_MAX).collect().await;
    body.map(|body| body.to_bytes()).unwrap_or_default()
}
