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
    apimachinery::{ResourceVersion, Status},
    encode::{self, BookmarkTemplate, Form, partial::NotPartial},
    fairness::ClientRoom,
    store::{Backlog, Change, Extract, FrameKind, Predicate, View},
};

/// The number of changes taken from history at a time.
const BATCH: usize = 64;
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
    pub form: Form,
    /// Room for the copies that are made for this watch alone.
    pub room: ClientRoom,
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
    fn known(&mut self, form: &Form) -> Result<Option<&BookmarkTemplate>, NotPartial> {
        if let Self::Awaited(awaited) = self
            && let Some(template) = awaited.get()
        {
            *self = Self::Known(Arc::new(form.bookmark(template)?));
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
    form: Form,
    room: ClientRoom,
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
    /// Whether the store was bridged since the last bookmark. The client's version may then be one that upstream has
    /// forgotten, so a bookmark with a newer one is sent as soon as all changes are sent.
    owes_bookmark: bool,
    /// Whether the client relies on getting every change, so that the watch ends instead of crossing a gap.
    ends_at_bridge: bool,
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
            ends_at_bridge: false,
            deadline,
            ends: EndCause::Deadline,
        }
    }

    /// Makes the watch end instead of crossing a gap. For a client that is a gateway: its own clients may have versions
    /// that lie in the gap.
    #[must_use]
    pub fn ending_at_bridge(mut self) -> Self {
        self.ends_at_bridge = true;
        self
    }

    /// Sets what is woken when there may be something to do. Must be called before [`Session::step`].
    pub fn register(&self, waker: &std::task::Waker) {
        self.subscription.register(waker);
    }

    /// Bytes that the watch holds for itself while it is open: its selectors, which the client chose.
    pub fn own_bytes(&self) -> usize {
        self.predicate.own_bytes()
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
            if self.ends_at_bridge || self.view.is_in_gap(self.baseline) {
                return Step::End(EndCause::Relisted);
            }
        }
        match self.initial_events(now) {
            Ok(Some(step)) => return step,
            Ok(None) => {}
            Err(NotPartial) => return Step::End(EndCause::Unencodable),
        }
        loop {
            if let Some(piece) = self.ready_piece() {
                return Step::Send(piece);
            }
            if !self.behind {
                match self.subscription.take_pending() {
                    Some(number) => self.next = self.next.max(number),
                    None => return self.idle(now),
                }
            }
            let Some(backlog) = self.view.backlog(self.next, BATCH) else {
                return Step::End(EndCause::Lagged);
            };
            // The store is bridged before `Hub::bridged` notifies the watcher, so a gap may be met here first.
            let mut gaps = backlog.changes.iter().filter_map(|change| change.gap());
            if gaps.any(|gap| self.ends_at_bridge || gap.contains(self.baseline)) {
                return Step::End(EndCause::Relisted);
            }
            if let Err(NotPartial) = self.take(&backlog) {
                return Step::End(EndCause::Unencodable);
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
        Step::Send(encode::error_event(&status.to_json(), self.form.representation().encoding))
    }

    /// The next initial events, or the bookmark after them; `None` when all were sent.
    fn initial_events(&mut self, now: Instant) -> Result<Option<Step>, NotPartial> {
        let Some(initial) = &mut self.initial else { return Ok(None) };
        let is_kept = now < initial.kept_until;
        let ends = if is_kept { None } else { why_outlived(&self.view, &self.subscription) };
        match (initial.events.next(now, &self.predicate, &self.form, &self.room)?, ends) {
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
        Ok(bookmarks.template.known(&self.form)?.map(|template| Step::Send(template.initial_events_end(version))))
    }

    /// The next frame, joined with the following ones that fit into one piece: a watcher that has many frames ready
    /// needs few writes. Frames are shared and the piece is a copy, so without room for it the frame is sent alone.
    fn ready_piece(&mut self) -> Option<Bytes> {
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

    fn take(&mut self, backlog: &Backlog) -> Result<(), NotPartial> {
        for change in &backlog.changes {
            if change.known_at() > self.baseline
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
        // A change may be in history but not announced yet; the bookmark's version would then overtake it.
        if !self.subscription.is_announced(next) || self.subscription.pending().is_some() {
            self.bookmark_at = now + BOOKMARK_RETRY;
            return Step::Wait(self.bookmark_at.min(self.deadline));
        }
        self.next = self.next.max(next);
        (self.bookmark_at, self.owes_bookmark) = (next_at, false);
        match bookmarks.template.known(&self.form) {
            // A bookmark whose version the client already has is not sent (read-path 3.4).
            Ok(Some(template)) if version > self.baseline => {
                self.sent = 1;
                Step::Send(template.event(version))
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
mod tests {
    use super::*;
    use crate::{
        apimachinery::{FieldSelector, LabelSelector},
        fairness::AnswerRoom,
        fanout::{Hub, Interest},
        lifecycle::Spread,
        store::{self, ChangeKind, FIRST_CHANGE, HistoryLimits, Object, Objects, Reader, Schema, Scope, Shape, Writer},
    };

    fn room(bytes: u64) -> ClientRoom {
        AnswerRoom::undivided(bytes).of(None)
    }

    /// Everything, whole and without bookmarks, for a minute.
    fn everything(schema: &Schema, room: ClientRoom) -> SessionOptions {
        let predicate = Predicate::new(LabelSelector::default(), &FieldSelector::default(), schema).unwrap();
        let form = Form::Whole(schema.shape.clone());
        SessionOptions { predicate, form, room, bookmarks: None, timeout: Duration::from_secs(60) }
    }

    fn subscribe(hub: &Arc<Hub>, options: &SessionOptions, schema: &Schema) -> Subscription {
        hub.subscribe(Interest::of(&Scope::Everything, &options.predicate, schema), FIRST_CHANGE, None)
    }

    /// A state of that many objects with `data` bytes each.
    fn state(objects: usize, data: usize) -> (Arc<Schema>, Reader) {
        let (schema, _writer, reader) = written(objects, data);
        (schema, reader)
    }

    /// The same, whose objects can be changed.
    fn written(objects: usize, data: usize) -> (Arc<Schema>, Writer, Reader) {
        let schema = Arc::new(Schema::new(Shape::typed("ConfigMap", "v1"), Vec::new()));
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 4 << 20 };
        let objects = (0..objects).map(|number| Arc::new(object(&schema, number, 1, data)));
        let objects = Objects::new(objects.collect()).unwrap();
        let (writer, reader) = store::store(schema.clone(), &objects, ResourceVersion::new(1).unwrap(), limits);
        (schema, writer, reader)
    }

    fn object(schema: &Schema, number: usize, version: usize, data: usize) -> Object {
        let metadata = format!(r#"{{"name":"m-{number}","resourceVersion":"{version}"}}"#);
        let data = "x".repeat(data);
        let object =
            format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata},"data":{{"x":"{data}"}}}}"#);
        Object::from_event(object.into(), schema).unwrap()
    }

    /// A watch of 200 objects that has sent some of its initial events, while one object changed so often that history
    /// is full (their bytes are more than it may hold), and `more` times more often.
    fn begun(more: usize, began: Instant) -> (Session, Arc<Hub>) {
        let (schema, mut writer, reader) = written(200, 1000);
        let (hub, options) = (Hub::new(FIRST_CHANGE, Spread::default()), everything(&schema, room(u64::MAX)));
        let options = SessionOptions { timeout: Duration::from_secs(3600), ..options };
        let subscription = subscribe(&hub, &options, &schema);
        let view = View::new(reader, Scope::Everything);
        let start = Start::State(view.newest());
        let mut session = Session::new(view, subscription, options, start, began);
        assert!(matches!(session.step(began), Step::Send(_)));
        for version in 2..=HistoryLimits::COUNT_MIN + more + 1 {
            let object = object(&schema, 0, version, 50_000);
            let change = writer.apply(ChangeKind::Modified, object, Bytes::from_static(b"line\n")).unwrap();
            hub.announce(&change, [None, None]);
        }
        (session, hub)
    }

    #[test]
    fn initial_events_go_on_for_a_minute_and_then_as_long_as_history_reaches_back_to_them() {
        let began = Instant::now();
        let at = |second| began + Duration::from_secs(second);
        let (mut passed, _hub) = begun(1, began);
        assert!(matches!(passed.step(at(59)), Step::Send(_)));
        assert_eq!(passed.step(at(60)), Step::End(EndCause::Lagged));
        let (mut reached, hub) = begun(0, began);
        assert!(matches!(reached.step(at(3000)), Step::Send(_)));
        // The next ones are of another store, whose history knows nothing of this one.
        hub.close(EndCause::Relisted);
        assert_eq!(reached.step(at(3000)), Step::End(EndCause::Relisted));
    }

    /// The initial events of objects of 100,000 bytes, with room for two of them.
    #[test]
    fn initial_events_wait_for_room_and_then_continue() {
        let (schema, reader) = state(4, 100_000);
        let (room, hub) = (room(250_000), Hub::new(FIRST_CHANGE, Spread::default()));
        let began = Instant::now();
        let open = || {
            let options = SessionOptions { timeout: Duration::from_secs(3600), ..everything(&schema, room.clone()) };
            let subscription = subscribe(&hub, &options, &schema);
            let view = View::new(reader.clone(), Scope::Everything);
            let start = Start::State(view.newest());
            Session::new(view, subscription, options, start, began)
        };
        let (mut reads, mut waits) = (open(), open());
        let sent = |step| match step {
            Step::Send(piece) => piece,
            step @ (Step::Work | Step::Wait(_) | Step::End(_)) => panic!("{step:?}"),
        };
        let held = [sent(reads.step(began)), sent(reads.step(began))];
        let Step::Wait(retry_at) = waits.step(began) else { panic!("there is no room") };
        assert!(retry_at > began);
        assert_eq!(waits.step(began), Step::Wait(retry_at), "it does not retry before that time");
        let mut told: Vec<u8> = held.concat();
        drop(held);
        drop(sent(waits.step(retry_at)));
        told.extend_from_slice(&sent(reads.step(began)));
        told.extend_from_slice(&sent(reads.step(began)));
        assert!(matches!(reads.step(began), Step::Wait(_)), "that was all");
        let told = String::from_utf8(told).unwrap();
        let names = (0..4).map(|number| told.find(&format!("\"m-{number}\"")).unwrap());
        assert!(names.is_sorted() && told.matches("ADDED").count() == 4);
        let _unread = [sent(open().step(began)), sent(open().step(began))];
        let mut now = retry_at;
        let end = loop {
            match waits.step(now) {
                Step::Wait(until) => now = until,
                end @ (Step::Send(_) | Step::Work | Step::End(_)) => break end,
            }
        };
        assert_eq!(end, Step::End(EndCause::NoRoom));
        assert!(now >= retry_at + Duration::from_secs(300) && now < retry_at + Duration::from_secs(302));
    }

    #[test]
    fn initial_events_of_a_lost_state_end_the_watch() {
        let (schema, reader) = state(200, 1000);
        for (cause, is_told) in [(EndCause::Lost, false), (EndCause::Relisted, true)] {
            let hub = Hub::new(FIRST_CHANGE, Spread::default());
            let options = everything(&schema, room(u64::MAX));
            let subscription = subscribe(&hub, &options, &schema);
            let view = View::new(reader.clone(), Scope::Everything);
            let now = Instant::now();
            let start = Start::State(view.newest());
            let mut session = Session::new(view, subscription, options, start, now);
            assert!(matches!(session.step(now), Step::Send(_)));
            let first = session.events_sent();
            assert!(first > 1 && first < 200, "{first}");
            hub.close(cause);
            let mut rest = 0;
            let end = loop {
                match session.step(now) {
                    Step::Send(_) => rest += session.events_sent(),
                    end @ (Step::Work | Step::Wait(_) | Step::End(_)) => break end,
                }
            };
            assert_eq!((end, rest), (Step::End(cause), if is_told { 200 - first } else { 0 }));
        }
    }

    /// A watch of that many objects, none of which has a label, by 64 requirements that begin with `each`.
    fn costly(objects: usize, each: &str, now: Instant) -> (Arc<Schema>, Writer, Arc<Hub>, Session) {
        let (schema, writer, reader) = written(objects, 10);
        let labels = (0..64).map(|number| format!("{each}{number}")).collect::<Vec<_>>().join(",");
        let labels = LabelSelector::parse(&labels).unwrap();
        let predicate = Predicate::new(labels, &FieldSelector::default(), &schema).unwrap();
        let hub = Hub::new(FIRST_CHANGE, Spread::default());
        let options = SessionOptions { predicate, ..everything(&schema, room(u64::MAX)) };
        let subscription = subscribe(&hub, &options, &schema);
        let view = View::new(reader, Scope::Everything);
        let start = Start::State(view.newest());
        let session = Session::new(view, subscription, options, start, now);
        (schema, writer, hub, session)
    }

    /// Neither a state nor a history without matching objects is looked through at once.
    #[test]
    fn a_watch_that_finds_nothing_gives_way_to_other_tasks() {
        let now = Instant::now();
        let (schema, mut writer, hub, mut session) = costly(3000, "k", now);
        let at_once = session.predicate.objects_at_once();
        let mut units = || {
            let mut units = 0;
            loop {
                match session.step(now) {
                    Step::Work => units += 1,
                    step @ (Step::Send(_) | Step::Wait(_) | Step::End(_)) => {
                        return (units, matches!(step, Step::Wait(_)));
                    }
                }
            }
        };
        assert_eq!(units(), (3000_usize.div_ceil(at_once), true));
        for version in 2..1002 {
            let object = object(&schema, 0, version, 10);
            let change = writer.apply(ChangeKind::Modified, object, Bytes::from_static(b"line\n")).unwrap();
            hub.announce(&change, [None, None]);
        }
        assert_eq!(units(), (1000 / BATCH, true));
    }

    /// Events that are small, and costly to find.
    #[test]
    fn initial_events_that_take_much_work_give_way_to_other_tasks() {
        let now = Instant::now();
        let (_schema, _writer, _hub, mut session) = costly(1000, "!k", now);
        let at_once = session.predicate.objects_at_once() as u64;
        let (mut sent, mut may_send) = (0, true);
        loop {
            match session.step(now) {
                Step::Send(_) => {
                    assert!(may_send, "two units without a pause");
                    (sent, may_send) = (sent + session.events_sent(), session.events_sent() < at_once);
                }
                Step::Work => may_send = true,
                Step::Wait(_) | Step::End(_) => break,
            }
        }
        assert_eq!(sent, 1000);
    }

    #[test]
    fn in_a_drain_watches_end_in_turn_and_get_events_until_then() {
        let schema = Arc::new(Schema::new(Shape::typed("ConfigMap", "v1"), Vec::new()));
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 4 << 20 };
        let version = ResourceVersion::new(1).unwrap();
        let (mut writer, reader) = store::store(schema.clone(), &Objects::default(), version, limits);
        let spread = Spread::default();
        let hub = Hub::new(FIRST_CHANGE, spread.clone());
        let start = Instant::now();
        let mut sessions: Vec<_> = (0..3)
            .map(|_| {
                let options = everything(&schema, room(u64::MAX));
                let subscription = subscribe(&hub, &options, &schema);
                let view = View::new(reader.clone(), Scope::Everything);
                Session::new(view, subscription, options, Start::After(version), start)
            })
            .collect();
        for session in &mut sessions {
            assert!(matches!(session.step(start), Step::Wait(_)));
        }
        spread.begin(Duration::from_secs(1));
        hub.wake_all();
        let now = Instant::now();
        assert_eq!(sessions[0].step(now), Step::End(EndCause::Drained));
        let turns = [1, 2].map(|session: usize| match sessions[session].step(start) {
            Step::Wait(turn) => turn,
            step @ (Step::Send(_) | Step::Work | Step::End(_)) => panic!("{step:?}"),
        });
        assert!(turns[0] < turns[1] && turns[1] < now + Duration::from_secs(1));
        let object = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"m","resourceVersion":"2"}}"#;
        let object = Object::from_event(object.into(), &schema).unwrap();
        let change = writer.apply(ChangeKind::Added, object, Bytes::from_static(b"line\n")).unwrap();
        hub.announce(&change, [None, None]);
        assert!(matches!(sessions[1].step(start), Step::Send(_)), "it gets events until its turn");
        assert_eq!(sessions[1].step(turns[0]), Step::End(EndCause::Drained));
    }

    /// The pieces that a watcher gets when it finds several changes at once, whose objects have `data` bytes each.
    fn pieces(data: &[usize], room_bytes: u64) -> Vec<String> {
        let schema = Arc::new(Schema::new(Shape::typed("ConfigMap", "v1"), Vec::new()));
        let limits = HistoryLimits { age: Duration::from_secs(300), bytes: 4 << 20 };
        let version = |number| ResourceVersion::new(number).unwrap();
        let (mut writer, reader) = store::store(schema.clone(), &Objects::default(), version(1), limits);
        let hub = Hub::new(FIRST_CHANGE, Spread::default());
        let options = everything(&schema, room(room_bytes));
        let subscription = subscribe(&hub, &options, &schema);
        let view = View::new(reader, Scope::Everything);
        let now = Instant::now();
        let mut session = Session::new(view, subscription, options, Start::After(version(1)), now);
        for (number, length) in (2..).zip(data) {
            let metadata = format!(r#"{{"name":"m-{number}","resourceVersion":"{number}"}}"#);
            let data = format!(r#"{{"x":"{}"}}"#, "x".repeat(*length));
            let object = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata},"data":{data}}}"#);
            let line = Bytes::from(format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n"));
            let object = Object::from_event(object.into(), &schema).unwrap();
            let change = writer.apply(ChangeKind::Added, object, line).unwrap();
            hub.announce(&change, [None, None]);
        }
        let piece = |step| match step {
            Step::Send(piece) => Some(String::from_utf8(piece.to_vec()).unwrap()),
            Step::Work | Step::Wait(_) | Step::End(_) => None,
        };
        iter::from_fn(|| piece(session.step(now))).collect()
    }

    #[test]
    fn without_room_for_a_copy_events_are_not_joined() {
        assert_eq!(pieces(&[10; 80], 0).len(), 80);
        assert_eq!(pieces(&[10; 80], 0).concat(), pieces(&[10; 80], u64::MAX).concat());
    }

    #[test]
    fn events_that_are_ready_together_are_joined_in_order() {
        for (data, expected) in [
            (&[10][..], &[1][..]),
            (&[10; 80], &[64, 16]),
            (&[9_000, 9_000, 10, 10, 9_000, 20_000, 10], &[1, 3, 1, 1, 1]),
        ] {
            let pieces = pieces(data, u64::MAX);
            let events: Vec<_> = pieces.iter().map(|piece| piece.matches("\"type\":\"ADDED\"").count()).collect();
            assert_eq!(events, expected, "{data:?}");
            let all = pieces.concat();
            let names = (2..data.len() + 2).map(|number| all.find(&format!("\"m-{number}\"")).unwrap());
            assert!(names.is_sorted());
            assert!(pieces.iter().all(|piece| piece.ends_with('\n')));
        }
    }
}
