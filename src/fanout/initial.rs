//! The synthetic events of a watch's first state, streamed from the snapshot.

use bytes::Bytes;

use super::Scope;
use crate::{
    encode::{Form, partial::NotPartial},
    store::{Predicate, Snapshot},
};

/// Objects that are looked at, and bytes that are framed at a time: what a slow reader holds beside its socket.
const BATCH: usize = 256;
const PIECE: usize = 64 << 10;

/// A place in a snapshot: what lies behind it is still to be sent.
#[derive(Debug)]
pub(super) struct InitialEvents {
    snapshot: Snapshot,
    prefix: String,
    /// The first key that has not been looked at.
    from: String,
}

impl InitialEvents {
    pub(super) fn new(snapshot: Snapshot, scope: &Scope) -> Self {
        let prefix = scope.prefix();
        Self { snapshot, from: prefix.clone(), prefix }
    }

    /// The next events in one piece; `None` when all have been given.
    pub(super) fn next(
        &mut self,
        scope: &Scope,
        predicate: &Predicate,
        form: &Form,
    ) -> Result<Option<Bytes>, NotPartial> {
        let mut events = Vec::new();
        loop {
            let mut last = None;
            for object in self.snapshot.objects_from(&self.prefix, &self.from).take(BATCH) {
                last = Some(&object.key);
                if scope.contains(object) && predicate.matches(object) {
                    if events.is_empty() {
                        events.reserve(PIECE);
                    }
                    form.put_added(object, &mut events)?;
                    // The next one would make it longer than a piece, most likely.
                    if events.len() + object.tail().len() > PIECE {
                        break;
                    }
                }
            }
            // The smallest key behind the last one seen.
            let Some(last) = last else { return Ok(None) };
            let next = format!("{}\0", last.as_str());
            self.from = next;
            if !events.is_empty() {
                return Ok(Some(events.into()));
            }
        }
    }

    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}
