//! One watch: initial events, the bookmark after them, live events, periodic bookmarks, and the end. Pure: the caller
//! passes the time, and the session returns what to send or how long to wait.

use std::{
    collections::VecDeque,
    iter, mem,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    EndCause, Subscription,
    initial::{InitialEvents, Next},
};
use crate::{
    encode::{self, BookmarkTemplate, EventForm, partial::NotPartial},
    store::{Backlog, Change, Extract, FrameKind, Gap, Predicate, Schema, Thaw, View},
};
use base::{
    apimachinery::{ResourceVersion, Status},
    fairness::ClientByteBudget,
};

/// Small events are joined into pieces of at most this many bytes. With its framing, such a piece fits into one TLS
/// record.
const PIECE: usize = 16_000;
/// The capacity for frames that a waiting watcher keeps: enough for a single change, but not for a burst.
const READY_KEPT: usize = 4;
/// The interval between bookmarks (read-path 3.4).
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before the deadline the last bookmark is sent.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// The delay before a bookmark is retried when a change was in history but not announced yet.
const BOOKMARK_RETRY: Duration = Duration::from_millis(10);

/// How long a watch may take to send the objects of the state at its start, even if history drops later changes in the
/// meantime: as long as the API server lets a list take (`--request-timeout`, read-path 6), so that a slow client gets
/// through however fast the objects change.
///
/// After that time the watch ends as soon as history has dropped a change after that state. Nothing is lost by that: a
/// watch that cannot read the changes after its initial events ends right after them. States share the objects that did
/// not change. So all watches together hold, besides history, at most what changed within this time and within the time
/// that a client may leave a watch unread.
const INITIAL_STATE_KEPT: Duration = Duration::from_secs(60);

/// The start of a watch.
#[derive(Debug)]
pub enum Start {
    /// Begins with the objects of this state.
    State(Extract),
    /// Begins after this version, which may be in the future.
    After(ResourceVersion),
}

/// What a watch sends, and for how long.
#[derive(Debug)]
pub struct SessionOptions {
    pub predicate: Predicate,
    pub form: EventForm,
    /// Room for the copies that are made for this watch alone.
    pub room: ClientByteBudget,
    /// `None` if the client allows none.
    pub bookmarks: Option<Bookmarks>,
    pub timeout: Duration,
}

/// The bookmarks that the client allows.
#[derive(Debug)]
pub struct Bookmarks {
    pub template: Template,
    /// Whether one is sent at the end of the initial events. Then the template must be known.
    pub initial_events_end: bool,
}

/// The template of bookmarks, made from upstream's own bookmarks.
#[derive(Debug)]
pub enum Template {
    /// In the form of the watch.
    Known(Arc<BookmarkTemplate>),
    /// In the form of the store, once upstream has sent the first one. Until then none is sent: bookmarks are never
    /// guaranteed (read-path 3.4).
    Awaited(Arc<OnceLock<BookmarkTemplate>>),
}

impl Template {
    fn known(&mut self, form: &mut EventForm, schema: &Schema) -> Result<Option<&BookmarkTemplate>, NotPartial> {
        if let Self::Awaited(awaited) = self
            && let Some(template) = awaited.get()
        {
            *self = Self::Known(Arc::new(form.bookmark(template, schema)?));
        }
        Ok(match self {
            Self::Known(template) => Some(template),
            Self::Awaited(_) => None,
        })
    }
}

/// What the caller does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Send(Bytes),
    /// There is more to do at once, but other tasks should get a turn first.
    Work,
    /// Wait until then, or until the subscription wakes the watcher.
    Wait(Instant),
    End(EndCause),
}

/// The state machine of a watch.
#[derive(Debug)]
pub struct Session {
    view: View,
    subscription: Subscription,
    predicate: Predicate,
    form: EventForm,
    room: ClientByteBudget,
    /// Boxed, and dropped once all are sent: most watches spend most of their time without initial events.
    initial: Option<Box<Initial>>,
    bookmarks: Option<Bookmarks>,
    /// Events at or below this version are never delivered.
    baseline: ResourceVersion,
    /// The number of the next change to process.
    next: u64,
    /// Whether history is known to hold more changes than were taken.
    behind: bool,
    /// The frames to send, oldest first. Empty between two batches of changes.
    ready: VecDeque<Bytes>,
    /// Whether the ERROR event that makes the client list anew was sent.
    is_refused: bool,
    /// The number of events in the piece that was sent last.
    sent: u32,
    /// When the next periodic bookmark is due.
    bookmark_at: Instant,
    /// Whether a bookmark is sent as soon as all changes are sent: on demand, or after a bridge, since the client's
    /// version may be one that upstream has forgotten.
    owes_bookmark: bool,
    /// The watch ends instead of crossing a gap that ends later: the client relies on getting every change. `None`: it
    /// crosses all gaps.
    crosses_until: Option<ResourceVersion>,
    /// The end of the bridge that it is sending. A bookmark of that version follows at once, since the state there is
    /// complete, whether the store is followed or not.
    bridging_to: Option<ResourceVersion>,
    /// When the watch ends: its timeout, or its turn in a drain.
    deadline: Instant,
    /// The cause to report at the deadline.
    ends: EndCause,
}

