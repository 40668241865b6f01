//! The synthetic ADDED events for the initial state of a watch, streamed from the snapshot.

use bytes::Bytes;

use crate::{
    apimachinery::ResourceVersion,
    encode::{Form, partial::NotPartial},
    store::{Extract, Predicate},
};

/// The number of objects that are examined, and of bytes that are framed, at a time. This bounds the memory of a slow
/// reader besides its socket.
const BATCH: usize = 256;
const PIECE: usize = 64 << 10;

/// A position in a state: the objects after it are still to be sent.
#[derive(Debug)]
pub(super) struct InitialEvents {
    state: Extract,
    prefix: String,
    /// The smallest key that has not been examined yet.
    from: String,
}

impl InitialEvents {
    pub(super) fn new(state: Extract) -> Self {
        let prefix = state.prefix();
        Self { state, from: prefix.clone(), prefix }
    }

    /// The next events in one piece, and their number; `None` when all were returned.
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
                    // The next object would probably exceed the piece.
                    if events.len() + object.tail().len() > PIECE {
                        break;
                    }
                }
            }
            // The smallest key after the last examined one.
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
