//! One watch: initial events, their end bookmark, live events, bookmarks, the end. Pure: it is told
//! the time, and says what to send or how long to wait.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{EndCause, Scope, Subscription, initial::InitialEvents};
use crate::{
    apimachinery::ResourceVersion,
    encode::{BookmarkTemplate, Form, partial::NotPartial},
    store::{Backlog, Change, FrameKind, Predicate, Reader, Snapshot},
};

/// Changes taken from history at a time.
const BATCH: usize = 64;
/// Places for frames that a watcher keeps while it waits: what a single change needs, not what a burst did.
const READY_KEPT: usize = 4;
/// How often a watch with bookmarks gets one (read-path 3.4).
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before the deadline the last one comes.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// A bookmark that met a change on its way into history is tried again after this.
const BOOKMARK_RETRY: Duration = Duration::from_millis(10);

/// Where the watch begins.
#[derive(Debug)]
pub enum Start {
    /// With the objects of this state.
    State(Snapshot),
    /// Behind this version, which may lie ahead.
    After(ResourceVersion),
}

/// The bookmarks that the client allows.
#[derive(Debug)]
pub struct Bookmarks {
    pub template: Arc<BookmarkTemplate>,
    /// One is sent at the end of the initial events.
    pub initial_events_end: bool,
}

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Send(Bytes),
    /// Nothing until then, unless the subscription wakes it.
    Wait(Instant),
    End(EndCause),
}

/// A watcher's state machine.
#[derive(Debug)]
pub struct Session {
    reader: Reader,
    subscription: Subscription,
    scope: Scope,
    predicate: Predicate,
    form: Form,
    /// In a box, which is gone when they have been sent: most watches spend their time without.
    initial: Option<Box<InitialEvents>>,
    bookmarks: Option<Bookmarks>,
    /// Nothing at or below this version is ever delivered.
    floor: ResourceVersion,
    /// The number of the next change to look at.
    next: u64,
    /// More is known to lie in history than was taken.
    behind: bool,
    ready: VecDeque<Bytes>,
    bookmark_at: Instant,
    deadline: Instant,
}

impl Session {
    /// `subscription` must have been taken before `start` was read, or changes are missed.
    pub fn new(
        reader: Reader,
        subscription: Subscription,
        (scope, predicate, form): (Scope, Predicate, Form),
        start: Start,
        bookmarks: Option<Bookmarks>,
        (now, timeout): (Instant, Duration),
    ) -> Self {
        let (initial, floor) = match start {
            Start::State(snapshot) => {
                let version = snapshot.version();
                (Some(Box::new(InitialEvents::new(snapshot, &scope))), version)
            }
            Start::After(version) => (None, version),
        };
        let deadline = now + timeout;
        let bookmark_at = next_bookmark(now, deadline);
        let ready = VecDeque::new();
        let (next, behind) = (0, false);
        Self {
            reader,
            subscription,
            scope,
            predicate,
            form,
            initial,
            bookmarks,
            floor,
            next,
            behind,
            ready,
            bookmark_at,
            deadline,
        }
    }

    /// Whom to wake when there may be something to do; to be said before [`Session::step`].
    pub fn register(&self, waker: &std::task::Waker) {
        self.subscription.register(waker);
    }

    /// What to do at `now`. To be asked again after each [`Step::Send`], and when woken; never after [`Step::End`].
    pub fn step(&mut self, now: Instant) -> Step {
        if now >= self.deadline {
            return Step::End(EndCause::Deadline);
        }
        match self.initial_events() {
            Ok(Some(events)) => return Step::Send(events),
            Ok(None) => {}
            Err(NotPartial) => return Step::End(EndCause::Unencodable),
        }
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Step::Send(frame);
            }
            if !self.behind {
                match self.subscription.take_pending() {
                    Some(number) => self.next = self.next.max(number),
                    None => return self.idle(now),
                }
            }
            let Some(backlog) = self.reader.backlog(self.next, BATCH) else {
                return Step::End(EndCause::Lagged);
            };
            if let Err(NotPartial) = self.take(&backlog) {
                return Step::End(EndCause::Unencodable);
            }
        }
    }

    fn initial_events(&mut self) -> Result<Option<Bytes>, NotPartial> {
        let Some(initial) = &mut self.initial else { return Ok(None) };
        if let Some(events) = initial.next(&self.scope, &self.predicate, &self.form)? {
            return Ok(Some(events));
        }
        let version = initial.snapshot().version();
        self.initial = None;
        let bookmarks = self.bookmarks.as_ref().filter(|bookmarks| bookmarks.initial_events_end);
        Ok(bookmarks.map(|bookmarks| bookmarks.template.initial_events_end(version)))
    }

    fn take(&mut self, backlog: &Backlog) -> Result<(), NotPartial> {
        for change in &backlog.changes {
            if change.version > self.floor
                && let Some(kind) = self.frame_kind(change)
            {
                self.ready.push_back(self.form.frame(change, kind)?);
            }
        }
        self.next = backlog.next;
        self.behind = backlog.caught_up.is_none();
        Ok(())
    }

    fn frame_kind(&self, change: &Change) -> Option<FrameKind> {
        if !self.scope.contains(&change.object) {
            return None;
        }
        if self.predicate.is_everything() {
            return Some(change.kind.into());
        }
        change.frame_kind(|object| self.predicate.matches(object))
    }

    /// Everything that concerns the watcher has been taken: a bookmark may be due, or the end.
    fn idle(&mut self, now: Instant) -> Step {
        if let Some(cause) = self.subscription.closed() {
            return Step::End(cause);
        }
        if self.ready.capacity() > READY_KEPT {
            self.ready = VecDeque::new();
        }
        let Some(bookmarks) = &self.bookmarks else { return Step::Wait(self.deadline) };
        if now < self.bookmark_at {
            return Step::Wait(self.bookmark_at.min(self.deadline));
        }
        let (snapshot, next) = self.reader.snapshot_and_next();
        // A change may be in history and not yet announced: then this version would overtake it.
        if !self.subscription.is_announced(next) || self.subscription.is_pending() {
            self.bookmark_at = now + BOOKMARK_RETRY;
            return Step::Wait(self.bookmark_at.min(self.deadline));
        }
        self.next = self.next.max(next);
        self.bookmark_at = next_bookmark(now, self.deadline);
        // One that says nothing new is not sent (read-path 3.4).
        if snapshot.version() > self.floor {
            return Step::Send(bookmarks.template.event(snapshot.version()));
        }
        Step::Wait(self.bookmark_at.min(self.deadline))
    }
}

/// In a minute, or shortly before the deadline if that comes first.
fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(BOOKMARK_BEFORE_END).filter(|last| *last > now);
    (now + BOOKMARK_EVERY).min(last.unwrap_or(deadline))
}
