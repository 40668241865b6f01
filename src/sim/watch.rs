//! Watches: initial events, changes as seen through the selector, bookmarks, the end (read-path 1.4 and section 3).

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::StatusCode;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{
    Simulation,
    census::{OpenWatch, Order},
    definition::Definition,
    failure::Failure,
    history::{Change, History, Lost},
    options::{Freshness, WatchOptions, WatchStart},
    select::Selection,
    servers::Server,
    shapes::{list, representation::Representation},
    stored::Stored,
};

/// The server breaks the connection on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection is cut on purpose")]
pub struct Cut;

/// The time between two bookmarks.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// The last bookmark is sent this long before the end, if the watch lasts longer.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// The range of durations, in seconds, for a watch without a timeout.
const LIFE: std::ops::Range<u64> = 1_800..3_600;
/// The age of the state of initial events with [`crate::Sim::send_early_changes`].
const EARLY: Duration = Duration::from_secs(5);
/// Why there is no watch-list ([`crate::Features::progress_requests`]).
const NO_PROGRESS: &str = "a watch stream was requested by the client but the required storage feature \
                           RequestWatchProgress is disabled";
/// The number of initial events that are written at once.
const INITIAL_BATCH: usize = 64;

/// How the events of one watch are written.
#[derive(Debug)]
pub(crate) struct Format {
    pub(crate) definition: Arc<Definition>,
    pub(crate) api_version: String,
    pub(crate) representation: Representation,
}

/// An open watch. [`WatchStream::next`] returns its bytes.
#[derive(Debug)]
pub(crate) struct WatchStream {
    simulation: Arc<Simulation>,
    /// The server whose cache the watch is served from.
    server: Option<Server>,
    open: OpenWatch,
    format: Format,
    selection: Selection,
    history: Arc<History>,
    signal: watch::Receiver<()>,
    initial: std::vec::IntoIter<Arc<Stored>>,
    /// The version of the bookmark after the initial events.
    initial_end: Option<u64>,
    /// Whether no event has been written yet: the first one of a Table contains the columns.
    first: bool,
    /// Everything up to this revision is delivered.
    cursor: u64,
    /// The revision at which the watch began: bookmarks must be newer.
    started_at: u64,
    next_bookmark: Option<Instant>,
    end: Instant,
}

/// The result of a watch request with valid options.
#[derive(Debug)]
pub(crate) enum Started {
    Stream(Box<WatchStream>),
    /// One ERROR event, then the end (read-path 2.1).
    Error(Failure),
}

