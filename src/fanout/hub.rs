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

use super::{EndCause, Interest};
use crate::store::Change;

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
}

/// A watcher's place in the hub; given up when dropped.
pub struct Subscription {
    hub: Arc<Hub>,
    interest: Interest,
    seat: Arc<Seat>,
}

impl Hub {
    /// `next` is the number of the first change that the store has not had yet.
    pub fn new(next: u64) -> Arc<Self> {
        Arc::new(Self { announced: AtomicU64::new(next), ..Self::default() })
    }

    /// Takes a seat that will first look at change `from`.
    pub fn subscribe(self: &Arc<Self>, interest: Interest, from: u64) -> Subscription {
        let seat = Arc::new(Seat {
            pending: AtomicU64::new(from),
            is_stale: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        self.seats().entry(interest.clone()).or_default().push(seat.clone());
        self.watchers.fetch_add(1, SeqCst);
        Subscription { hub: self.clone(), interest, seat }
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
        let seats: Vec<_> = self.seats().values().flatten().cloned().collect();
        for seat in seats {
            seat.waker.wake();
        }
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
