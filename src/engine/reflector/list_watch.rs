//! The interface between a reflector and upstream. Implemented by the module `upstream`, and by scripts in tests.

use bytes::Bytes;
use http::HeaderValue;
use tokio::time::Instant;

use super::{Failure, StateForm};
use base::apimachinery::ResourceVersion;

/// Requests one page of the whole collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// `None`: any version will do (`resourceVersion=0`).
    pub not_older_than: Option<ResourceVersion>,
    /// The token of the previous page; `None` for the first page.
    pub continue_token: Option<String>,
}

/// Requests a watch of the whole collection, with bookmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    pub from: WatchFrom,
    /// How long upstream should keep the watch open (`timeoutSeconds`).
    pub seconds: u64,
    /// Whether it may begin with a bridge of a gateway, rather than with all changes that happened: then its first
    /// event is a bookmark that ends initial events, at the version where the bridge ends.
    pub accepts_bridge: bool,
}

/// The range of timeouts that upstream is asked for, in seconds, as in client-go.
const WATCH_SECONDS_MIN: u64 = 300;
pub(super) const WATCH_SECONDS_MAX: u64 = 600;

impl WatchRequest {
    /// A watch with a random timeout, so that watches do not all end at once.
    pub fn new(from: WatchFrom) -> Self {
        Self { from, seconds: fastrand::u64(WATCH_SECONDS_MIN..WATCH_SECONDS_MAX), accepts_bridge: false }
    }
}

/// The start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// All objects, an end bookmark, then changes (watch-list). `None`: the most recent state.
    State { not_older_than: Option<ResourceVersion> },
    /// The changes after that version.
    After(ResourceVersion),
}

/// A small page as upstream sent it.
#[derive(Clone, Debug)]
pub struct ListPage {
    pub body: Bytes,
    /// `Warning` headers: deprecated APIs send them with every response (read-path 4.2).
    pub warnings: Vec<HeaderValue>,
}

/// The body of an answer, as it arrives. Dropping it ends the request.
pub trait ByteStream: Send {
    /// The next bytes; `None` at the clean end.
    fn next(&mut self) -> impl Future<Output = Option<Result<Bytes, Failure>>> + Send;

    /// The version of the program that wrote the objects, if a gateway sends them from its memory: upstream may run
    /// another one by now. `None` if that is not told.
    fn written_by(&self) -> Option<&str> {
        None
    }
}

/// Lists and watches one resource with the gateway's own credentials.
pub trait ListWatch: Send + Sync + 'static {
    /// The body of a list or of a watch.
    type Stream: ByteStream;

    /// Requests one page of the whole collection; returns when upstream begins to send it.
    fn list(&self, request: ListRequest) -> impl Future<Output = Result<Self::Stream, Failure>> + Send;

    /// Requests the whole collection, not older than that version, in the form in which a gateway keeps it, if upstream
    /// is one; `None` if it is not. By default it is none.
    fn state(
        &self,
        _not_older_than: ResourceVersion,
    ) -> impl Future<Output = Result<Option<(StateForm, Self::Stream)>, Failure>> + Send {
        async { Ok(None) }
    }

    /// Requests one page of the whole collection as it was at exactly that version, with the token of the previous page
    /// if there was one. By default it is refused.
    fn list_at(
        &self,
        _version: ResourceVersion,
        _token: Option<&str>,
    ) -> impl Future<Output = Result<Self::Stream, Failure>> + Send {
        async { Err(Failure::Refused) }
    }

    /// Opens a watch; returns when upstream has accepted it.
    fn watch(&self, request: WatchRequest) -> impl Future<Output = Result<Self::Stream, Failure>> + Send;

    /// The current head version: a most recent list of at most one object, as upstream answered it.
    fn head(&self) -> impl Future<Output = Result<ListPage, Failure>> + Send;

    /// Whether upstream accepts a field selector with all of these labels: older servers support fewer.
    fn knows_fields(&self, labels: &[&str]) -> impl Future<Output = Result<bool, Failure>> + Send;

    /// Opens a watch-list of the most recent state that selects no object: its first event is the bookmark at the end
    /// of the initial events. Costs upstream no state. By default it is refused.
    fn watch_nothing(&self) -> impl Future<Output = Result<Self::Stream, Failure>> + Send {
        async { Err(Failure::Refused) }
    }

    /// What upstream reports as its version (`/version`), requested no earlier than `since`; `None` if it does not
    /// report one. Another program may write the same objects differently.
    fn server(&self, since: Instant) -> impl Future<Output = Option<String>> + Send;

    /// Asks which cluster upstream belongs to, no earlier than `since`. If it is another one than before, that is found
    /// before this returns ([`super::StorageEvidence`]). By default no cluster can be told from another.
    fn look_for_another_cluster(&self, _since: Instant) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Resolves when upstream can be used again after it could not, after `time`: what failed may be tried again at
    /// once. By default that is not known.
    fn recovered_since(&self, _time: Instant) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// False when the resource is no longer what it was, because its definition was changed or replaced;
    /// [`Failure::NotFound`] when it does not exist.
    fn is_same_resource(&self) -> impl Future<Output = Result<bool, Failure>> + Send;
}
