//! Times in which things go wrong, and times in which clients catch up.

use std::{cell::Cell, rc::Rc};

use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Things are written, and go wrong.
    Troubled,
    /// Nothing is written and nothing goes wrong: every client must soon have what upstream has.
    Calm,
    /// As calm, and the last one.
    Over,
}

/// The phase, as its director sees it.
#[derive(Debug)]
pub(crate) struct Director {
    phase: watch::Sender<Phase>,
    in_sync: Rc<Cell<usize>>,
}

/// The phase, as one who takes part in it sees it.
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

    /// How many clients have caught up since the phase began.
    pub(crate) fn in_sync(&self) -> usize {
        self.in_sync.get()
    }
}

impl Phases {
    pub(crate) fn is_troubled(&self) -> bool {
        *self.phase.borrow() == Phase::Troubled
    }

    pub(crate) async fn until_quiet(&mut self) {
        self.phase.wait_for(|phase| *phase != Phase::Troubled).await.unwrap();
    }

    /// Whether there is a next phase, in which things go wrong again; it has begun.
    pub(crate) async fn goes_on(&mut self) -> bool {
        *self.phase.wait_for(|phase| *phase != Phase::Calm).await.unwrap() == Phase::Troubled
    }

    pub(crate) fn report_in_sync(&self) {
        self.in_sync.set(self.in_sync.get() + 1);
    }
}
