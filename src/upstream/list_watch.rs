//! Lists and watches of one resource for its reflector.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Limited};
use tokio::time::{Instant, timeout};

use super::{Crd, FetchError, RequestBody, ResponseBody, Upstream};
use crate::{
    apimachinery::{Answer, Encoding, GroupVersionResource, Representation, ResourceVersion, View},
    reflector::{Failure, ListPage, ListRequest, ListWatch, WatchFrom, WatchRequest},
    telemetry::limit_reached,
};

/// Objects a page. Upstream ignores it where its own cache answers, and sends everything.
const PAGE_OBJECTS: u32 = 500;
/// The largest list that is taken. A collection beyond it is not cached, its requests are forwarded.
const LIST_BYTES_MAX: usize = 4 << 30;
/// The name of an object, and of a namespace, that nobody has: dots are not allowed at the ends of names.
const NOBODY: &str = "kube-fanout.";
/// Lists of metadata, in JSON: every resource has them.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// Tables, which are JSON.
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
/// The largest error body that is read.
const STATUS_BYTES_MAX: usize = 64 << 10;

/// The headers of a list must be there after this time: an API server gives one up after 60 s (`--request-timeout`), and has
/// written all of it into memory before its headers in the worst case.
const LIST_HEADERS_MAX: Duration = Duration::from_secs(65);
/// The same for all else: a watch waits 3 s for its version, and a quarter of a minute in a queue of priority and fairness.
const HEADERS_MAX: Duration = Duration::from_secs(30);
/// The longest pause within a list. A watch is silent for as long as it likes: its reader decides.
const LIST_SILENCE_MAX: Duration = Duration::from_secs(30);

/// One resource of upstream, as it was found by discovery.
#[derive(Clone, Debug)]
pub struct ResourceListWatch {
    upstream: Upstream,
    resource: GroupVersionResource,
    namespaced: bool,
    encoding: Encoding,
    /// The definition that the resource came from, if it is a custom one.
    definition: Option<Crd>,
}

impl ResourceListWatch {
    pub fn new(
        upstream: Upstream,
        (resource, namespaced): (GroupVersionResource, bool),
        encoding: Encoding,
        definition: Option<Crd>,
    ) -> Self {
        Self { upstream, resource, namespaced, encoding, definition }
    }

    /// A page of all objects' metadata as they were at `version`, as a `PartialObjectMetadataList` in JSON.
    ///
    /// # Errors
    /// Upstream has compacted the version or not reached it, or does not answer as it should.
    pub async fn metadata_at(&self, version: ResourceVersion, token: Option<&str>) -> Result<Bytes, Failure> {
        let from = match token {
            Some(token) => format!("continue={token}"),
            None => format!("resourceVersion={version}&resourceVersionMatch=Exact"),
        };
        let (path, query) = (self.resource.collection_path(), format!("limit={PAGE_OBJECTS}&{from}"));
        let answer = self.get_at(&path, &query, METADATA, LIST_HEADERS_MAX).await?;
        whole(answer.into_body()).await
    }

    /// The whole collection, asked with that query.
    async fn get(&self, query: &str, headers_max: Duration) -> Result<http::Response<ResponseBody>, Failure> {
        self.get_at(&self.resource.collection_path(), query, accept(self.encoding), headers_max).await
    }

    /// Fails when there is no answer, or an error without its end, after `headers_max`.
    async fn get_at(
        &self,
        path: &str,
        query: &str,
        accept: &'static str,
        headers_max: Duration,
    ) -> Result<http::Response<ResponseBody>, Failure> {
        let answer = timeout(headers_max, self.get_untimed(path, query, accept)).await;
        answer.unwrap_or_else(|_| {
            tracing::debug!(resource = %self.resource, ?headers_max, "upstream accepts a request and does not answer it");
            Err(Failure::Unavailable)
        })
    }

    async fn get_untimed(
        &self,
        path: &str,
        query: &str,
        accept: &'static str,
    ) -> Result<http::Response<ResponseBody>, Failure> {
        let request = Request::get(format!("{path}?{query}"))
            .header(header::ACCEPT, accept)
            .body(RequestBody::Empty)
            .map_err(|_| Failure::Malformed)?;
        let response = self.upstream.send(request).await.map_err(|error| {
            tracing::debug!(resource = %self.resource, %error, "upstream does not answer the reflector");
            Failure::Unavailable
        })?;
        if response.status() == StatusCode::OK { Ok(response) } else { Err(failure(response).await) }
    }
}

impl ResourceListWatch {
    /// The definition that the resource came from, as it was then; `None` for what is built in.
    pub fn definition(&self) -> Option<&Crd> {
        self.definition.as_ref()
    }

    /// Whether upstream has that definition still, and has not changed it. Costs upstream the metadata of one object.
    pub async fn has_same_definition(&self) -> Result<bool, FetchError> {
        let Some(known) = &self.definition else { return Ok(true) };
        self.upstream.is_current(&self.resource.group_resource(), known).await
    }

