//! Bounds the memory of answers that are being sent, in total and per client.
//!
//! Clients that do not read hold what they have taken, and enough of them hold all that is shared. So a part of the total
//! is reserved for clients that hold little: a client that reads goes on, whatever the others do.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;

use super::{ClientKey, Share, Shares};
use crate::telemetry::{limit_reached, show_limit};

/// The bytes that answers from memory hold for themselves: copies, pieces on their way, compressors, selectors. Bytes
/// shared with the caches do not count. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AnswerRoom(Arc<All>);

/// The room of one client's answers. Cheap to clone, and small: every watch has one.
#[derive(Clone, Debug)]
pub struct ClientRoom {
    all: AnswerRoom,
    /// `None` if clients are not told apart.
    client: Option<ClientKey>,
}

/// The bytes held by all answers, their limit, and the bytes held by each client's.
#[derive(Debug)]
struct All {
    held: AtomicU64,
    most: AtomicU64,
    each: Shares,
}

/// One part of this many of the total is reserved.
const RESERVE: u64 = 8;
/// A client that holds less than this takes from the reserve. Enough for the pieces of a few answers on their way.
const LITTLE: usize = 1 << 20;
/// Maximum number of bytes that are taken from the reserve at once: more than an object has, which is sent whole. So a
/// client that takes from the reserve holds less than 5 MiB.
const RESERVED_MAX: usize = 4 << 20;

/// Room for a number of bytes, released on drop.
#[derive(Debug)]
pub struct Room {
    all: Arc<All>,
    bytes: u64,
    _each: Option<Share>,
}

/// Bytes in the room that was taken for them.
struct Held {
    bytes: Vec<u8>,
    _room: Room,
}

impl AnswerRoom {
    /// Limits in bytes, in total and for each client.
    pub fn new(all: u64, each: u64) -> Self {
        let each = Shares::new(usize::try_from(each).unwrap_or(usize::MAX), "client_answer_bytes");
        let all = Arc::new(All { held: AtomicU64::new(0), most: AtomicU64::new(all), each });
        let (shared, reserved) = (Arc::downgrade(&all), Arc::downgrade(&all));
        show_limit("answer_bytes", move || shared.upgrade().map(|all| all.shared()));
        show_limit("reserved_answer_bytes", move || reserved.upgrade().map(|all| all.reserved()));
        Self(all)
    }

    /// Sets the limits for answers from now on.
    pub fn set(&self, all: u64, each: u64) {
        self.0.most.store(all, Relaxed);
        self.0.each.set(usize::try_from(each).unwrap_or(usize::MAX));
    }

    /// The room of that client's answers; `None` if clients are not told apart.
    pub fn of(&self, client: Option<ClientKey>) -> ClientRoom {
        ClientRoom { all: self.clone(), client }
    }
}

impl ClientRoom {
    /// Room for `bytes` of an answer; `None` if there is none left.
    pub fn take(&self, bytes: usize) -> Option<Room> {
        let AnswerRoom(all) = &self.all;
        if bytes == 0 {
            return Some(Room { all: all.clone(), bytes: 0, _each: None });
        }
        let each = match self.client {
            Some(client) => Some(all.each.take_many(client, bytes)?),
            None => None,
        };
        let bytes = bytes as u64;
        let held = all.held.fetch_add(bytes, Relaxed).saturating_add(bytes);
        // From here on, dropping `room` releases the bytes.
        let room = Room { all: all.clone(), bytes, _each: each };
        let (most, shared) = (all.most.load(Relaxed), all.shared_most());
        match self.client {
            None if held <= most => return Some(room),
            Some(_) if held <= shared => return Some(room),
            None | Some(_) => limit_reached("answer_bytes"),
        }
        if !all.is_little(self.client?, room.bytes) {
            return None;
        }
        if held > most {
            limit_reached("reserved_answer_bytes");
            return None;
        }
        Some(room)
    }
}

