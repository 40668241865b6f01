//! The synthetic ADDED events for the initial state of a watch, streamed from the snapshot.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    apimachinery::ResourceVersion,
    encode::{Form, partial::NotPartial},
    fairness::{ClientRoom, Room},
    store::{Extract, Predicate},
};

/// The number of objects that are examined at a time.
const BATCH: usize = 256;
/// The maximum number of bytes that are framed at a time; a single object may exceed it.
const PIECE: usize = 64 << 10;
/// How long a piece waits for room. The other answers of the client that hold it are ended after as long if they are
/// not read.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(300);
/// How often a waiting piece asks for room: after half of the time that it has waited, within these bounds.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// A position in a state: the objects after it are still to be sent.
///
/// Each piece is a copy of this watch alone, so it takes room of its client's answers until the client has it. A client
/// that reads has the room back at once; one that does not read delays only its own watches.
#[derive(Debug)]
pub(super) struct InitialEvents {
    state: Extract,
    prefix: String,
    /// The smallest key that has not been examined yet.
    from: String,
    waiting: Option<Waiting>,
}

/// The next piece has no room.
#[derive(Debug)]
struct Waiting {
    length: usize,
    since: Instant,
    retry_at: Instant,
}

/// What follows in a state.
#[derive(Debug)]
pub(super) enum Next {
    /// Events in one piece, and their number.
    Events(Bytes, u32),
    /// There is no room for the next piece; to be asked again at this time.
    NoRoom(Instant),
    /// There was no room for too long.
    NeverRoom,
    /// All events were returned.
    Nothing,
}

impl InitialEvents {
    pub(super) fn new(state: Extract) -> Self {
        let prefix = state.prefix();
        Self { state, from: prefix.clone(), prefix, waiting: None }
    }

    pub(super) fn next(
        &mut self,
        now: Instant,
        (predicate, form, room): (&Predicate, &Form, &ClientRoom),
    ) -> Result<Next, NotPartial> {
        let mut taken = None;
        // The next piece was chosen before; the state does not change, so its length is known.
        if let Some(waiting) = &mut self.waiting {
            match waiting.retry(now, room) {
                Ok(room) => taken = Some(room),
                Err(next) => return Ok(next),
            }
            self.waiting = None;
        }
        loop {
            let (mut piece, mut length, mut last) = (Vec::new(), 0, None);
            for object in self.state.objects_from(&self.prefix, &self.from).take(BATCH) {
                if predicate.matches(object) {
                    let added = form.added_len(object)?;
                    if !piece.is_empty() && length + added > PIECE {
                        break;
                    }
                    piece.push(object);
                    length += added;
                }
                last = Some(&object.key);
            }
            let Some(last) = last else { return Ok(Next::Nothing) };
            // The smallest key after the last examined one.
            let next = format!("{}\0", last.as_str());
            let Some(first) = piece.first() else {
                self.from = next;
                continue;
            };
            let Some(room) = taken.or_else(|| room.take(length)) else {
                self.from = first.key.as_str().to_owned();
                let retry_at = now + RETRY_MIN;
                self.waiting = Some(Waiting { length, since: now, retry_at });
                return Ok(Next::NoRoom(retry_at));
            };
            let count = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            let mut events = Vec::with_capacity(length);
            for object in piece {
                form.put_added(object, &mut events)?;
            }
            self.from = next;
            return Ok(Next::Events(room.holding(events), count));
        }
    }

    pub(super) fn version(&self) -> ResourceVersion {
        self.state.version()
    }
}

impl Waiting {
    fn retry(&mut self, now: Instant, room: &ClientRoom) -> Result<Room, Next> {
        if now < self.retry_at {
            return Err(Next::NoRoom(self.retry_at));
        }
        let waited = now.saturating_duration_since(self.since);
        room.take(self.length).ok_or_else(|| {
            if waited >= ROOM_WAIT_MAX {
                return Next::NeverRoom;
            }
            self.retry_at = now + (waited / 2).clamp(RETRY_MIN, RETRY_MAX);
            Next::NoRoom(self.retry_at)
        })
    }
}
