//! The synthetic events of a watch's first state, streamed from the snapshot.

use bytes::Bytes;

use crate::{
    apimachinery::ResourceVersion,
    encode::{Form, partial::NotPartial},
    store::{Extract, Predicate},
};

/// Objects that are looked at, and bytes that are framed at a time: what a slow reader holds beside its socket.
const BATCH: usize = 256;
const PIECE: usize = 64 << 10;

/// A place in a state: what lies behind it is still to be sent.
#[derive(Debug)]
pub(super) struct InitialEvents {
    state: Extract,
    prefix: String,
    /// The first key that has not been looked at.
    from: String,
}

impl InitialEvents {
    pub(super) fn new(state: Extract) -> Self {
        let prefix = state.prefix();
        Self { state, from: prefix.clone(), prefix }
    }

    /// The next events in one piece, and how many they are; `None` when all have been given.
    pub(super) fn next(&mut self, predicate: &Predicate, form: &Form) -> Result<Option<(Bytes, u32)>, NotPartial> {
        let (mut events, mut count) = (Vec::new(), 0);
        loop {
            let mut last = None;
            for object in self.state.objects_from(&self.prefix, &self.from).take(BATCH) {
                last = Some(&object.key);
                if predicate.matches(object) {
                    if events.is_empty() {
                        events.reserve(PIECE);
                    }
                    form.put_added(object, &mut events)?;
                    count += 1;
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
                return Ok(Some((events.into(), count)));
            }
        }
    }

    pub(super) fn version(&self) -> ResourceVersion {
        self.state.version()
    }
}
