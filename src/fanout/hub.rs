//! The watchers of one store, indexed by what they are about.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::Waker,
};

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use super::{EndCause, Interest};
use crate::{lifecycle::Spread, store::Change, telemetry::Client};

/// Nothing new for this watcher.
const NOTHING: u64 = u64::MAX;

/// Wakes, for each change, those whom it may concern, and nobody else.
#[derive(Default)]
pub struct Hub {
    seats: Mutex<HashMap<Interest, Vec<Arc<Seat>>>>,
    watchers: AtomicUsize,
    /// The number after the last change that has been announced to all whom it concerns.
    announced: AtomicU64,
    closed: OnceLock<EndCause>,
    /// When it is whose turn to end, once the gateway drains.
    spread: Spread,
    /// How often the store was bridged over what upstream had forgotten.
    bridges: AtomicU64,
    /// No watch of upstream is open that would tell of changes.
    unfollowed: AtomicBool,
}

/// Where one watcher waits.
struct Seat {
    /// The number of the first change since the watcher last looked that may concern it.
    pending: AtomicU64,
    /// It was told to go elsewhere.
    is_stale: AtomicBool,
    waker: AtomicWaker,
    /// Who watches, where that is known.
    client: Option<Arc<Client>>,
    since: Instant,
}

/// A watcher that has not looked at a change that may concern it.
#[derive(Clone, Debug)]
pub struct Behind {
    pub client: Option<Arc<Client>>,
    pub interest: Interest,
    pub since: Instant,
    /// The number of the first change that it has not looked at.
    pub pending: u64,
    /// Changes since then, whomever they concern.
    pub changes: u64,
}

/// A watcher's place in the hub; given up when dropped.
pub struct Subscription {
    hub: Arc<Hub>,
    interest: Interest,
    seat: Arc<Seat>,
    /// The bridges that the watcher knows of.
    bridges: u64,
}

impl Hub {
    /// `next` is the number of the first change that the store has not had yet. `spread` ends watches when the gateway drains.
    pub fn new(next: u64, spread: Spread) -> Arc<Self> {
        Arc::new(Self { announced: AtomicU64::new(next), spread, ..Self::default() })
    }

    /// Takes a seat that will first look at change `from`, for `client` where it is known.
    pub fn subscribe(self: &Arc<Self>, interest: Interest, from: u64, client: Option<Arc<Client>>) -> Subscription {
        let seat = Arc::new(Seat {
            pending: AtomicU64::new(from),
            is_stale: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            client,
            since: Instant::now(),
        });
        self.seats().entry(interest.clone()).or_default().push(seat.clone());
        self.watchers.fetch_add(1, SeqCst);
        let bridges = self.bridges.load(SeqCst);
        Subscription { hub: self.clone(), interest, seat, bridges }
    }

    /// Announces a change that the store has taken. `indexed` are the values of the indexed field
    /// before and after it. Wakes without a lock held.
    pub fn announce(&self, change: &Change, indexed: [Option<&str>; 2]) {
        for seat in self.concerned(change, indexed) {
            // The watcher takes the oldest number that it has not seen; a later one changes nothing.
            let _ = seat.pending.fetch_min(change.number, SeqCst);
            seat.waker.wake();
        }
        self.announced.store(change.number + 1, SeqCst);
    }

    fn concerned(&self, change: &Change, indexed: [Option<&str>; 2]) -> Vec<Arc<Seat>> {
        let key = &change.object.key;
        let mut interests = vec![Interest::Everything, Interest::Object(key.clone())];
        interests.extend(key.namespace().map(|namespace| Interest::Namespace(namespace.into())));
        let [before, after] = indexed;
        interests.extend(before.map(|value| Interest::Indexed(value.into())));
        interests.extend(after.filter(|_| after != before).map(|value| Interest::Indexed(value.into())));
        let seats = self.seats();
        interests.iter().filter_map(|interest| seats.get(interest)).flatten().cloned().collect()
    }

    /// Ends every watch, now and from now on.
    pub fn close(&self, cause: EndCause) {
        let _ = self.closed.set(cause);
        self.wake_all();
    }

    /// Has every watcher look whether something has changed for all.
    pub fn wake_all(&self) {
        let seats: Vec<_> = self.seats().values().flatten().cloned().collect();
        for seat in seats {
            seat.waker.wake();
        }
    }

    /// The store was bridged over what upstream had forgotten, and all that is to be told of that has been announced. Each watcher
    /// is woken: one that knows a version from within has to go, all others are told how far they have come.
    pub fn bridged(&self) {
        self.bridges.fetch_add(1, SeqCst);
        self.wake_all();
    }

    /// Ends the watches that there are now.
    pub fn end_stale(&self) {
        let seats: Vec<_> = self.seats().values().flatten().cloned().collect();
        for seat in seats {
            seat.is_stale.store(true, SeqCst);
            seat.waker.wake();
        }
    }

    /// Whether a watch of upstream is open. While there is none, there are no bookmarks, which would say that all is well.
    pub fn set_followed(&self, is_followed: bool) {
        self.unfollowed.store(!is_followed, SeqCst);
    }

