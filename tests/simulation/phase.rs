//! Times in which things go wrong, and times in which clients catch up.

use std::{cell::Cell, rc::Rc};

use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Things are written, and go wrong.
    Troubled,
    /// Nothing is written and nothing goes wrong: every client must soon have what upstream has.
    Calm,
    /// As calm, and clients have closed their watches: nothing of what was opened for them may be left.
    Resting,
    /// Upstream's storage was restored from a backup, and clients are restarted, as the manual says. Nothing is written
    /// until each gateway has noticed it.
    Restored,
    /// The last one: there is nothing left to do.
    Over,
}

/// The phase, as its director sees it.
#[derive(Debug)]
pub(crate) struct Director {
    phase: watch::Sender<Phase>,
    in_sync: Rc<Cell<usize>>,
}

/// The phase, as a participant sees it.
#[derive(Clone, Debug)]
pub(crate) struct Phases {
    phase: watch::Receiver<Phase>,
    in_sync: Rc<Cell<usize>>,
}

impl Director {
    pub(crate) fn new() -> Self {
        Self { phase: watch::Sender::new(Phase::Troubled), in_sync: Rc::default() }
    }

    pub(crate) fn phases(&self) -> Phases {
        Phases { phase: self.phase.subscribe(), in_sync: self.in_sync.clone() }
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(crate) fn begin(&self, phase: Phase) {
        self.in_sync.set(0);
        self.phase.send_replace(phase);
    }

    /// How many parties have done what the phase demands.
    pub(crate) fn in_sync(&self) -> usize {
        self.in_sync.get()
    }
}

impl Phases {
    pub(crate) fn now(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Waits for the end of a phase.
    pub(crate) async fn until_not(&mut self, phase: Phase) {
        self.phase.wait_for(|now| *now != phase).await.unwrap();
    }

    /// Reports that this party has done what the phase demands, and waits for the next one. Whether there is one.
    pub(crate) async fn done_with(&mut self, phase: Phase) -> bool {
        self.in_sync.set(self.in_sync.get() + 1);
        if phase == Phase::Over {
            return false;
        }
        self.until_not(phase).await;
        true
    }
}
