//! How much memory the stores of a gateway may take together.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::{Mutex, Notify},
    time::timeout,
};

/// The memory that all stores share. Cheap to clone.
///
/// What the stores take is measured from time to time ([`Self::measured`]); what they add in between is counted on top
/// of that, and what they free is not. So it counts too much rather than too little.
#[derive(Clone, Debug)]
pub struct Room(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// `u64::MAX`: no limit.
    limit: AtomicU64,
    stores: AtomicU64,
    /// Objects of stores that are being filled.
    filling: AtomicU64,
    /// Notified when there may be more room.
    measured: Notify,
    /// Of the fills that lack room, one waits for it. What the others hold is given back only if they go on or fail,
    /// so that the one may be given up, and then makes room for the next.
    turn: Mutex<()>,
    /// Notified when a fill waits for room.
    short: Notify,
}

/// There is no room for a state that is being read; it has more than this number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for a state of more than {0} bytes")]
pub struct NoRoom(pub u64);

/// What a fill has read so far. Given back when it is dropped: a store that was made of it counts by itself.
#[derive(Debug)]
pub struct Claim {
    room: Room,
    bytes: u64,
}

/// How long a fill waits for room. Measuring and dropping something takes about a second.
const WAIT_MAX: Duration = Duration::from_secs(5);

impl Default for Room {
    /// Without a limit.
    fn default() -> Self {
        let (stores, filling, measured, turn, short) = Default::default();
        Self(Arc::new(Shared { limit: u64::MAX.into(), stores, filling, measured, turn, short }))
    }
}

impl Room {
    /// Sets the maximum number of bytes; `None` for no limit.
    pub fn set_limit(&self, bytes: Option<u64>) {
        self.0.limit.store(bytes.unwrap_or(u64::MAX), Relaxed);
    }

    /// The maximum number of bytes, if there is one.
    pub fn limit(&self) -> Option<u64> {
        Some(self.0.limit.load(Relaxed)).filter(|limit| *limit < u64::MAX)
    }

    /// Bytes that are taken, by fills too.
    pub fn used(&self) -> u64 {
        self.0.stores.load(Relaxed).saturating_add(self.0.filling.load(Relaxed))
    }

    /// Whether hardly any is left, so that nothing is kept that can be made again.
    pub fn is_tight(&self) -> bool {
        self.limit().is_some_and(|limit| self.used() > limit - limit / 8)
    }

    /// Sets what the stores take, as was measured just now.
    pub fn measured(&self, bytes: u64) {
        self.0.stores.store(bytes, Relaxed);
        self.0.measured.notify_waiters();
    }

    /// Notes that a store was found to take that much less than it was measured to take.
    pub fn measured_less(&self, bytes: u64) {
        self.measured(self.0.stores.load(Relaxed).saturating_sub(bytes));
    }

    /// Returns when a fill waits for room.
    pub async fn is_short(&self) {
        self.0.short.notified().await;
    }

    /// Counts bytes that a store has to keep.
    pub(super) fn charge(&self, bytes: usize) {
        self.0.stores.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts bytes that can be made again. Returns whether they may be kept.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let may_be_kept = !self.is_tight();
        if may_be_kept {
            self.charge(bytes);
        }
        may_be_kept
    }

    /// For a fill that begins.
    pub fn claim(&self) -> Claim {
        Claim { room: self.clone(), bytes: 0 }
    }

    /// Whether the limit is not exceeded.
    pub fn has_room(&self) -> bool {
        self.limit().is_none_or(|limit| self.used() <= limit)
    }
}

impl Claim {
    /// Counts objects that were read. Waits for a while if there is no room for them.
    ///
    /// # Errors
    /// There is still none. The fill is to be given up.
    pub async fn add(&mut self, objects: usize, bytes: usize) -> Result<(), NoRoom> {
        let added = (bytes + objects * super::OBJECT_BYTES) as u64;
        self.bytes += added;
        let Shared { filling, measured, turn, short, .. } = &*self.room.0;
        filling.fetch_add(added, Relaxed);
        if self.room.has_room() {
            return Ok(());
        }
        let _turn = turn.lock().await;
        let room = async {
            loop {
                let measured = measured.notified();
                if self.room.has_room() {
                    return;
                }
                short.notify_one();
                measured.await;
            }
        };
        timeout(WAIT_MAX, room).await.map_err(|_| NoRoom(self.bytes))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.room.0.filling.fetch_sub(self.bytes, Relaxed);
        self.room.0.measured.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fill_waits_for_room_and_is_given_up_without() {
        let room = Room::default();
        room.set_limit(Some(100_000));
        room.measured(60_000);
        let mut claim = room.claim();
        claim.add(0, 30_000).await.unwrap();
        assert!(room.is_tight() && !room.take(1));
        let freed = async {
            room.is_short().await;
            room.measured(20_000);
        };
        let (added, ()) = tokio::join!(claim.add(0, 40_000), freed);
        added.unwrap();
        assert_eq!(room.used(), 90_000);
        assert_eq!(claim.add(1, 11_000).await, Err(NoRoom(81_000 + super::super::OBJECT_BYTES as u64)));
        drop(claim);
        assert_eq!(room.used(), 20_000);
        assert!(room.take(1) && room.used() == 20_001);
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_fills_that_hinder_each_other_one_is_given_up() {
        let room = Room::default();
        room.set_limit(Some(100_000));
        let [mut first, mut second] = [room.claim(), room.claim()];
        first.add(0, 50_000).await.unwrap();
        second.add(0, 50_000).await.unwrap();
        let first = async move {
            let added = first.add(0, 40_000).await;
            drop(first);
            added
        };
        let (first, second) = tokio::join!(first, second.add(0, 40_000));
        assert_eq!((first, second), (Err(NoRoom(90_000)), Ok(())));
    }

    #[tokio::test]
    async fn without_a_limit_there_is_always_room() {
        let room = Room::default();
        room.charge(usize::MAX / 2);
        let mut claim = room.claim();
        claim.add(1, usize::MAX / 4).await.unwrap();
        assert!(room.limit().is_none() && !room.is_tight() && room.take(1));
    }
}