    /// How many seats are taken now.
    pub fn watchers(&self) -> usize {
        self.watchers.load(SeqCst)
    }

    /// The `most` watchers that have fallen behind furthest, the last one first. A step for each watcher: for people who look.
    pub fn furthest_behind(&self, most: usize) -> Vec<Behind> {
        let announced = self.announced.load(SeqCst);
        let seats = self.seats();
        let behind = |(interest, seat): (&Interest, &Arc<Seat>)| {
            let pending = seat.pending.load(SeqCst);
            // One that has nothing pending is ahead of all, and so is one that begins with what comes next.
            let changes = announced.checked_sub(pending).filter(|changes| *changes > 0)?;
            let (client, interest, since) = (seat.client.clone(), interest.clone(), seat.since);
            Some(Behind { client, interest, since, pending, changes })
        };
        let all = seats.iter().flat_map(|(interest, row)| row.iter().map(move |seat| (interest, seat)));
        let mut all: Vec<_> = all.filter_map(behind).collect();
        drop(seats);
        all.sort_by_key(|behind| (behind.pending, behind.since));
        all.truncate(most);
        all
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<Interest, Vec<Arc<Seat>>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    /// Who is to be woken. Must come before the look at what is pending, or a wake-up is lost.
    pub fn register(&self, waker: &Waker) {
        self.seat.waker.register(waker);
    }

    /// The number of the first change that may concern the watcher since it last asked.
    pub(super) fn take_pending(&self) -> Option<u64> {
        Some(self.seat.pending.swap(NOTHING, SeqCst)).filter(|number| *number != NOTHING)
    }

    pub(super) fn is_pending(&self) -> bool {
        self.seat.pending.load(SeqCst) != NOTHING
    }

    /// Whether all changes before `next` have been announced.
    pub(super) fn is_announced(&self, next: u64) -> bool {
        self.hub.announced.load(SeqCst) >= next
    }

    pub(super) fn closed(&self) -> Option<EndCause> {
        self.hub.closed.get().copied().or_else(|| self.seat.is_stale.load(SeqCst).then_some(EndCause::Stale))
    }

    /// When the watch ends because the gateway drains. A turn is taken by each call: to be asked once.
    pub(super) fn turn(&self) -> Option<Instant> {
        self.hub.spread.turn()
    }

    /// Whether the store was bridged since this was last asked, or since the seat was taken.
    pub(super) fn take_bridged(&mut self) -> bool {
        let bridges = self.hub.bridges.load(SeqCst);
        std::mem::replace(&mut self.bridges, bridges) != bridges
    }

    pub(super) fn is_followed(&self) -> bool {
        !self.hub.unfollowed.load(SeqCst)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.watchers.fetch_sub(1, SeqCst);
        let mut seats = self.hub.seats();
        let Some(row) = seats.get_mut(&self.interest) else { return };
        if let Some(at) = row.iter().position(|seat| Arc::ptr_eq(seat, &self.seat)) {
            row.swap_remove(at);
        }
        if row.is_empty() {
            seats.remove(&self.interest);
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Hub").field("watchers", &self.watchers()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Subscription").field("interest", &self.interest).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        apimachinery::ResourceVersion,
        store::{self, ChangeKind, HistoryLimits, Object, Schema, Shape},
        telemetry::TopClients,
    };

    #[test]
    fn who_does_not_look_falls_behind() {
        let schema = Arc::new(Schema::new(Shape::typed("ConfigMap", "v1"), Vec::new()));
        let limits = HistoryLimits { age: std::time::Duration::from_secs(300), bytes: 4 << 20 };
        let first = ResourceVersion::new(1).expect("not zero");
        let (mut writer, reader) = store::store(schema.clone(), Vec::new(), first, limits);
        let (hub, top_clients) = (Hub::new(0, Spread::default()), TopClients::default());
        let client = |name: &str| Some(top_clients.find(name.as_bytes(), None));
        let attentive = hub.subscribe(Interest::Everything, 0, client("attentive"));
        let _deaf = hub.subscribe(Interest::Everything, 0, client("deaf"));
        assert!(hub.furthest_behind(10).is_empty(), "nothing has happened");
        for number in 2..5 {
            let object = format!(
                r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"m","namespace":"n","resourceVersion":"{number}"}}}}"#
            );
            let kind = if number == 2 { ChangeKind::Added } else { ChangeKind::Modified };
            let object = Object::from_event(object.into(), &schema).unwrap();
            let change = writer.apply(kind, object, Bytes::from_static(b"line\n")).unwrap();
            hub.announce(&change, [None, None]);
            attentive.take_pending();
        }
        let [behind] = &hub.furthest_behind(10)[..] else { panic!("{:?}", hub.furthest_behind(10)) };
        assert_eq!((behind.pending, behind.changes), (0, 3));
        assert_eq!(behind.client.as_ref().map(|client| &*client.user_agent), Some("deaf"));
        assert!(reader.change_age(behind.pending).is_some() && reader.change_age(3).is_none());
    }
}