/// Initial events that were not sent yet.
#[derive(Debug)]
struct Initial {
    events: InitialEvents,
    /// Until then they are sent even if history no longer reaches back to their state.
    kept_until: Instant,
}

impl Session {
    /// `subscription` must have been taken before `start` was read, or changes are missed.
    pub fn new(view: View, subscription: Subscription, options: SessionOptions, start: Start, now: Instant) -> Self {
        let SessionOptions { predicate, form, room, bookmarks, timeout } = options;
        let (initial, baseline) = match start {
            Start::State(state) => {
                let version = state.version();
                let kept_until = now + INITIAL_STATE_KEPT;
                (Some(Box::new(Initial { events: InitialEvents::new(state), kept_until })), version)
            }
            Start::After(version) => (None, version),
        };
        let deadline = now + timeout;
        Self {
            view,
            subscription,
            predicate,
            form,
            room,
            initial,
            bookmarks,
            baseline,
            next: 0,
            behind: false,
            ready: VecDeque::new(),
            is_refused: false,
            sent: 0,
            bookmark_at: next_bookmark(now, deadline),
            owes_bookmark: false,
            crosses_until: None,
            bridging_to: None,
            deadline,
            ends: EndCause::Deadline,
        }
    }

    /// Makes the watch end instead of crossing a gap, but for those that end at `crossed` at the latest, if the
    /// template of bookmarks is known: these are between two bookmarks of that version, of which the first ends initial
    /// events. For a client that is a gateway: its own clients may have versions in a gap, so it has to know of each.
    #[must_use]
    pub fn ending_at_bridge_behind(mut self, crossed: Option<ResourceVersion>) -> Self {
        self.crosses_until = Some(self.baseline);
        if let (Some(to), Some(Bookmarks { template: Template::Known(template), .. })) = (crossed, &self.bookmarks) {
            self.ready.push_back(self.form.initial_events_end(template, to));
            (self.crosses_until, self.bridging_to) = (Some(to), Some(to));
        }
        self
    }

    /// Makes the watch send no bookmark but the one that [`Self::owe_bookmark`] asks for. For a client that is a
    /// gateway, which takes the first bookmark for a proof: an earlier one would prove less.
    pub fn send_bookmarks_on_demand(&mut self) {
        self.bookmark_at = self.deadline;
    }

    /// Lets a bookmark be sent as soon as all changes are sent, if it has a version that the client does not have.
    pub fn owe_bookmark(&mut self) {
        self.owes_bookmark = true;
    }

    /// Sets what is woken when there may be something to do. Must be called before [`Session::step`].
    pub fn register(&self, waker: &std::task::Waker) {
        self.subscription.register(waker);
    }

    /// Bytes that the watch holds for itself while it is open: its selectors, which the client chose.
    pub fn own_bytes(&self) -> usize {
        self.predicate.own_bytes()
    }

    /// Whether its events are Tables.
    pub fn sends_tables(&self) -> bool {
        matches!(self.form, EventForm::Table(_))
    }

    /// The number of events in the last [`Step::Send`], bookmarks included.
    pub fn events_sent(&self) -> u64 {
        self.sent.into()
    }