    /// A Table of no objects, in JSON: what upstream says of its columns.
    ///
    /// # Errors
    /// Upstream does not answer as it should.
    pub async fn empty_table(&self) -> Result<Bytes, Failure> {
        let query = format!("resourceVersion=0&fieldSelector=metadata.name%3D{NOBODY}");
        let answer = self.get_at(&self.empty_path(), &query, TABLE, HEADERS_MAX).await?;
        whole(answer.into_body()).await
    }

    /// Where nothing is: the objects of a namespace that nobody has, if the resource has namespaces.
    fn empty_path(&self) -> String {
        let (group_version, plural) = (self.resource.group_version_path(), &self.resource.resource);
        match self.namespaced {
            true => format!("{group_version}/namespaces/{NOBODY}/{plural}"),
            false => format!("{group_version}/{plural}"),
        }
    }

    /// Whether upstream takes a request about what no namespace has.
    async fn is_accepted(&self, query: &str) -> Result<bool, Failure> {
        match self.get_at(&self.empty_path(), query, accept(self.encoding), HEADERS_MAX).await {
            Ok(_) => Ok(true),
            Err(Failure::Refused) => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

/// The body of a list or of a watch.
#[derive(Debug)]
pub struct ListWatchStream {
    body: ResponseBody,
    /// What may still come of a list. A watch lasts.
    left: Option<usize>,
}

impl ListWatchStream {
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
}

impl ListWatch for ResourceListWatch {
    type Stream = ListWatchStream;

    async fn list(&self, request: ListRequest) -> Result<ListWatchStream, Failure> {
        let mut query = format!("limit={PAGE_OBJECTS}");
        match (request.continue_token, request.not_older_than) {
            (Some(token), _) => query.push_str(&format!("&continue={token}")),
            (None, Some(version)) => {
                query.push_str(&format!("&resourceVersion={version}&resourceVersionMatch=NotOlderThan"));
            }
            // What the cache of an older server has is what that server answers reads from. A state from its storage may be
            // ahead of that by far, and with its version the server's own clients would be refused (seen on 1.20).
            (None, None) => query.push_str("&resourceVersion=0"),
        }
        Ok(ListWatchStream { body: self.get(&query, LIST_HEADERS_MAX).await?.into_body(), left: Some(LIST_BYTES_MAX) })
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
        Ok(ListWatchStream { body: self.get(&query, HEADERS_MAX).await?.into_body(), left: None })
    }

    async fn next(&self, stream: &mut ListWatchStream) -> Option<Result<Bytes, Failure>> {
        stream.next().await
    }

    async fn head(&self) -> Result<ListPage, Failure> {
        let (head, body) = self.get("limit=1", HEADERS_MAX).await?.into_parts();
        Ok(ListPage { body: whole(body).await?, warnings: warnings(&head.headers) })
    }

    /// Asks for one object that is not there: labels are looked at before objects are, and a list of one name costs
    /// upstream no more than a get. A selector over the collection would be held against every object in its storage.
    async fn knows_fields(&self, labels: &[&str]) -> Result<bool, Failure> {
        let labels: String = labels.iter().map(|label| format!(",{label}%3D")).collect();
        let query = format!("resourceVersion=0&fieldSelector=metadata.name%3D{NOBODY}{labels}");
        self.is_accepted(&query).await
    }

    /// Asks for one object that is not there, too.
    async fn knows_watch_list(&self) -> Result<bool, Failure> {
        let name = format!("fieldSelector=metadata.name%3D{NOBODY}");
        let watch_list = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
        self.is_accepted(&format!("{watch_list}&resourceVersion=0&timeoutSeconds=1&{name}")).await
    }

    async fn server(&self, since: Instant) -> Option<String> {
        self.upstream.server_version(since).await
    }

    async fn is_same_resource(&self) -> Result<bool, Failure> {
        let Some(known) = &self.definition else { return Ok(true) };
        let now = self.upstream.crd(&self.resource.group_resource()).await.map_err(|_| Failure::Unavailable)?;
        // That it is not there need not be for ever.
        now.map(|now| now == *known).ok_or(Failure::NotFound)
    }
}

/// The body of a page that is small enough to be one piece.
async fn whole(body: ResponseBody) -> Result<Bytes, Failure> {
    let mut stream = ListWatchStream { body, left: Some(LIST_BYTES_MAX) };
    let mut whole = Vec::new();
    while let Some(bytes) = stream.next().await {
        whole.extend_from_slice(&bytes?);
    }
    Ok(whole.into())
}

fn accept(encoding: Encoding) -> &'static str {
    Representation { encoding, view: View::Whole }.content_type(Answer::List)
}

fn warnings(headers: &HeaderMap) -> Vec<HeaderValue> {
    headers.get_all(header::WARNING).iter().cloned().collect()
}

async fn failure(response: http::Response<ResponseBody>) -> Failure {
    let code = response.status().as_u16();
    let body = Limited::new(response.into_body(), STATUS_BYTES_MAX).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    Failure::of_answer(code, &body)
}
