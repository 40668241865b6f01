//! The synthetic ADDED events for the initial state of a watch, streamed from the snapshot.

use std::{mem, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    encode::{EventForm, partial::NotPartial},
    store::{Extract, Predicate, Thaw},
};
use base::{apimachinery::ResourceVersion, fairness::ClientByteBudget};

/// The maximum number of objects that are framed at a time: their metadata may have to be made first.
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
    thaw: Thaw,
    /// Whether the last events were found by a whole unit of work, so that others get a turn before the next one.
    gives_way: bool,
}

/// The next piece has no room.
#[derive(Clone, Copy, Debug)]
struct Waiting {
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
    /// Nothing was found yet, or little by much work. Other tasks should get a turn before it is asked again.
    Work,
    /// All events were returned.
    Nothing,
}

impl InitialEvents {
    pub(super) fn new(state: Extract) -> Self {
        let prefix = state.prefix();
        Self { state, from: prefix.clone(), prefix, waiting: None, thaw: Thaw::default(), gives_way: false }
    }

    pub(super) fn next(
        &mut self,
        now: Instant,
        open_for: Duration,
        predicate: &Predicate,
        form: &mut EventForm,
        room: &ClientByteBudget,
    ) -> Result<Next, NotPartial> {
        if let Some(Waiting { retry_at, .. }) = self.waiting
            && now < retry_at
        {
            return Ok(Next::NoRoom(retry_at));
        }
        if mem::take(&mut self.gives_way) {
            return Ok(Next::Work);
        }
        let (mut piece, mut length, mut last) = (Vec::new(), 0, None);
        let mut left = predicate.objects_at_once();
        for (key, selected) in self.state.examine(&self.prefix, &self.from, predicate).take(left) {
            if let Some(object) = selected {
                let added = form.added_len(object, &mut self.thaw)?;
                if piece.len() == BATCH || !piece.is_empty() && length + added > PIECE {
                    break;
                }
                piece.push(object);
                length += added;
            }
            last = Some(key);
            left -= 1;
        }
        let Some(last) = last else { return Ok(Next::Nothing) };
        // The smallest key after the last examined one.
        let next = format!("{}\0", last.as_str());
        let Some(first) = piece.first() else {
            self.from = next;
            return Ok(Next::Work);
        };
        let Some(room) = room.take(length) else {
            self.from = first.key.as_str().to_owned();
            return Ok(self.no_room(now));
        };
        self.waiting = None;
        self.gives_way = left == 0;
        let count = u32::try_from(piece.len()).unwrap_or(u32::MAX);
        let mut events = Vec::with_capacity(length);
        for object in piece {
            object.thaw(&mut self.thaw);
            form.put_added(object, open_for, &mut events)?;
        }
        self.from = next;
        Ok(Next::Events(room.holding(events), count))
    }

    /// There is no room for the next piece, for the first time or again.
    fn no_room(&mut self, now: Instant) -> Next {
        let since = self.waiting.map_or(now, |waiting| waiting.since);
        let waited = now.saturating_duration_since(since);
        if waited >= ROOM_WAIT_MAX {
            return Next::NeverRoom;
        }
        let retry_at = now + (waited / 2).clamp(RETRY_MIN, RETRY_MAX);
        self.waiting = Some(Waiting { since, retry_at });
        Next::NoRoom(retry_at)
    }

    pub(super) fn version(&self) -> ResourceVersion {
        self.state.version()
    }
}