    /// Decides what to do at `now`. To be called again after each [`Step::Send`] and [`Step::Work`] and when
    /// woken, but not after [`Step::End`].
    pub fn step(&mut self, now: Instant) -> Step {
        self.drain();
        if now >= self.deadline {
            return Step::End(self.ends);
        }
        // The rest of a state that upstream no longer has must not be sent, above all not the bookmark that says it is
        // complete.
        match self.subscription.closed() {
            Some(EndCause::Lost) => return Step::End(EndCause::Lost),
            Some(cause @ (EndCause::Corrupt | EndCause::Replaced)) => return self.refuse(cause),
            Some(_) | None => {}
        }
        if self.subscription.take_bridged() {
            self.owes_bookmark = true;
            if self.crosses_until.is_some() || self.view.is_in_gap(self.baseline) {
                return Step::End(EndCause::Relisted);
            }
        }
        match self.initial_events(now) {
            Ok(Some(step)) => return step,
            Ok(None) => {}
            Err(NotPartial) => return Step::End(EndCause::Unencodable),
        }
        loop {
            if let Some(piece) = self.ready_chunk() {
                return Step::Send(piece);
            }
            if !self.behind {
                match self.subscription.take_pending() {
                    Some(number) => self.next = self.next.max(number),
                    None => return self.idle(now),
                }
            }
            let Some(backlog) = self.view.backlog(self.next, self.form.changes_at_once()) else {
                return Step::End(EndCause::Lagged);
            };
            // The store is bridged before `Hub::bridged` notifies the watcher, so a gap may be met here first.
            let mut gaps = backlog.changes.iter().filter_map(|change| change.gap());
            let ends_at = |gap: Gap| self.crosses_until.is_some_and(|until| gap.to > until);
            if gaps.any(|gap| ends_at(gap) || gap.contains(self.baseline)) {
                return Step::End(EndCause::Relisted);
            }
            if let Err(cause) = self.take(&backlog, now) {
                return Step::End(cause);
            }
            if self.behind && self.ready.is_empty() {
                return Step::Work;
            }
        }
    }

    /// While the gateway drains, the watch ends when its turn comes.
    fn drain(&mut self) {
        if self.ends == EndCause::Deadline
            && let Some(turn) = self.subscription.turn()
        {
            self.ends = EndCause::Drained;
            self.deadline = self.deadline.min(turn);
            self.bookmark_at = self.bookmark_at.min(self.deadline);
        }
    }

    /// Sends 410 before the end: a client that continued from its last version would never learn what it missed, so it
    /// has to list anew.
    fn refuse(&mut self, cause: EndCause) -> Step {
        if mem::replace(&mut self.is_refused, true) {
            return Step::End(cause);
        }
        let (known, next) = (self.baseline, self.view.progress());
        let status = Status::expired_watch(known, next);
        self.sent = 1;
        Step::Send(encode::error_event(&status.to_json(), self.form.encoding()))
    }

    /// The next initial events, or the bookmark after them; `None` when all were sent.
    fn initial_events(&mut self, now: Instant) -> Result<Option<Step>, NotPartial> {
        let Some(initial) = &mut self.initial else { return Ok(None) };
        let is_kept = now < initial.kept_until;
        let ends = if is_kept { None } else { why_outlived(&self.view, &self.subscription) };
        let open_for = self.subscription.open_for(now);
        match (initial.events.next(now, open_for, &self.predicate, &mut self.form, &self.room)?, ends) {
            (Next::Nothing, _) => {}
            (_, Some(cause)) => return Ok(Some(Step::End(cause))),
            (Next::Events(events, count), None) => {
                self.sent = count;
                return Ok(Some(Step::Send(events)));
            }
            (Next::NoRoom(retry_at), None) => return Ok(Some(Step::Wait(retry_at.min(self.deadline)))),
            (Next::NeverRoom, None) => return Ok(Some(Step::End(EndCause::NoRoom))),
            (Next::Work, None) => return Ok(Some(Step::Work)),
        }
        self.sent = 1;
        let version = initial.events.version();
        self.initial = None;
        let Some(bookmarks) = self.bookmarks.as_mut().filter(|bookmarks| bookmarks.initial_events_end) else {
            return Ok(None);
        };
        let template = bookmarks.template.known(&mut self.form, self.view.schema())?;
        Ok(template.map(|template| Step::Send(self.form.initial_events_end(template, version))))
    }

    /// The next frame, joined with the following ones that fit into one piece: a watcher that has many frames ready
    /// needs few writes. Frames are shared and the piece is a copy, so without room for it the frame is sent alone.
    fn ready_chunk(&mut self) -> Option<Bytes> {
        let first = self.ready.pop_front()?;
        self.sent = 1;
        let (mut more, mut length) = (0_u32, first.len());
        for next in &self.ready {
            if length + next.len() > PIECE {
                break;
            }
            (more, length) = (more.saturating_add(1), length + next.len());
        }
        if more == 0 {
            return Some(first);
        }
        let Some(room) = self.room.take(length) else { return Some(first) };
        self.sent += more;
        let mut piece = Vec::with_capacity(length);
        iter::once(first).chain(self.ready.drain(..more as usize)).for_each(|frame| piece.extend_from_slice(&frame));
        Some(room.holding(piece))
    }

