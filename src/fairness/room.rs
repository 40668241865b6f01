//! Bounds the memory of answers that are being sent, in total and per client.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{ClientKey, Share, Shares};
use crate::telemetry::{limit_reached, show_limit};

/// The bytes that answers from memory hold for themselves: copies, pieces on their way, compressors. Bytes shared with
/// the caches do not count. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AnswerRoom {
    all: Arc<All>,
    each: Shares,
}

/// The bytes held by all answers, and their limit.
#[derive(Debug)]
struct All {
    held: AtomicU64,
    most: AtomicU64,
}

/// The bytes held by one answer, released on drop.
#[derive(Debug)]
pub struct Room {
    all: Arc<All>,
    bytes: u64,
    _each: Option<Share>,
}

impl AnswerRoom {
    /// Limits in bytes, in total and for each client.
    pub fn new(all: u64, each: u64) -> Self {
        let each = Shares::new(usize::try_from(each).unwrap_or(usize::MAX), "client_answer_bytes");
        let all = Arc::new(All { held: AtomicU64::new(0), most: AtomicU64::new(all) });
        let shown = Arc::downgrade(&all);
        show_limit("answer_bytes", move || shown.upgrade().map(|all| (all.held.load(Relaxed), all.most.load(Relaxed))));
        Self { all, each }
    }

    /// Sets the limits for answers from now on.
    pub fn set(&self, all: u64, each: u64) {
        self.all.most.store(all, Relaxed);
        self.each.set(usize::try_from(each).unwrap_or(usize::MAX));
    }

    /// Room for `bytes` of an answer to `client` (`None` if clients are not told apart); `None` if there is none left.
    pub fn take(&self, client: Option<ClientKey>, bytes: usize) -> Option<Room> {
        let each = match client {
            Some(client) if bytes > 0 => Some(self.each.take_many(client, bytes)?),
            Some(_) | None => None,
        };
        let bytes = bytes as u64;
        let held = self.all.held.fetch_add(bytes, Relaxed).saturating_add(bytes);
        // From here on, dropping `room` releases the bytes.
        let room = Room { all: self.all.clone(), bytes, _each: each };
        if held > self.all.most.load(Relaxed) {
            limit_reached("answer_bytes");
            return None;
        }
        Some(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.all.held.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_leaves_room_for_others() {
        let room = AnswerRoom::new(100, 60);
        let [jane, john] = ["jane", "john"].map(|name| Some(ClientKey::of(&name)));
        let first = room.take(jane, 60).expect("all that one client may have");
        assert!(room.take(jane, 1).is_none());
        assert!(room.take(jane, 0).is_some(), "what holds nothing needs no room");
        let second = room.take(john, 40).expect("the rest");
        assert!(room.take(john, 1).is_none(), "there is no more of it in all");
        drop((first, second));
        drop(room.take(None, 100).expect("everything was given back"));
        room.set(10, 5);
        assert!(room.take(jane, 6).is_none() && room.take(None, 11).is_none() && room.take(jane, 5).is_some());
        assert_eq!(room.all.held.load(Relaxed), 0);
    }
}
