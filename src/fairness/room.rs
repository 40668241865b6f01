//! Bounds the memory of answers that are being sent, in total and per client.

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
        let shown = Arc::downgrade(&all);
        show_limit("answer_bytes", move || shown.upgrade().map(|all| (all.held.load(Relaxed), all.most.load(Relaxed))));
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
        let each = match self.client {
            Some(client) if bytes > 0 => Some(all.each.take_many(client, bytes)?),
            Some(_) | None => None,
        };
        let bytes = bytes as u64;
        let held = all.held.fetch_add(bytes, Relaxed).saturating_add(bytes);
        // From here on, dropping `room` releases the bytes.
        let room = Room { all: all.clone(), bytes, _each: each };
        if held > all.most.load(Relaxed) {
            limit_reached("answer_bytes");
            return None;
        }
        Some(room)
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

    #[test]
    fn one_client_leaves_room_for_others() {
        let room = AnswerRoom::new(100, 60);
        let [jane, john] = ["jane", "john"].map(|name| room.of(Some(ClientKey::of(&name))));
        let anyone = room.of(None);
        let first = jane.take(60).expect("all that one client may have");
        assert!(jane.take(1).is_none());
        assert!(jane.take(0).is_some(), "what holds nothing needs no room");
        let second = john.take(40).expect("the rest");
        assert!(john.take(1).is_none(), "there is no more of it in all");
        drop((first, second));
        drop(anyone.take(100).expect("everything was given back"));
        room.set(10, 5);
        assert!(jane.take(6).is_none() && anyone.take(11).is_none() && jane.take(5).is_some());
        assert_eq!(room.0.held.load(Relaxed), 0);
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