    /// Takes the frames of changes.
    ///
    /// # Errors
    /// Why the watch ends.
    fn take(&mut self, backlog: &Backlog, now: Instant) -> Result<(), EndCause> {
        let (mut thaw, open_for) = (Thaw::default(), self.subscription.open_for(now));
        for change in &backlog.changes {
            if change.known_at() > self.baseline
                && let Some(kind) = self.frame_kind(change)
            {
                let frame = self.form.frame(change, kind, open_for, &mut thaw);
                let frame = frame.map_err(|NotPartial| EndCause::Unencodable)?;
                self.ready.push_back(if self.sends_tables() { self.kept(frame)? } else { frame });
            }
        }
        self.next = backlog.next;
        self.behind = backlog.caught_up.is_none();
        Ok(())
    }

    /// A frame that was made for this watch alone, with room of its client for it.
    fn kept(&self, frame: Bytes) -> Result<Bytes, EndCause> {
        let room = self.room.take(frame.len()).ok_or(EndCause::NoRoom)?;
        Ok(room.holding(frame.into()))
    }

    fn frame_kind(&self, change: &Change) -> Option<FrameKind> {
        if self.predicate.is_everything() && change.gap().is_none() {
            return Some(change.kind.into());
        }
        change.frame_kind(|object| self.predicate.matches(object))
    }

    /// Called when all changes that concern the watcher were taken: a bookmark may be due, or the end.
    fn idle(&mut self, now: Instant) -> Step {
        if let Some(cause) = self.subscription.closed() {
            return Step::End(cause);
        }
        if self.ready.capacity() > READY_KEPT {
            self.ready = VecDeque::new();
        }
        let Some(bookmarks) = &mut self.bookmarks else { return Step::Wait(self.deadline) };
        if let (Some(to), Template::Known(template)) = (self.bridging_to.take(), &bookmarks.template) {
            self.sent = 1;
            return Step::Send(self.form.bookmark_event(template, to));
        }
        let is_due = now >= self.bookmark_at;
        if !is_due && !self.owes_bookmark {
            return Step::Wait(self.bookmark_at.min(self.deadline));
        }
        // A bookmark out of turn does not move the periodic ones.
        let next_at = if is_due { next_bookmark(now, self.deadline) } else { self.bookmark_at };
        // Without an upstream watch it is unknown whether the client misses changes.
        if !self.subscription.is_followed() {
            (self.bookmark_at, self.owes_bookmark) = (next_at, false);
            return Step::Wait(self.bookmark_at.min(self.deadline));
        }
        let (version, next) = self.view.progress_and_next();
        // The store is bridged before its watchers know.
        if self.crosses_until.is_some_and(|until| self.view.gap_end_behind(until).is_some()) {
            return Step::End(EndCause::Relisted);
        }
        // A change may be in history but not announced yet; the bookmark's version would then overtake it.
        if !self.subscription.is_announced(next) || self.subscription.pending().is_some() {
            self.bookmark_at = now + BOOKMARK_RETRY;
            return Step::Wait(self.bookmark_at.min(self.deadline));
        }
        self.next = self.next.max(next);
        (self.bookmark_at, self.owes_bookmark) = (next_at, false);
        match bookmarks.template.known(&mut self.form, self.view.schema()) {
            // A bookmark whose version the client already has is not sent (read-path 3.4).
            Ok(Some(template)) if version > self.baseline => {
                self.sent = 1;
                Step::Send(self.form.bookmark_event(template, version))
            }
            Ok(_) => Step::Wait(self.bookmark_at.min(self.deadline)),
            Err(NotPartial) => Step::End(EndCause::Unencodable),
        }
    }
}

/// Why a watch would end right after its initial events if all were sent now; `None` if it would continue.
fn why_outlived(view: &View, subscription: &Subscription) -> Option<EndCause> {
    let is_passed = || subscription.pending().is_some_and(|first| !view.reaches_back_to(first));
    subscription.closed().or_else(|| is_passed().then_some(EndCause::Lagged))
}

/// In a minute, or shortly before the deadline if that comes first.
fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(BOOKMARK_BEFORE_END).filter(|last| *last > now);
    (now + BOOKMARK_EVERY).min(last.unwrap_or(deadline))
}

#[cfg(test)]
mod tests;