impl All {
    /// What is not reserved.
    fn shared_most(&self) -> u64 {
        let most = self.most.load(Relaxed);
        most - most / RESERVE
    }

    /// Whether a client may take that many bytes from the reserve. They count as taken already.
    fn is_little(&self, client: ClientKey, taken: u64) -> bool {
        let taken = usize::try_from(taken).unwrap_or(usize::MAX);
        taken <= RESERVED_MAX && self.each.held(client).saturating_sub(taken) < LITTLE
    }

    /// The used and the whole part that is not reserved.
    fn shared(&self) -> (u64, u64) {
        let most = self.shared_most();
        (self.held.load(Relaxed).min(most), most)
    }

    /// The used and the whole reserve.
    fn reserved(&self) -> (u64, u64) {
        let most = self.shared_most();
        (self.held.load(Relaxed).saturating_sub(most), self.most.load(Relaxed) - most)
    }
}

impl Room {
    /// Bytes that hold the room until the last reference to them is dropped, wherever they wait for the client.
    pub fn holding(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Held { bytes, _room: self })
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
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

    fn of(room: &AnswerRoom, name: &str) -> ClientRoom {
        room.of(Some(ClientKey::of(&name)))
    }

    #[test]
    fn one_client_leaves_room_for_others() {
        const MIB: usize = 1 << 20;
        let room = AnswerRoom::new(80 << 20, 50 << 20);
        let [jane, john] = ["jane", "john"].map(|name| of(&room, name));
        let anyone = room.of(None);
        let first = jane.take(50 * MIB).expect("all that one client may have");
        assert!(jane.take(1).is_none());
        assert!(jane.take(0).is_some(), "what holds nothing needs no room");
        let second = john.take(20 * MIB).expect("the rest of what is not reserved");
        assert!(john.take(1).is_none(), "there is no more of it in all");
        drop((first, second));
        drop(anyone.take(80 * MIB).expect("everything was given back"));
        room.set(16 << 20, 5);
        assert!(jane.take(6).is_none() && anyone.take(17 * MIB).is_none() && jane.take(5).is_some());
        assert_eq!(room.0.held.load(Relaxed), 0);
    }

    #[test]
    fn who_holds_little_takes_from_the_reserve() {
        let room = AnswerRoom::new(80 << 20, 80 << 20);
        let [hostile, jane, john] = ["hostile", "jane", "john"].map(|name| of(&room, name));
        let _unread = hostile.take(70 << 20).expect("all that is not reserved");
        assert!(hostile.take(1).is_none() && hostile.take(0).is_some());
        assert!(jane.take(RESERVED_MAX + 1).is_none(), "too much at once");
        let pieces = [LITTLE - 1, RESERVED_MAX].map(|bytes| jane.take(bytes).expect("it holds little"));
        assert!(jane.take(1).is_none(), "it holds more than little");
        let others = john.take(RESERVED_MAX).expect("another client's");
        let third = of(&room, "third");
        assert!(third.take(RESERVED_MAX).is_none(), "the reserve is bounded");
        assert_eq!((room.0.shared(), room.0.reserved().1), ((70 << 20, 70 << 20), 10 << 20));
        drop(pieces);
        assert!(third.take(RESERVED_MAX).is_some() && jane.take(RESERVED_MAX).is_some());
        drop(others);
        assert_eq!(room.0.reserved().0, 0);
    }

    #[test]
    fn bytes_hold_their_room_until_the_last_of_them_is_gone() {
        let room = AnswerRoom::new(10, 10).of(None);
        let mut bytes = room.take(10).expect("all of it").holding(b"0123456789".to_vec());
        let sent = bytes.split_to(4);
        assert_eq!((&*sent, &*bytes), (&b"0123"[..], &b"456789"[..]));
        drop(bytes);
        assert!(room.take(1).is_none());
        drop(sent);
        assert!(room.take(10).is_some());
    }
}