impl WatchStream {
    /// Waits for the requested freshness, and collects the initial events.
    pub(crate) async fn start(
        simulation: &Arc<Simulation>,
        server: Option<Server>,
        format: Format,
        selection: Selection,
        options: &WatchOptions,
    ) -> Result<Started, Failure> {
        let began = Instant::now();
        if options.initial_events_end && !simulation.faults.features().progress_requests {
            return Ok(Started::Error(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", NO_PROGRESS)));
        }
        if let WatchStart::State(Freshness::NotOlderThan(revision)) = options.start
            && let Err(current) = simulation.wait_for(revision).await
        {
            return Ok(Started::Error(Failure::too_large_version(revision, current, true)));
        }
        let servers = &simulation.servers;
        let started_at = servers.started_at(server);
        let (mut view, history) =
            simulation.storage.start_watch(&format.definition).ok_or_else(Failure::unknown_resource)?;
        match options.start {
            WatchStart::State(_) if simulation.faults.early_changes() && options.initial_events_end => {
                view = simulation.storage.cached_view(&format.definition, EARLY, 0);
            }
            WatchStart::State(Freshness::Any) => {
                view = simulation.storage.cached_view(&format.definition, servers.lag(server), started_at);
            }
            WatchStart::State(_) | WatchStart::Now | WatchStart::After(_) => {}
        }
        let (initial, cursor) = match options.start {
            WatchStart::State(_) => {
                (view.objects.into_iter().filter(|object| selection.matches(object)).collect(), view.revision)
            }
            WatchStart::Now => (Vec::new(), view.revision),
            WatchStart::After(revision) => (Vec::new(), revision),
        };
        if let Some(oldest) = oldest_after(cursor, &history, started_at) {
            return Ok(Started::Error(expired(&format.definition, cursor, oldest)));
        }
        let life = match options.timeout {
            _ if options.no_time => Duration::ZERO,
            Some(timeout) => timeout,
            None => Duration::from_secs(fastrand::u64(LIFE)),
        };
        let end = began.checked_add(life).unwrap_or(began);
        let resource = format.definition.group_resource().to_string();
        let mut stream = Self {
            open: simulation.census.open(&resource),
            signal: history.subscribe(),
            simulation: simulation.clone(),
            server,
            selection,
            history,
            initial: initial.into_iter(),
            initial_end: options.initial_events_end.then_some(cursor),
            first: true,
            cursor,
            started_at: cursor,
            next_bookmark: None,
            end,
            format,
        };
        if options.bookmarks && !stream.format.definition.is_events() {
            stream.next_bookmark = stream.bookmark_time(began);
        }
        Ok(Started::Stream(Box::new(stream)))
    }

    /// The next bytes of the stream; `None` at its clean end.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, Cut>> {
        if let Some(text) = self.next_initial() {
            return Some(Ok(text));
        }
        loop {
            let order = *self.open.orders.borrow_and_update();
            match order {
                Order::Cut => return Some(Err(Cut)),
                Order::End => return None,
                Order::Run | Order::Hold => {}
            }
            let now = Instant::now();
            let mut wake = self.end;
            if order == Order::Run {
                // Marks the signal as seen: a change from here on wakes the wait below.
                self.signal.borrow_and_update();
                let (pending, head) = self.simulation.storage.pending(&self.history, self.cursor);
                // The watch fell out of the window, or the collection is gone: it ends without an error in both cases.
                let Ok(pending) = pending else { return None };
                let faults = &self.simulation.faults;
                let delay = faults.event_delay().max(self.simulation.servers.lag(self.server));
                let text = self.changes(&pending, now, delay);
                if !text.is_empty() {
                    return Some(Ok(text.into()));
                }
                let delayed = pending.iter().find(|change| change.revision > self.cursor);
                match (delayed, self.next_bookmark) {
                    (Some(change), _) => wake = wake.min(change.at + delay),
                    (None, Some(due)) if due <= now => {
                        self.next_bookmark = self.bookmark_time(now);
                        if let Some(text) = self.due_bookmark(head) {
                            return Some(Ok(text.into()));
                        }
                        continue;
                    }
                    (None, Some(due)) => wake = wake.min(due),
                    (None, None) => {}
                }
            }
            if now >= self.end {
                return None;
            }
            tokio::select! {
                _ = self.signal.changed(), if order == Order::Run => {}
                _ = self.open.orders.changed() => {}
                () = sleep_until(wake) => {}
            }
        }
    }

    fn next_initial(&mut self) -> Option<Bytes> {
        let mut text = Vec::new();
        for _ in 0..INITIAL_BATCH {
            let Some(object) = self.initial.next() else { break };
            self.event("ADDED", &object, &mut text);
        }
        if text.is_empty()
            && let Some(revision) = self.initial_end.take()
        {
            let revision = self.early_changes(&mut text).unwrap_or(revision);
            if self.simulation.faults.features().initial_events_end {
                self.bookmark(revision, true, &mut text);
            }
        }
        (!text.is_empty()).then(|| text.into())
    }

    /// With early changes: the changes since the state of the initial events, and the revision up to which they are
    /// complete.
    fn early_changes(&mut self, text: &mut Vec<u8>) -> Option<u64> {
        if !self.simulation.faults.early_changes() {
            return None;
        }
        let (pending, head) = self.simulation.storage.pending(&self.history, self.cursor);
        text.extend(self.changes(&pending.ok()?, Instant::now(), Duration::ZERO));
        Some(head)
    }

    /// Moves the cursor over all changes that are due, and returns their events.
    fn changes(&mut self, pending: &[Arc<Change>], now: Instant, delay: Duration) -> Vec<u8> {
        let mut text = Vec::new();
        for change in pending.iter().take_while(|change| change.at + delay <= now) {
            self.cursor = change.revision;
            let selected =
                |object: &Option<Arc<Stored>>| object.as_ref().filter(|object| self.selection.matches(object)).cloned();
            let event = match (selected(&change.before), selected(&change.after)) {
                (None, Some(after)) => Some(("ADDED", after)),
                (Some(_), Some(after)) => Some(("MODIFIED", after)),
                (Some(_), None) => {
                    change.departed(&self.format.definition).map(|departed| ("DELETED", departed.clone()))
                }
                (None, None) => None,
            };
            if let Some((kind, object)) = event {
                let begins = text.len();
                self.event(kind, &object, &mut text);
                if self.simulation.faults.is_spoiled() {
                    text.truncate(usize::midpoint(begins, text.len()));
                    text.push(b'\n');
                }
            }
        }
        text
    }

    fn event(&mut self, kind: &str, object: &Arc<Stored>, text: &mut Vec<u8>) {
        let Format { definition, api_version, representation } = &self.format;
        let object = self.simulation.servers.written_by(self.server, definition, object.clone());
        let body = representation.event_object(definition, api_version, &object, self.first);
        self.first = false;
        list::event(kind, &body, text);
    }

    fn due_bookmark(&mut self, head: u64) -> Option<Vec<u8>> {
        let features = self.simulation.faults.features();
        let revision = if features.progress { head } else { self.history.last() };
        if !features.bookmarks || revision <= self.started_at {
            return None;
        }
        let mut text = Vec::new();
        self.bookmark(revision, false, &mut text);
        Some(text)
    }

    fn bookmark(&mut self, revision: u64, initial_end: bool, text: &mut Vec<u8>) {
        let Format { definition, api_version, representation } = &self.format;
        let mut body = representation.bookmark(definition, api_version, revision, initial_end, self.first);
        if self.simulation.faults.features().newer_bookmarks {
            add_newer_field(&mut body);
        }
        self.first = false;
        list::event("BOOKMARK", &body, text);
    }

    /// A minute from now, or two seconds before the end; `None` if that has passed.
    fn bookmark_time(&self, now: Instant) -> Option<Instant> {
        let last = self.end.checked_sub(BOOKMARK_BEFORE_END)?;
        (last > now).then(|| last.min(now + BOOKMARK_PERIOD))
    }
}

/// The oldest version that a watch can start from, if this one is older.
fn oldest_after(version: u64, history: &History, started_at: u64) -> Option<u64> {
    match history.after(version) {
        Err(Lost::Expired { oldest }) => Some(oldest.max(started_at)),
        Ok(_) | Err(Lost::Closed) => (version < started_at).then_some(started_at),
    }
}

fn expired(definition: &Definition, version: u64, oldest: u64) -> Failure {
    Failure::expired(if definition.is_events() {
        "The resourceVersion for the provided watch is too old.".to_owned()
    } else {
        format!("too old resource version: {version} ({oldest})")
    })
}

/// Adds a field to a bookmark's metadata ([`crate::Features::newer_bookmarks`]).
fn add_newer_field(bookmark: &mut Vec<u8>) {
    const METADATA: &[u8] = br#""metadata":{"#;
    if let Some(at) = memchr::memmem::find(bookmark, METADATA) {
        let within = at + METADATA.len();
        bookmark.splice(within..within, *br#""shard":{"of":["}"]},"#);
    }
}
