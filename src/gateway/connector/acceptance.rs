//! Which of upstream's servers accept an identity. None is assumed to, before it has shown it.
//!
//! Invariant: nothing is written to a server on a connection of the identity unless the server has shown that it
//! accepts it. A connection takes its token ([`Acceptance::token`]) before it is opened, and the state is looked at
//! before and after it is opened ([`Acceptance::check`]): of a server that stops to accept the identity meanwhile, or
//! has to show it for another certificate, the token or the state tells.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio_util::sync::CancellationToken;

use super::breaker::Breaker;

/// What is known of each of several servers, or of the only one. Forgotten with the cluster. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Acceptance {
    servers: Arc<[Server]>,
    cluster: Breaker,
}

#[derive(Debug)]
struct Server {
    /// A [`AcceptanceState`], and in the higher bits the number of the generation in which it was noted.
    known: AtomicU64,
    /// The open connections of the identity.
    connections: Breaker,
}

/// A connection cannot be used for an identity.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the API server has not shown that it accepts the gateway's certificate")]
pub(super) struct NotAccepted;

const STATE_BITS: u32 = 2;

/// What a server has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcceptanceState {
    Undecided,
    Accepted,
    Refused,
}

impl Acceptance {
    pub(super) fn undecided(servers: usize, cluster: Breaker) -> Self {
        Self { servers: (0..servers).map(|_| Server::undecided()).collect(), cluster }
    }

    /// The number of the current generation, to be taken before a server is asked.
    pub(super) fn generation(&self) -> u64 {
        self.cluster.generation()
    }

    /// Records what a server has shown in a generation, and returns what was known of it. Breaks the identity's
    /// connections to a server that does not accept it.
    pub(super) fn note(&self, server: usize, state: AcceptanceState, generation: u64) -> AcceptanceState {
        let Server { known, .. } = &self.servers[server];
        let before = self.state(known.swap(state.bits() | generation << STATE_BITS, Ordering::SeqCst));
        if state != AcceptanceState::Accepted {
            self.servers[server].connections.trip();
        }
        before
    }

    pub(super) fn of(&self, server: usize) -> AcceptanceState {
        self.state(self.servers[server].known.load(Ordering::SeqCst))
    }

    /// # Errors
    /// The server has not shown that it accepts the identity.
    pub(super) fn check(&self, server: usize) -> Result<(), NotAccepted> {
        if self.of(server) == AcceptanceState::Accepted { Ok(()) } else { Err(NotAccepted) }
    }

    /// For a connection that is opened now: cancelled when it is not to be used any more.
    pub(super) fn token(&self, server: usize) -> CancellationToken {
        self.servers[server].connections.token()
    }

    /// Breaks the identity's connections to all servers, to be opened again.
    pub(super) fn break_connections(&self) {
        self.servers.iter().for_each(|server| server.connections.trip());
    }

    /// How many of these servers accept the identity.
    pub(super) fn accepting(&self, servers: &[usize]) -> usize {
        servers.iter().filter(|server| self.of(**server) == AcceptanceState::Accepted).count()
    }

    /// The best that a server has shown: `Undecided` only if none has shown anything.
    pub(super) fn best(&self) -> AcceptanceState {
        let mut best = AcceptanceState::Undecided;
        for state in self.states() {
            match state {
                AcceptanceState::Accepted => return AcceptanceState::Accepted,
                AcceptanceState::Refused => best = AcceptanceState::Refused,
                AcceptanceState::Undecided => {}
            }
        }
        best
    }

    /// The servers that have not shown that they accept the identity.
    pub(super) fn others(&self) -> Vec<usize> {
        let states = self.states().enumerate();
        states.filter(|(_, state)| *state != AcceptanceState::Accepted).map(|(server, _)| server).collect()
    }

    fn states(&self) -> impl Iterator<Item = AcceptanceState> + '_ {
        (0..self.servers.len()).map(|server| self.of(server))
    }

    fn state(&self, known: u64) -> AcceptanceState {
        if known >> STATE_BITS == self.cluster.generation() {
            AcceptanceState::of(known)
        } else {
            AcceptanceState::Undecided
        }
    }
}

impl Server {
    fn undecided() -> Self {
        Self { known: AtomicU64::new(AcceptanceState::Undecided.bits()), connections: Breaker::default() }
    }
}

impl AcceptanceState {
    const fn bits(self) -> u64 {
        match self {
            Self::Undecided => 0,
            Self::Accepted => 1,
            Self::Refused => 2,
        }
    }

    const fn of(known: u64) -> Self {
        match known & ((1 << STATE_BITS) - 1) {
            1 => Self::Accepted,
            2 => Self::Refused,
            _ => Self::Undecided,
        }
    }
}
