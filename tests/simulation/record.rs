//! What happened in a run, as a number that two equal runs share.

use std::{
    cell::RefCell,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    rc::Rc,
};

/// Everything that clients received and that was done to the servers, in order. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Rc<RefCell<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    hasher: DefaultHasher,
    events: u64,
    faults: u64,
    changes: u64,
    restores: u64,
}

impl Record {
    /// A line of a watch, or an answer, that a client was given.
    pub(crate) fn told(&self, client: &str, text: &[u8]) {
        let mut recorded = self.0.borrow_mut();
        recorded.events += 1;
        (client, text).hash(&mut recorded.hasher);
    }

    /// Something that went wrong on purpose.
    pub(crate) fn fault(&self, fault: &dyn fmt::Debug) {
        let mut recorded = self.0.borrow_mut();
        recorded.faults += 1;
        format!("{fault:?}").hash(&mut recorded.hasher);
    }

    /// The storage was restored from a backup.
    pub(crate) fn restore(&self) {
        self.0.borrow_mut().restores += 1;
    }

    pub(crate) fn change(&self) {
        self.0.borrow_mut().changes += 1;
    }
}

impl fmt::Display for Record {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recorded { hasher, events, faults, changes, restores } = &*self.0.borrow();
        write!(
            formatter,
            "{changes} changes, {faults} faults, {restores} restores, {events} lines, {:016x}",
            hasher.finish()
        )
    }
}
