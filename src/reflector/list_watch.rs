//! The seam to upstream: what a reflector asks for. Implemented by `upstream`, scripted by tests.

use bytes::Bytes;
use http::HeaderValue;
use tokio::time::Instant;

use super::Failure;
use crate::apimachinery::ResourceVersion;

/// One page of the whole collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// `None`: any version will do (`resourceVersion=0`).
    pub not_older_than: Option<ResourceVersion>,
    /// From the page before.
    pub continue_token: Option<String>,
}

/// A watch on the whole collection, with bookmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    pub from: WatchFrom,
    /// How long upstream is to keep it (`timeoutSeconds`).
    pub seconds: u64,
}

/// How long upstream is asked to keep a watch, as client-go does.
const WATCH_SECONDS_MIN: u64 = 300;
pub(super) const WATCH_SECONDS_MAX: u64 = 600;

impl WatchRequest {
    /// One that lasts; different for every watch, so that they do not all end at once.
    pub fn new(from: WatchFrom) -> Self {
        Self { from, seconds: fastrand::u64(WATCH_SECONDS_MIN..WATCH_SECONDS_MAX) }
    }
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// Everything there is, an end bookmark, then changes (watch-list). `None`: the most recent state.
    State { not_older_than: Option<ResourceVersion> },
    /// Changes behind that version.
    After(ResourceVersion),
}

/// A small page as upstream sent it.
#[derive(Clone, Debug)]
pub struct ListPage {
    pub body: Bytes,
    /// `Warning` headers: deprecated APIs have them on every answer (read-path 4.2).
    pub warnings: Vec<HeaderValue>,
}

/// Lists and watches one resource with the gateway's own credentials.
pub trait ListWatch: Send + Sync + 'static {
    /// The body of a list or of a watch. Dropping it ends the request.
    type Stream: Send;

    /// One page of the whole collection; returns when upstream begins to send it.
    fn list(&self, request: ListRequest) -> impl Future<Output = Result<Self::Stream, Failure>> + Send;

    /// Opens a watch; returns when upstream has accepted it.
    fn watch(&self, request: WatchRequest) -> impl Future<Output = Result<Self::Stream, Failure>> + Send;

    /// The next bytes of a list or of a watch; `None` at its clean end.
    fn next(&self, stream: &mut Self::Stream) -> impl Future<Output = Option<Result<Bytes, Failure>>> + Send;

    /// The head version now: a list of at most one object, most recent, as upstream answered it.
    fn head(&self) -> impl Future<Output = Result<ListPage, Failure>> + Send;

    /// Whether upstream takes a field selector that names all of these labels: older servers know fewer.
    fn knows_fields(&self, labels: &[&str]) -> impl Future<Output = Result<bool, Failure>> + Send;

    /// Whether upstream takes watch-lists now.
    fn knows_watch_list(&self) -> impl Future<Output = Result<bool, Failure>> + Send;

    /// What upstream says it is (`/version`), asked not before `since`; `None` where it does not say. Another program may write
    /// the same objects differently.
    fn server(&self, since: Instant) -> impl Future<Output = Option<String>> + Send;

    /// False when the resource is no longer what it was (its definition was changed or replaced); [`Failure::NotFound`] when
    /// there is none.
    fn is_same_resource(&self) -> impl Future<Output = Result<bool, Failure>> + Send;
}
