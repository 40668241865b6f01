//! Which of upstream's servers accept an identity. None is assumed to, before it has shown it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::era::Era;

/// What is known of each of several servers, or of the only one. Forgotten with the cluster. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Belief {
    /// A [`Standing`], and in the higher bits the number of the era in which it was noted.
    known: Arc<[AtomicU64]>,
    era: Era,
}

const STANDING_BITS: u32 = 2;

/// What a server has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Undecided,
    Accepted,
    Refused,
}

impl Belief {
    pub(super) fn undecided(servers: usize, era: Era) -> Self {
        Self { known: (0..servers).map(|_| AtomicU64::new(Standing::Undecided.bits())).collect(), era }
    }

    /// The number of the current era, to be taken before a server is asked.
    pub(super) fn era(&self) -> u64 {
        self.era.number()
    }

    /// Records what a server has shown in an era, and returns what was known of it.
    pub(super) fn note(&self, server: usize, standing: Standing, era: u64) -> Standing {
        self.standing(self.known[server].swap(standing.bits() | era << STANDING_BITS, Ordering::AcqRel))
    }

    pub(super) fn of(&self, server: usize) -> Standing {
        self.standing(self.known[server].load(Ordering::Acquire))
    }

    /// The best that a server has shown: `Undecided` only if none has shown anything.
    pub(super) fn best(&self) -> Standing {
        let mut best = Standing::Undecided;
        for standing in self.standings() {
            match standing {
                Standing::Accepted => return Standing::Accepted,
                Standing::Refused => best = Standing::Refused,
                Standing::Undecided => {}
            }
        }
        best
    }

    /// The servers that have not shown that they accept the identity.
    pub(super) fn others(&self) -> Vec<usize> {
        let standings = self.standings().enumerate();
        standings.filter(|(_, standing)| *standing != Standing::Accepted).map(|(server, _)| server).collect()
    }

    fn standings(&self) -> impl Iterator<Item = Standing> + '_ {
        (0..self.known.len()).map(|server| self.of(server))
    }

    fn standing(&self, known: u64) -> Standing {
        if known >> STANDING_BITS == self.era.number() { Standing::of(known) } else { Standing::Undecided }
    }
}

impl Standing {
    const fn bits(self) -> u64 {
        match self {
            Self::Undecided => 0,
            Self::Accepted => 1,
            Self::Refused => 2,
        }
    }

    const fn of(known: u64) -> Self {
        match known & ((1 << STANDING_BITS) - 1) {
            1 => Self::Accepted,
            2 => Self::Refused,
            _ => Self::Undecided,
        }
    }
}
